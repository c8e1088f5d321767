"""The arms of the comparison: which of a request's chunks each one lets the model read."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Literal, TypeAlias, get_args

import numpy as np

import gateway.context
from gateway.context.decide import PruneOptions, PruneQuery
from gateway.context.embed import Encoder, EncoderSettings
from gateway.context.given import text_of
from gateway.context.pruner import Pruner, TokenCounter
from gateway.context.report import Document
from gateway.errors import CommandError, ConfigError
from gateway.evaluation.incumbents import Retrieved
from gateway.evaluation.subject import as_sent, check_pruned
from gateway.lab.labelled import LabelledDocument, LabelledRequest
from gateway.stack.environment import described

Arm: TypeAlias = Literal["all", "ours", "top_5", "none", "relevant"]

ARMS: tuple[Arm, ...] = get_args(Arm)
TOP = 5
DESCRIPTIONS: dict[Arm, str] = {
    "all": "every chunk, no pruning; what does not fit the model's context is left out from the end",
    "ours": "what this gateway keeps, keep = balanced",
    "top_5": f"the {TOP} chunks most similar to the question, by the gateway's encoder",
    "none": "no chunk",
    "relevant": "the chunks that are labelled as relevant: the ceiling",
}
_ENCODE_S = 600.0


@dataclass(frozen=True, slots=True)
class Choice:
    """The chunks of an arm in the order they were sent, and what choosing them took in this process."""

    documents: tuple[Document, ...]
    cpu_s: float = 0.0
    """Encoding included: nothing is cached."""
    wall_s: float = 0.0


class Chooser:
    """Chooses for every arm, with an encoder that remembers nothing from one call to the next."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._pruner = Pruner(encoder, _ENCODE_S)

    async def warm(self) -> None:
        """Load the encoder. Raises EncoderError."""
        await self._encoder.warm()

    def close(self) -> None:
        self._pruner.close()

    async def choose(
        self, arm: Arm, request: LabelledRequest, count_tokens: TokenCounter, template: str
    ) -> Choice:
        """Return the arm's chunks. Nothing else may compute in this process meanwhile.

        Raises EncoderError, and CommandError where pruning could not run.
        """
        documents = as_sent(request)
        if arm == "all":
            return Choice(documents)
        if arm == "none":
            return Choice(())
        if arm == "relevant":
            return Choice(tuple(documents[index] for index in sorted(request.relevant)))
        started_s, cpu_s = time.perf_counter(), time.process_time()
        if arm == "ours":
            kept = await self._ours(request, count_tokens, template)
        else:
            kept = await self._most_similar(request)
        return Choice(
            tuple(documents[index] for index in kept),
            cpu_s=time.process_time() - cpu_s,
            wall_s=time.perf_counter() - started_s,
        )

    async def _ours(self, request: LabelledRequest, count_tokens: TokenCounter, template: str) -> list[int]:
        query = PruneQuery(request.question, as_sent(request))
        report = await self._pruner.prune(
            query, PruneOptions(keep="balanced", template=template), count_tokens
        )
        check_pruned(report, request.id)
        return [index for index, verdict in enumerate(report.verdicts) if verdict.is_kept]

    async def _most_similar(self, request: LabelledRequest) -> list[int]:
        texts = tuple(map(text_of, request.documents))
        if not texts:
            return []
        question, *chunks = (await self._encoder.encode([request.question, *texts])).encodings
        vectors = np.stack([chunk.vector for chunk in chunks])
        retrieved = Retrieved(request.question, texts, question.vector, vectors)
        return sorted(retrieved.ranking[:TOP].tolist())


@contextmanager
def open_chooser() -> Iterator[Chooser]:
    """Lend a chooser with the bundled encoder and no cache. Raises CommandError for a broken selector."""
    try:
        chooser = Chooser(Encoder(EncoderSettings(cache_bytes=0)))
    except ConfigError as error:
        raise CommandError(described(error)) from error
    try:
        yield chooser
    finally:
        chooser.close()


def selector_fingerprint() -> str:
    """Name everything that decides what ``ours`` keeps: the files of gateway/context, code and artefact."""
    folder = Path(gateway.context.__file__).parent
    digest = blake2b(digest_size=8)
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.suffix != ".pyc":
            digest.update(f"{file.relative_to(folder)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def request_of(question: str, texts: Sequence[str]) -> LabelledRequest:
    """Return a request without labels, to warm up with."""
    documents = tuple(LabelledDocument(f"d{index}", text) for index, text in enumerate(texts))
    return LabelledRequest("", "", question, documents)
