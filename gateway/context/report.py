"""What goes into context pruning and what comes out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias

Reason: TypeAlias = Literal[
    "on_theme",  # kept: probability at or above the threshold
    "best_available",  # kept: nothing met the threshold, this is the best there is
    "linked",  # kept: a strong chunk names it or shares rare terms with it
    "not_judged",  # kept: the encoder cannot judge it (script or language)
    "unpruned",  # kept: pruning is off in this lane or task, or could not run
    "off_theme",  # dropped: probability below the threshold
    "duplicate",  # dropped: near-copy of an earlier chunk (duplicate_of)
    "over_budget",  # dropped: does not fit what is left of the token budget
    "empty",  # dropped: no text
]


class Passage(Protocol):
    """Whatever has a text and may have a title: a document as sent, or as labelled."""

    @property
    def title(self) -> str: ...
    @property
    def text(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Document:
    """A chunk as the client sent it, in one shape. ``metadata`` comes back untouched."""

    id: str
    text: str
    title: str = ""
    embedding: tuple[float, ...] | None = None
    metadata: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Verdict:
    """One document kept or dropped, with the reason a person understands."""

    document_id: str
    is_kept: bool
    reason: Reason
    score: float
    """Keep-probability in [0, 1]."""
    num_tokens: int
    cluster: int = -1
    """Index of the theme cluster; -1 where none was computed."""
    duplicate_of: str | None = None
    detail: str = ""
    """One sentence for people, for example "shares 'Kestrel 9' with doc-3"."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two documents that say different things in one place. Both stay: nobody decides which is right."""

    document_ids: tuple[str, str]
    spans: tuple[str, str]
    """What each says there, for example ("27 October 2017", "2 October 2016")."""
    detail: str
    """One sentence for people."""


@dataclass(frozen=True, slots=True)
class Centre:
    """One of several groups of documents, each coherent and near the question, that nothing links."""

    document_ids: tuple[str, ...]
    theme: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PruneReport:
    """The verdicts in the order the documents were sent, and what they add up to."""

    verdicts: tuple[Verdict, ...] = ()
    theme: tuple[str, ...] = ()
    """Words that name the theme; empty where no chunk is about the question (``theme: none``)."""
    num_clusters: int = 0
    centres: tuple[Centre, ...] = ()
    """Empty unless there are two or more."""
    conflicts: tuple[Conflict, ...] = ()
    """Between kept documents."""
    tokens_before: int = 0
    tokens_after: int = 0
    are_tokens_estimated: bool = False
    encode_ms: float = 0.0
    select_ms: float = 0.0
    num_cache_hits: int = 0
    note: str = ""
    """Why pruning did less than asked: "encoder unavailable", "threshold met by nothing", …"""
