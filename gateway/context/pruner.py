"""Context pruning: a question and its retrieved documents in, a verdict on every document out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias, TypeVar

import faiss

from gateway.context.asked import ask, needed_history
from gateway.context.decide import (
    PruneOptions,
    PruneQuery,
    TokenCounts,
    Weighed,
    fallback_report,
    pruned_report,
    unpruned_report,
)
from gateway.context.embed import Encoder, EncoderSettings
from gateway.context.encoders import EncoderChoice, Encoders
from gateway.context.given import encode_request
from gateway.context.judge import Sorting, judge, sort_out
from gateway.context.rank import Ranked, ranking
from gateway.context.render import SEPARATOR, render_document
from gateway.context.report import Document, PruneReport
from gateway.context.selector import Selector
from gateway.errors import EncoderError

TokenCounter: TypeAlias = Callable[[Sequence[str]], Awaitable[TokenCounts]]
T = TypeVar("T")

MAX_DOCUMENTS = 1_000
"""Beyond this nothing is judged: the link graph grows with the square."""
_LOAD_S = 60.0
_QUESTION_CHARS = 4_000


class Pruner:
    """Prunes in two threads of its own: one encodes, one judges, so that cached requests never wait."""

    def __init__(
        self, encoders: Encoders | Encoder, timeout_s: float, selector: Selector | None = None
    ) -> None:
        """Judge by ``selector``, without one by what comes with the package. Raises ConfigError."""
        self.encoders = encoders if isinstance(encoders, Encoders) else Encoders(encoders)
        self._timeout_s = timeout_s
        self._selector = selector or Selector.load()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pruner", initializer=_compute_alone)

    @classmethod
    def open(
        cls,
        settings: EncoderSettings | None = None,
        *,
        timeout_s: float = 20.0,
        selector: Selector | None = None,
    ) -> Pruner:
        """Return a pruner whose encoder has begun to load; a request waits for encodings ``timeout_s``."""
        encoder = Encoder(settings or EncoderSettings())
        encoder.start()
        return cls(encoder, timeout_s, selector)

    async def warm(self) -> None:
        """Make the encoders ready now. Raises EncoderError."""
        await self.encoders.warm()

    def close(self) -> None:
        """End the threads."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self.encoders.close()

    async def aclose(self) -> None:
        """End the threads, and the connections to a remote encoder."""
        self.close()
        await self.encoders.aclose()

    async def prune(
        self, query: PruneQuery, options: PruneOptions, count_tokens: TokenCounter
    ) -> PruneReport:
        """Return the verdict on each of ``query.documents``. Where the encoder fails all of them are kept."""
        if not query.documents:
            return PruneReport()
        async with asyncio.TaskGroup() as group:
            counting = group.create_task(_count(query.documents, options, count_tokens))
            weighing = group.create_task(self._weigh_in_time(query, options.encoder))
        counts, weighed = counting.result(), weighing.result()
        if isinstance(weighed, str):
            return fallback_report(query.documents, options, counts, f"Not pruned: {weighed}.")
        return await self._on_thread(pruned_report, query, options, weighed, counts)

    async def rank(self, query: PruneQuery) -> tuple[Ranked, ...]:
        """Return all of ``query.documents``, best first. Raises EncoderError where they cannot be judged."""
        weighed = await self._weigh_in_time(query, "auto")
        if isinstance(weighed, str):
            raise EncoderError(weighed)
        return ranking(len(query.documents), weighed)

    async def keep_all(
        self, query: PruneQuery, options: PruneOptions, count_tokens: TokenCounter, why: str
    ) -> PruneReport:
        """Return the report of a request that is not pruned, because of ``why``; its tokens are counted."""
        if not query.documents:
            return PruneReport()
        counts = await _count(query.documents, options, count_tokens)
        return unpruned_report(query.documents, counts, why)

    async def _weigh_in_time(self, query: PruneQuery, choice: EncoderChoice) -> Weighed | str:
        """Return what was weighed, or why nothing could be."""
        if not query.question.strip():
            return "there is no question to judge the documents against"
        if len(query.documents) > MAX_DOCUMENTS:
            return f"there are more than {MAX_DOCUMENTS} documents"
        try:
            async with asyncio.timeout(_LOAD_S) as limit:
                encoder, sorting = await self._on_thread(self._sorted_out, query, choice)
                if not sorting.judged:
                    return Weighed(sorting, None)
                await encoder.warm()
                limit.reschedule(asyncio.get_running_loop().time() + self._timeout_s)
                return await self._weigh(query, encoder, sorting)
        except EncoderError as error:
            return str(error)
        except TimeoutError:
            return "the encoder took too long"

    def _sorted_out(self, query: PruneQuery, choice: EncoderChoice) -> tuple[Encoder, Sorting]:
        question = bounded(query.question)
        encoder = self.encoders.choose(choice, question, query.documents)
        return encoder, sort_out(question, query.documents, encoder.can_read)

    async def _weigh(self, query: PruneQuery, encoder: Encoder, sorting: Sorting) -> Weighed:
        question = bounded(query.question)
        documents = [query.documents[index] for index in sorting.judged]
        history = needed_history(question, query.history)
        encoded = await encode_request(encoder, [question, *history], documents)
        asked = ask(question, encoded.asked[0], list(zip(history, encoded.asked[1:], strict=True)))
        scorer = self._selector.scorers[encoded.space]
        started = time.perf_counter()
        judgement = await self._on_thread(judge, asked, sorting, query.documents, encoded.chunks, scorer)
        judge_ms = (time.perf_counter() - started) * 1e3
        return Weighed(sorting, judgement, encoded.encode_ms, judge_ms, encoded.num_cache_hits, encoded.note)

    async def _on_thread(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)


def _compute_alone() -> None:
    """Let the calling thread's matrices be multiplied by itself: they are small, and waiting threads spin."""
    import torch
    from threadpoolctl import threadpool_limits

    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    threadpool_limits(1, user_api="blas")  # numpy's; of the whole process


async def _count(
    documents: Sequence[Document], options: PruneOptions, count_tokens: TokenCounter
) -> TokenCounts:
    """Count each document as it will stand in the prompt, what separates it from the next one included."""
    return await count_tokens([render_document(each, options.template) + SEPARATOR for each in documents])


def bounded(text: str) -> str:
    """Return a text of any length as its beginning and its end: in a question, that is where people ask."""
    half = _QUESTION_CHARS // 2
    return text if len(text) <= _QUESTION_CHARS else f"{text[:half]} {text[-half:]}"
