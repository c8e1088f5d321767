"""Labelled requests made more various, so that the selector learns the question and not the data set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np

from gateway.lab.labelled import LabelledDocument, LabelledRequest
from gateway.training.snippets import cut

Kind: TypeAlias = Literal[
    "as_sent",
    "untitled",  # no chunk has its title
    "half_titled",  # one in two has
    "few",  # three to eight chunks
    "few_untitled",
    "padded",  # other requests' chunks added, up to a hundred
    "snippets",  # one to three sentences each, and several that say the same
    "foreign",  # another request's question: nothing is relevant
]
WEIGHTS = MappingProxyType[Kind, float](
    {
        "as_sent": 1.0,
        "untitled": 1.0,
        "half_titled": 0.5,
        "few": 0.5,
        "few_untitled": 0.5,
        "padded": 1.0,
        "snippets": 1.0,
        "foreign": 0.3,
    }
)
"""How much a request of each kind counts, whatever its number of chunks."""

_FEW = (3, 8)
_PADDED = 100
_PAD_EVERY = 2


@dataclass(frozen=True, slots=True)
class Variation:
    """A request in one of the shapes that it is learned in."""

    kind: Kind
    set: str
    source: int
    """Index of the request that it was made from: all that comes from one is in the same fold."""
    question: str
    documents: tuple[LabelledDocument, ...]


def variations(requests: Sequence[LabelledRequest], seed: int) -> Iterator[Variation]:
    """Yield every shape of every request, the same ones for the same ``seed``."""
    rng = np.random.default_rng(seed)
    others = _derangement(len(requests), rng)
    for index, request in enumerate(requests):
        shapes = _shapes(index, requests, rng)
        for kind, documents in shapes:
            yield Variation(kind, request.set, index, request.question, tuple(documents))
        if len(requests) > 1:
            question = requests[others[index]].question
            documents = tuple(replace(document, is_relevant=False) for document in request.documents)
            yield Variation("foreign", request.set, index, question, documents)


def _shapes(
    index: int, requests: Sequence[LabelledRequest], rng: np.random.Generator
) -> Iterable[tuple[Kind, Sequence[LabelledDocument]]]:
    documents = requests[index].documents
    yield "as_sent", documents
    yield "untitled", [_untitled(document) for document in documents]
    yield (
        "half_titled",
        [_untitled(document) if rng.random() < 0.5 else document for document in documents],
    )
    yield "few", _few(documents, rng)
    yield "few_untitled", [_untitled(document) for document in _few(documents, rng)]
    yield "snippets", cut(requests[index], rng)
    if index % _PAD_EVERY == 0:
        yield "padded", _padded(index, requests, rng)


def _untitled(document: LabelledDocument) -> LabelledDocument:
    return replace(document, title="")


def _few(documents: Sequence[LabelledDocument], rng: np.random.Generator) -> list[LabelledDocument]:
    """Draw three to eight chunks, a relevant one among them where there is any."""
    relevant = [index for index, document in enumerate(documents) if document.is_relevant]
    others = [index for index, document in enumerate(documents) if not document.is_relevant]
    size = int(rng.integers(_FEW[0], _FEW[1] + 1))
    num_relevant = int(rng.integers(1, min(len(relevant), size) + 1)) if relevant else 0
    drawn = [*rng.permutation(relevant)[:num_relevant], *rng.permutation(others)[: size - num_relevant]]
    rng.shuffle(drawn)
    return [documents[int(index)] for index in drawn]


def _padded(
    index: int, requests: Sequence[LabelledRequest], rng: np.random.Generator
) -> list[LabelledDocument]:
    """Add other requests' chunks, a request at a time, and shuffle."""
    documents = list(requests[index].documents)
    seen = {document.text for document in documents}
    for other in rng.permutation(len(requests)).tolist():
        if other == index:
            continue
        for document in requests[other].documents:
            if len(documents) < _PADDED and document.text not in seen:
                seen.add(document.text)
                documents.append(replace(document, is_relevant=False))
    return [documents[int(place)] for place in rng.permutation(len(documents))]


def _derangement(n: int, rng: np.random.Generator) -> list[int]:
    """Return for each of n another one than itself, where there are two."""
    order = rng.permutation(n).tolist()
    following = dict(zip(order, order[1:] + order[:1], strict=True))
    return [following[index] for index in range(n)]
