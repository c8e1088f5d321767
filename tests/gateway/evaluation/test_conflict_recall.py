"""The conflict detector's recall and false alarms, on pairs that anyone can judge."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from gateway.errors import CommandError
from gateway.evaluation.conflict_recall import LabelledPair, measure_conflicts, read_pairs
from gateway.lab.labelled import LabelledDocument, LabelledRequest

LAUNCH = "The harbour tug Gannet was launched at Polruan on 4 May {} and has worked in the bay ever since."
OTHER = "Bread rises twice before it is baked, first in the bowl and then in its tin."
PAIRS = (
    LabelledPair(1, (LAUNCH.format(2017), LAUNCH.format(2019)), True),
    LabelledPair(2, (LAUNCH.format(2017), OTHER), True),  # nothing that a comparison could find
    LabelledPair(4, (LAUNCH.format(2017), OTHER), False),
)


def request(name: str, *texts: str) -> LabelledRequest:
    documents = tuple(LabelledDocument(f"d{n}", text, is_relevant=True) for n, text in enumerate(texts))
    return LabelledRequest(name, "harbour", "When?", (*documents, LabelledDocument("x", LAUNCH.format(1950))))


def test_pairs_are_counted_by_kind() -> None:
    requests = [request("r1", LAUNCH.format(2017), OTHER), request("r2", OTHER)]
    found = measure_conflicts(PAIRS, requests, 0)
    kinds = (found.contradicting, found.near_identical, found.agreeing, found.relevant)
    assert [(kind.num_pairs, kind.num_reported) for kind in kinds] == [(2, 1), (1, 1), (1, 0), (1, 0)]
    assert found.contradicting.share is not None
    assert found.contradicting.share.mean == 0.5
    assert found.missed_lines == (2,)
    assert found.alarming_requests == ()


def test_a_false_text_is_sent_with_all_true_ones_of_its_question() -> None:
    pairs = [
        LabelledPair(1, (OTHER, LAUNCH.format(2019)), True, "When?"),  # its original is the next pair's
        LabelledPair(
            2, (LAUNCH.format(2017), OTHER.upper()), True, "When?"
        ),  # a copy that contradicts nothing
        LabelledPair(3, (LAUNCH.format(2017), LAUNCH.format(2018)), True),  # without a question it is alone
        LabelledPair(4, (OTHER, "Nothing like it."), True, "Where?"),
    ]
    found = measure_conflicts(pairs, [], 0)
    kinds = (found.beside_true, found.beside_near, found.among_true)
    assert [(kind.num_pairs, kind.num_reported) for kind in kinds] == [(4, 2), (3, 2), (1, 0)]


def test_relevant_documents_that_are_reported_are_false_alarms() -> None:
    told = request("r3", LAUNCH.format(2017), LAUNCH.format(2019), OTHER)
    found = measure_conflicts(PAIRS[:1], [told], 0)
    assert (found.relevant.num_pairs, found.relevant.num_reported) == (3, 1)  # not the one of 1950
    assert found.agreeing.share is None
    assert found.alarming_requests == ("r3",)


def test_pairs_are_read_packed_or_plain(tmp_path: Path) -> None:
    lines = [json.dumps({"question": "?", "a": "x", "b": "y", "conflict": flag}) for flag in (True, False)]
    packed = tmp_path / "pairs.jsonl.gz"
    packed.write_bytes(gzip.compress("\n\n".join(lines).encode()))
    expected = [LabelledPair(1, ("x", "y"), True, "?"), LabelledPair(3, ("x", "y"), False, "?")]
    assert read_pairs(packed) == expected


@pytest.mark.parametrize(
    "line", ['{"a": "x", "conflict": true}', '{"a": "x", "b": 1, "conflict": true}', '{"a": "x"', "[1]"]
)
def test_a_pair_that_cannot_be_used_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text(f'{{"a": "x", "b": "y", "conflict": true}}\n{line}\n')
    with pytest.raises(CommandError, match=r"pairs\.jsonl:2: "):
        read_pairs(file)
