"""Two near-copies laid side by side: where they differ, and where another number or name stands there."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from gateway.context.facts import Word, differ, read_words

MAX_SPAN = 10
"""Words; a longer stretch that differs is another text, not another fact."""
_MAX_EDGE_SPAN = 4
_MAX_WORDS = 1_000
"""Of each text; near-copies of whole books are compared by their beginnings."""
_DAY = r"[^\W\d_]{3,9}\.? \d{1,2}, \d{4}|\d{1,2} [^\W\d_]{3,9}\.? \d{4}|\d+ (?:hour|day)s? ago"
_DATELINE = re.compile(rf"\s*(?:{_DAY})\s*(?:\.{{3}}|[…—–:·-])")


@dataclass(frozen=True, slots=True)
class Difference:
    """A place that both texts have, and the fact that each states there."""

    spans: tuple[str, str]
    """As they are written."""
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    """What alone differs, however it is written."""
    context: str
    """The words before the place, where there are any."""
    starts: tuple[int, int]
    """At which word the place begins in each text."""


@dataclass(frozen=True, slots=True)
class Written:
    """A text and its words, a dateline such as "Jul 11, 2010 ..." left out."""

    text: str
    words: tuple[Word, ...]
    vocabulary: frozenset[str]


def write_down(text: str) -> Written:
    """Split ``text`` into words that can be compared however they are written."""
    dateline = _DATELINE.match(text)
    words = read_words(text, dateline.end() if dateline else 0)[:_MAX_WORDS]
    return Written(text, tuple(words), frozenset(word.key for word in words))


def differing_facts(text: Written, other: Written) -> list[Difference]:
    """Return the places where both texts state something: another number, another name, or a denial."""
    if text.vocabulary == other.vocabulary:
        return []
    found = []
    for here, there in _gaps(text.words, other.words):
        spans = text.words[here.start : here.stop], other.words[there.start : there.stop]
        if _is_short(here, there, len(text.words), len(other.words)) and differ(*spans):
            margin = 0 if here and there else 1  # to show what is denied
            found.append(
                Difference(
                    spans=(_shown(text, here, margin), _shown(other, there, margin)),
                    keys=(_keys(spans[0]), _keys(spans[1])),
                    context=_as_written(text, max(here.start - 4, 0), here.start),
                    starts=(here.start, there.start),
                )
            )
    return found


def _keys(span: Sequence[Word]) -> tuple[str, ...]:
    return tuple(word.key for word in span)


def _is_short(here: range, there: range, length: int, length_there: int) -> bool:
    """Tell whether a gap is small enough for one fact; at a text's edge nothing holds it on one side."""
    is_edge = here.start == there.start == 0 or (here.stop == length and there.stop == length_there)
    return max(len(here), len(there)) <= (_MAX_EDGE_SPAN if is_edge else MAX_SPAN)


def _gaps(words: Sequence[Word], others: Sequence[Word]) -> list[tuple[range, range]]:
    """Return the stretches between what both have in one order (Cohen's patience diff, on word pairs)."""
    here, there = [word.key for word in words], [word.key for word in others]
    edges = [(-1, -1), *_anchors(here, there), (len(here), len(there))]
    gaps = []
    for (i, j), (next_i, next_j) in pairwise(edges):
        start, start_there, stop, stop_there = i + 1, j + 1, next_i, next_j
        while start < stop and start_there < stop_there and here[start] == there[start_there]:
            start, start_there = start + 1, start_there + 1
        while start < stop and start_there < stop_there and here[stop - 1] == there[stop_there - 1]:
            stop, stop_there = stop - 1, stop_there - 1
        if start < stop or start_there < stop_there:
            gaps.append((range(start, stop), range(start_there, stop_there)))
    return gaps


def _anchors(here: Sequence[str], there: Sequence[str]) -> list[tuple[int, int]]:
    """Return matching words in order: those of the pairs that each text has once."""
    once = _single_pairs(there)
    matches = [(i, once[pair]) for pair, i in _single_pairs(here).items() if pair in once]
    anchors: dict[int, int] = {}
    for i, j in _longest_rise(matches):
        anchors.setdefault(i, j)
        anchors.setdefault(i + 1, j + 1)
    return list(anchors.items())


def _single_pairs(keys: Sequence[str]) -> dict[tuple[str, str], int]:
    """Map each pair of neighbours that occurs once to its place, in the order of the text."""
    places: dict[tuple[str, str], int] = {}
    repeated = set()
    for index, pair in enumerate(pairwise(keys)):
        if pair in places:
            repeated.add(pair)
        places[pair] = index
    return {pair: index for pair, index in places.items() if pair not in repeated}


def _longest_rise(matches: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest run of ``matches``, sorted by their first, that rises in their second."""
    ends: list[int] = []
    tails: list[int] = []
    before: list[int] = []
    for index, (_, j) in enumerate(matches):
        length = bisect_left(ends, j)
        before.append(tails[length - 1] if length else -1)
        if length == len(ends):
            ends.append(j)
            tails.append(index)
        else:
            ends[length], tails[length] = j, index
    rise = []
    index = tails[-1] if tails else -1
    while index >= 0:
        rise.append(matches[index])
        index = before[index]
    return rise[::-1]


def _shown(written: Written, span: range, margin: int) -> str:
    """Widen a span over the names and numbers beside it, so that a date or a name is shown as a whole."""
    start, stop, words = max(span.start - margin, 0), span.stop + margin, written.words
    while start > 0 and span.stop - start < MAX_SPAN and words[start - 1].is_fact and _touch(written, start):
        start -= 1
    while stop < len(words) and stop - start < MAX_SPAN and words[stop].is_fact and _touch(written, stop):
        stop += 1
    return _as_written(written, start, min(stop, len(words)))


def _touch(written: Written, index: int) -> bool:
    """Tell whether nothing but blanks and commas stands before a word."""
    between = written.text[written.words[index - 1].end : written.words[index].start]
    return not between.strip(" ,-–")


def _as_written(written: Written, start: int, stop: int) -> str:
    if start >= stop:
        return ""
    return written.text[written.words[start].start : written.words[stop - 1].end]
