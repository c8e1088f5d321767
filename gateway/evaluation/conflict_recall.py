"""The conflict detector measured: pairs that contradict, and pairs that do not, by how many it reports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from gateway.context.conflicts import NEAR, find_conflicts
from gateway.context.duplicates import containment, word_grams
from gateway.context.report import Document
from gateway.errors import CommandError
from gateway.evaluation.subject import as_sent
from gateway.lab.intervals import Interval, ratio_interval
from gateway.lab.labelled import LabelledRequest, numbered_lines


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """Two texts about one question."""

    line: int
    """Where it stands in its file, from 1."""
    texts: tuple[str, str]
    is_conflict: bool
    question: str = ""
    """Texts of one question would come in one request."""


@dataclass(frozen=True, slots=True)
class Detection:
    """Of the pairs of one kind, those that are reported."""

    num_pairs: int
    num_reported: int
    share: Interval | None
    """None without pairs; drawn over the groups that the pairs come in."""


@dataclass(frozen=True, slots=True)
class ConflictRecall:
    """Recall, and false alarms on two kinds of pairs."""

    contradicting: Detection
    near_identical: Detection
    """Those contradicting pairs that share ``NEAR`` of the 3-grams of one: what the detector is for."""
    beside_true: Detection
    """False texts, each in a request with all true texts of its question, reported with one of them."""
    beside_near: Detection
    """Those of them of which a true text is near-identical."""
    among_true: Detection
    """Pairs of true texts of one question: false alarms."""
    agreeing: Detection
    """Pairs that the file labels as not contradicting."""
    relevant: Detection
    """Pairs of relevant documents of one request: they answer it together, and so do not contradict."""
    missed_lines: tuple[int, ...]
    """Of the file: contradicting pairs that are not reported."""
    alarming_requests: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Question:
    """The texts of one question: the first of each contradicting pair is true, the second is not."""

    true: tuple[str, ...]
    false: tuple[str, ...]

    def near_identical(self) -> _Question:
        """Leave out the false texts that resemble no true one."""
        near = [text for text in self.false if any(_is_near((text, other)) for other in self.true)]
        return _Question(self.true, tuple(near))


def read_pairs(file: Path) -> list[LabelledPair]:
    """Read JSON lines of ``{"a", "b", "conflict"}``, unpacked where gzipped. Raises CommandError."""
    pairs = [_pair(line, file, number) for number, line in numbered_lines(file)]
    if not pairs:
        raise CommandError(f"{file}: no pairs in there")
    return pairs


def measure_conflicts(
    pairs: Sequence[LabelledPair], requests: Sequence[LabelledRequest], seed: int
) -> ConflictRecall:
    """Run the detector on every pair, and on the relevant documents of every request."""
    reported = {pair.line: _is_reported(pair.texts) for pair in pairs}
    contradicting = [pair.line for pair in pairs if pair.is_conflict]
    agreeing = [pair.line for pair in pairs if not pair.is_conflict]
    among = [_among_relevant(request) for request in requests]
    questions = _by_question([pair for pair in pairs if pair.is_conflict])
    return ConflictRecall(
        contradicting=_detection([(int(reported[line]), 1) for line in contradicting], seed),
        near_identical=_detection(
            [(int(reported[pair.line]), 1) for pair in pairs if pair.is_conflict and _is_near(pair.texts)],
            seed,
        ),
        beside_true=_detection([_told_beside(question) for question in questions], seed),
        beside_near=_detection([_told_beside(question.near_identical()) for question in questions], seed),
        among_true=_detection([_among(question.true) for question in questions], seed),
        agreeing=_detection([(int(reported[line]), 1) for line in agreeing], seed),
        relevant=_detection(among, seed),
        missed_lines=tuple(line for line in contradicting if not reported[line]),
        alarming_requests=tuple(
            request.id for request, (num_reported, _) in zip(requests, among, strict=True) if num_reported
        ),
    )


def _pair(line: str, file: Path, number: int) -> LabelledPair:
    try:
        sent = json.loads(line)
        texts, is_conflict = (sent["a"], sent["b"]), sent["conflict"]
    except KeyError as error:
        raise CommandError(f"{file}:{number}: {error.args[0]!r} is missing") from error
    except (TypeError, ValueError) as error:
        raise CommandError(f"{file}:{number}: {error}") from error
    if not all(isinstance(text, str) for text in texts) or not isinstance(is_conflict, bool):
        raise CommandError(f"{file}:{number}: 'a' and 'b' must be strings, 'conflict' true or false")
    return LabelledPair(number, texts, is_conflict, str(sent.get("question", "")))


def _by_question(pairs: Sequence[LabelledPair]) -> list[_Question]:
    """Put the pairs of one question together; a pair without one stands alone."""
    groups: dict[str, list[LabelledPair]] = {}
    for pair in pairs:
        groups.setdefault(pair.question or f"line {pair.line}", []).append(pair)
    return [
        _Question(
            true=tuple(dict.fromkeys(pair.texts[0] for pair in group)),
            false=tuple(dict.fromkeys(pair.texts[1] for pair in group)),
        )
        for group in groups.values()
    ]


def _told_beside(question: _Question) -> tuple[int, int]:
    """Return (false texts reported, false texts), each sent with all true ones."""
    documents = [Document(str(place), text) for place, text in enumerate(question.true)]
    reported = [
        any(found.second == len(documents) for found in find_conflicts([*documents, Document("false", text)]))
        for text in question.false
    ]
    return sum(reported), len(reported)


def _among(texts: Sequence[str]) -> tuple[int, int]:
    """Return (pairs reported, pairs)."""
    reported = [_is_reported(pair) for pair in combinations(texts, 2)]
    return sum(reported), len(reported)


def _is_reported(texts: tuple[str, str]) -> bool:
    return bool(find_conflicts([Document("a", texts[0]), Document("b", texts[1])]))


def _is_near(texts: tuple[str, str]) -> bool:
    grams = sorted(map(word_grams, texts), key=len)
    return containment(*grams) >= NEAR


def _among_relevant(request: LabelledRequest) -> tuple[int, int]:
    """Return (pairs reported, pairs)."""
    sent = as_sent(request)
    pairs = list(combinations(sorted(request.relevant), 2))
    reported = [bool(find_conflicts([sent[first], sent[second]])) for first, second in pairs]
    return sum(reported), len(pairs)


def _detection(groups: Sequence[tuple[int, int]], seed: int) -> Detection:
    """Sum over groups of (reported, pairs)."""
    filled = [(num_reported, num_pairs) for num_reported, num_pairs in groups if num_pairs]
    if not filled:
        return Detection(0, 0, None)
    reported, pairs = zip(*filled, strict=True)
    return Detection(sum(pairs), sum(reported), ratio_interval(reported, pairs, seed))
