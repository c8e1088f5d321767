"""One labelled request put through everything: our pruner as the product runs it, and the incumbents."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from gateway.context.decide import PruneOptions, PruneQuery, TokenCounts
from gateway.context.embed import EncoderSettings
from gateway.context.given import text_of
from gateway.context.pruner import Pruner
from gateway.context.report import Document, PruneReport
from gateway.context.selector import SETTINGS, Selector, Setting
from gateway.errors import CommandError
from gateway.evaluation.incumbents import Incumbent, Retrieved
from gateway.evaluation.measures import Labels, Mask, Measures, label, measure
from gateway.lab.labelled import LabelledRequest

OURS = MappingProxyType({f"ours_{setting}": setting for setting in SETTINGS})

_ENCODE_S = 600.0
_UNJUDGED = frozenset({"not_judged", "duplicate", "empty"})


@dataclass(frozen=True, slots=True)
class Subject:
    """A request with n chunks after all methods have chosen."""

    id: str
    set: str
    labels: Labels
    ranking: NDArray[np.int64]
    """[n] by similarity, best first."""
    measures: Mapping[str, Measures]
    """By method."""
    probability: NDArray[np.float64]
    """[n] our keep-probability; NaN where nothing was judged."""


class Bench:
    """Our pruner, whose encoder with its cache also gives the others their vectors."""

    def __init__(self, pruner: Pruner, others: Mapping[str, Incumbent]) -> None:
        self._pruner = pruner
        self._others = others

    async def try_all(self, request: LabelledRequest) -> Subject:
        """Let every method choose among at least one document.

        Raises EncoderError, and CommandError where ours could not prune.
        """
        texts = tuple(map(text_of, request.documents))
        encoder = self._pruner.encoders.local
        question, *chunks = (await encoder.encode([request.question, *texts])).encodings
        tokens = np.array([len(chunk.token_ids) for chunk in chunks])
        reports = {name: await self._report(request, setting, tokens) for name, setting in OURS.items()}
        vectors = np.stack([chunk.vector for chunk in chunks])
        retrieved = Retrieved(request.question, texts, question.vector, vectors)
        kept = {name: _kept(report) for name, report in reports.items()}
        kept |= {name: other.choose(retrieved) for name, other in self._others.items()}
        labels = label(request, tokens)
        return Subject(
            id=request.id,
            set=request.set,
            labels=labels,
            ranking=retrieved.ranking,
            measures={name: measure(labels, mask) for name, mask in kept.items()},
            probability=_probability(reports[next(iter(OURS))]),
        )

    async def warm(self) -> None:
        """Load the encoder now. Raises EncoderError."""
        await self._pruner.warm()

    async def _report(
        self, request: LabelledRequest, setting: Setting, tokens: NDArray[np.int64]
    ) -> PruneReport:
        async def counted(_: Sequence[str]) -> TokenCounts:
            return tokens.tolist(), False

        query = PruneQuery(request.question, as_sent(request))
        report = await self._pruner.prune(query, PruneOptions(keep=setting), counted)
        check_pruned(report, request.id)
        return report


@contextmanager
def open_bench(
    settings: EncoderSettings, selector: Selector, others: Mapping[str, Incumbent]
) -> Iterator[Bench]:
    """Lend a bench whose encoder has begun to load."""
    pruner = Pruner.open(settings, timeout_s=_ENCODE_S, selector=selector)
    try:
        yield Bench(pruner, others)
    finally:
        pruner.close()


def as_sent(request: LabelledRequest) -> tuple[Document, ...]:
    """Return the chunks as a client sends them: without their labels."""
    return tuple(Document(each.id, each.text, each.title) for each in request.documents)


def check_pruned(report: PruneReport, request_id: str) -> None:
    """Raise CommandError where everything was kept because pruning could not run: that is no result."""
    if any(verdict.reason == "unpruned" for verdict in report.verdicts):
        raise CommandError(f"request {request_id!r} was not pruned: {report.note}")


def _kept(report: PruneReport) -> Mask:
    return np.array([verdict.is_kept for verdict in report.verdicts])


def _probability(report: PruneReport) -> NDArray[np.float64]:
    return np.array([np.nan if verdict.reason in _UNJUDGED else verdict.score for verdict in report.verdicts])
