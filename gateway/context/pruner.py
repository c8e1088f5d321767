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
    pruned_report,
    unpruned_report,
)
from gateway.context.embed import Encoder, EncoderSettings
from gateway.context.encoding import Encoding
from gateway.context.judge import judge, sort_out
from gateway.context.rank import Ranked, ranking
from gateway.context.render import SEPARATOR, render_document
from gateway.context.report import Document, PruneReport
from gateway.context.weights import FULL, VECTORS
from gateway.errors import EncoderError

TokenCounter: TypeAlias = Callable[[Sequence[str]], Awaitable[TokenCounts]]
T = TypeVar("T")

MAX_DOCUMENTS = 1_000
"""Beyond this nothing is judged: the link graph grows with the square."""
_LOAD_S = 60.0
_QUESTION_CHARS = 4_000
_SAME_SPACE = 0.9


class Pruner:
    """Prunes in two threads of its own: one encodes, one judges, so that cached requests never wait."""

    def __init__(self, encoder: Encoder, timeout_s: float) -> None:
        self._encoder = encoder
        self._timeout_s = timeout_s
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pruner", initializer=_compute_alone)

    @classmethod
    def open(cls, settings: EncoderSettings | None = None, *, timeout_s: float = 20.0) -> Pruner:
        """Return a pruner whose encoder has begun to load; a request waits for encodings ``timeout_s``."""
        encoder = Encoder(settings or EncoderSettings())
        encoder.start()
        return cls(encoder, timeout_s)

    async def warm(self) -> None:
        """Load the encoder now. Raises EncoderError."""
        await self._encoder.warm()

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._encoder.close()

    async def prune(
        self, query: PruneQuery, options: PruneOptions, count_tokens: TokenCounter
    ) -> PruneReport:
        """Return the verdict on each of ``query.documents``. Where the encoder fails all of them are kept."""
        if not query.documents:
            return PruneReport()
        async with asyncio.TaskGroup() as group:
            counting = group.create_task(_count(query.documents, options, count_tokens))
            weighing = group.create_task(self._weigh_in_time(query))
        counts, weighed = counting.result(), weighing.result()
        if isinstance(weighed, str):
            why = f"Not pruned: {weighed}."
            return unpruned_report(query.documents, counts, why, note=why)
        return await self._on_thread(pruned_report, query, options, weighed, counts)

    async def rank(self, query: PruneQuery) -> tuple[Ranked, ...]:
        """Return all of ``query.documents``, best first. Raises EncoderError where they cannot be judged."""
        weighed = await self._weigh_in_time(query)
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

    async def _weigh_in_time(self, query: PruneQuery) -> Weighed | str:
        """Return what was weighed, or why nothing could be."""
        if not query.question.strip():
            return "there is no question to judge the documents against"
        if len(query.documents) > MAX_DOCUMENTS:
            return f"there are more than {MAX_DOCUMENTS} documents"
        try:
            async with asyncio.timeout(_LOAD_S) as limit:
                await self._encoder.warm()
                limit.reschedule(asyncio.get_running_loop().time() + self._timeout_s)
                return await self._weigh(query)
        except EncoderError as error:
            return str(error)
        except TimeoutError:
            return "the encoder took too long"

    async def _weigh(self, query: PruneQuery) -> Weighed:
        question = _bounded(query.question)
        sorting = await self._on_thread(sort_out, question, query.documents)
        if not sorting.judged:
            return Weighed(sorting, None)
        documents = [query.documents[index] for index in sorting.judged]
        given, note = await self._given_vectors(documents)
        texts = [
            _encoded_text(document) for position, document in enumerate(documents) if position not in given
        ]
        history = needed_history(question, query.history)
        encoded = await self._encoder.encode([question, *history, *texts])
        asked, *rest = encoded.encodings
        fresh = iter(rest[len(history) :])
        encodings = [
            given[position] if position in given else next(fresh) for position in range(len(documents))
        ]
        weights = FULL
        if given:
            weights, encodings = VECTORS, [encoding.without_tokens() for encoding in encodings]
        started = time.perf_counter()
        asked_for = ask(question, asked, list(zip(history, rest, strict=False)))
        judgement = await self._on_thread(judge, asked_for, sorting, query.documents, encodings, weights)
        judge_ms = (time.perf_counter() - started) * 1e3
        return Weighed(sorting, judgement, encoded.encode_ms, judge_ms, encoded.num_cache_hits, note)

    async def _given_vectors(self, documents: Sequence[Document]) -> tuple[dict[int, Encoding], str]:
        """Return the embeddings that the client sent, by position, and a note where they are of no use.

        An embedding of the right length may come from another model. One document is encoded here to compare.
        """
        sent = [position for position, document in enumerate(documents) if document.embedding is not None]
        if not sent:
            return {}, ""
        given = {
            position: Encoding.of_vector(documents[position].embedding or ())
            for position in sent
            if len(documents[position].embedding or ()) == self._encoder.dimension
        }
        if not given:
            return {}, "The embeddings sent have another length than the encoder's and were not used."
        shortest = min(given, key=lambda position: len(documents[position].text))
        probes = await self._encoder.encode([_encoded_text(documents[shortest]), documents[shortest].text])
        cosines = [float(probe.vector @ given[shortest].vector) for probe in probes.encodings]
        if max(cosines) < _SAME_SPACE:
            return {}, "The embeddings sent are not the encoder's own and were not used."
        return given, ""

    async def _on_thread(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)


def _compute_alone() -> None:
    """Let the calling thread's matrices be multiplied by itself: they are small, and waiting threads spin."""
    import torch

    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)


async def _count(
    documents: Sequence[Document], options: PruneOptions, count_tokens: TokenCounter
) -> TokenCounts:
    """Count each document as it will stand in the prompt, what separates it from the next one included."""
    return await count_tokens([render_document(each, options.template) + SEPARATOR for each in documents])


def _bounded(question: str) -> str:
    """Return a question of any length as its beginning and its end: that is where people ask."""
    half = _QUESTION_CHARS // 2
    return question if len(question) <= _QUESTION_CHARS else f"{question[:half]} {question[-half:]}"


def _encoded_text(document: Document) -> str:
    return f"{document.title}. {document.text}" if document.title.strip() else document.text
