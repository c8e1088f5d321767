"""The link graph: chunks that name each other's titles or share rare names, and what hangs on strong ones."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.context.report import Document, Passage
from gateway.context.words import STOP_WORDS, names

_DISAMBIGUATION = re.compile(r"\s*\([^)]*\)")
_CAPITALISED = r"[^\W\d_a-z][\w'’.-]*"
_BETWEEN = r"(?:(?:of|the|de|du|la|von|van|and|in|on|for|to|a) ){0,2}"
_SUBJECT = re.compile(rf"(?:The |An? )?({_CAPITALISED}(?:,? {_BETWEEN}{_CAPITALISED}){{0,7}})")
_OPENING_CHARS = 200
_MIN_TITLE_LETTERS = 4
_SHARED_WEIGHT = 0.15
_MAX_EDGE = 1.5
_MAX_SHARED = 6.0
_MAX_LONGER = 8
_SHARPNESS = 1.5
STEP_GAIN = 1.2
"""What a link to the strongest chunk adds to a chunk's own strength, in standard deviations."""


@dataclass(frozen=True, slots=True)
class LinkGraph:
    """Undirected edges between n chunks."""

    named: NDArray[np.bool_]
    """[n, n], true at [i, j] where j's text names i's title."""
    shared: NDArray[np.float64]
    """[n, n], the summed idf of the rare names that two chunks share."""
    rare_names: tuple[Mapping[str, str], ...]
    """Per chunk, the names that it shares with few others: in lower case, and as it writes them."""

    @property
    def titles(self) -> NDArray[np.bool_]:
        """[n, n], true where one chunk's text names the other's title."""
        either: NDArray[np.bool_] = self.named | self.named.T
        return either

    @property
    def edges(self) -> NDArray[np.float64]:
        """[n, n], both kinds together, bounded so that many shared names do not outweigh a named title."""
        weights: NDArray[np.float64] = np.minimum(self.titles + _SHARED_WEIGHT * self.shared, _MAX_EDGE)
        return weights


def build_graph(documents: Sequence[Document]) -> LinkGraph:
    """Find the links between ``documents`` in their titles and texts."""
    n = len(documents)
    named = np.zeros((n, n), dtype=bool)
    subjects = [subject_of(document) for document in documents]
    texts = [_lowered(document) for document in documents]
    longer = longer_names(subjects)
    for i, subject in enumerate(subjects):
        for j, text in enumerate(texts):
            if i != j and subjects[j] != subject and is_named(subject, text, longer.get(subject, ())):
                named[i, j] = True
    rare, shared = _shared_names(documents)
    return LinkGraph(named, shared, rare)


def bare_title(title: str) -> str:
    """Return the title in lower case without what stands in brackets: "Mercury (planet)" is "mercury"."""
    return _DISAMBIGUATION.sub("", title.lower()).strip()


def subject_of(document: Passage) -> str:
    """Return what the document is about in lower case: its title, or the name that its text opens with."""
    if document.title.strip():
        return bare_title(document.title)
    name = _opening_name(document.text).lower()
    return "" if name.split(" ")[0] in STOP_WORDS else name


def is_named(name: str, text: str, longer: Sequence[str] = ()) -> bool:
    """Tell whether ``text`` has ``name`` as whole words, both in lower case; short names do not count.

    Where it stands inside one of the ``longer`` names it is not meant: "On Fire" is not in "Comets on Fire".
    """
    if len(name) < _MIN_TITLE_LETTERS or name not in text or name in STOP_WORDS:
        return False
    for other in longer:
        text = text.replace(other, " ")
    start = text.find(name)
    while start >= 0:
        if not _is_inside_word(text, start, start + len(name)):
            return True
        start = text.find(name, start + 1)
    return False


def _is_inside_word(text: str, start: int, end: int) -> bool:
    around = text[max(start - 1, 0) : start] + text[end : end + 1]
    return any(character.isalnum() or character == "_" for character in around)


def longer_names(names_here: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """Return for each name those that contain it, longest first; names that none contains are left out.

    Of more than eight the shortest count: hundreds of names inside each other would cost seconds.
    """
    distinct = sorted({name for name in names_here if name}, key=len, reverse=True)
    containing = {name: [other for other in distinct if name in other and name != other] for name in distinct}
    return {name: others[-_MAX_LONGER:] for name, others in containing.items() if others}


def closeness(strength: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 for the strongest of ``strength`` [n], in standard deviations, and less the further below."""
    near: NDArray[np.float64] = np.exp(_SHARPNESS * (strength - strength.max()))
    return near


def reach(graph: LinkGraph, strength: NDArray[np.float64]) -> NDArray[np.float64]:
    """Spread ``strength`` [n], the question's own evidence, over the graph by two steps.

    Returns per chunk the heaviest edge to a strong chunk, where a chunk linked to a strong one is strong too.
    """
    edges = graph.edges
    one_step = (edges * closeness(strength)).max(axis=1)
    two_steps: NDArray[np.float64] = (edges * closeness(strength + STEP_GAIN * one_step)).max(axis=1)
    return two_steps


@dataclass(frozen=True, slots=True)
class Pull:
    """What n chunks get from strong ones along each kind of link, [n] each."""

    named_by: NDArray[np.float64]
    """Closeness of the strongest chunk that names this one's title."""
    names: NDArray[np.float64]
    """Closeness of the strongest chunk whose title this one names."""
    shared: NDArray[np.float64]
    """Summed idf of the names shared with a strong chunk, times its closeness."""


def pull_of(graph: LinkGraph, lead: NDArray[np.float64]) -> Pull:
    """Spread ``lead`` [n], each chunk's closeness to the best, by one step along every kind of link."""
    return Pull(
        named_by=(graph.named * lead).max(axis=1),
        names=(graph.named.T * lead).max(axis=1),
        shared=(np.minimum(graph.shared, _MAX_SHARED) * lead).max(axis=1),
    )


def explain_link(graph: LinkGraph, documents: Sequence[Document], index: int, others: Sequence[int]) -> str:
    """Say in a sentence what ties chunk ``index`` to the nearest of ``others``; empty where nothing does."""
    edges = graph.edges[index]
    other = max(others, key=lambda candidate: float(edges[candidate]), default=index)
    if edges[other] <= 0.0:
        return ""
    mine, partner = documents[index], documents[other]
    if graph.named[other, index]:
        if partner.title.strip():
            return f"It names {partner.title!r}, the title of {partner.id}."
        return f"It names {_opening_name(partner.text)!r}, with which {partner.id} opens."
    if graph.named[index, other]:
        if mine.title.strip():
            return f"{partner.id} names its title, {mine.title!r}."
        return f"{partner.id} names {_opening_name(mine.text)!r}, with which it opens."
    common = sorted(graph.rare_names[index].keys() & graph.rare_names[other].keys())
    written = [repr(graph.rare_names[index][name]) for name in common[:3]]
    return f"It shares {', '.join(written)} with {partner.id}."


def _shared_names(
    documents: Sequence[Document],
) -> tuple[tuple[Mapping[str, str], ...], NDArray[np.float64]]:
    """Return per chunk its rare names, and [n, n] their summed idf, ln(n / holders), where two share them."""
    n = len(documents)
    found = [{name.lower(): name for name in names(f"{each.title}. {each.text}")} for each in documents]
    holders: dict[str, list[int]] = {}
    for index, names_here in enumerate(found):
        for name in names_here:
            holders.setdefault(name, []).append(index)
    most = max(3, n // 6)
    rare = {name: where for name, where in holders.items() if 2 <= len(where) <= most}
    shared = np.zeros((n, n))
    for where in rare.values():
        shared[np.ix_(where, where)] += np.log(n / len(where))
    np.fill_diagonal(shared, 0.0)
    return tuple({name: here[name] for name in here if name in rare} for here in found), shared


def _lowered(document: Document) -> str:
    return f"{document.title}\n{document.text}".lower()


def _opening_name(text: str) -> str:
    """Return the capitalised words that ``text`` opens with, an article left out."""
    found = _SUBJECT.match(text.lstrip()[:_OPENING_CHARS])
    return found[1].rstrip(".,;'’-") if found else ""
