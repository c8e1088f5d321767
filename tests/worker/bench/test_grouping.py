from __future__ import annotations

from pathlib import Path

import orjson

from worker.bench.grouping import ADJACENT, APART, MIXED, GroupingBench, passes, run_grouping


def test_every_form_of_a_step_computes_the_same_pieces_with_single_tokens_in_front() -> None:
    forms = passes([9, 8, 7, 6], 2)
    assert [len(each) for each in forms.values()] == [1, 1, 2]
    slots = {name: [[p.slot for p in pieces] for pieces in each] for name, each in forms.items()}
    assert slots == {MIXED: [[0, 2, 1, 3]], ADJACENT: [[0, 1, 2, 3]], APART: [[0, 1], [2, 3]]}
    for each in forms.values():
        pieces = [piece for part in each for piece in part]
        assert [piece.num_logits for piece in pieces] == [1, 1, 3, 3]
        assert {piece.slot: piece.start for piece in pieces} == {0: 9, 1: 8, 2: 7, 3: 6}


def test_grouping_writes_its_figures(tmp_path: Path, model_path: Path) -> None:
    report = tmp_path / "grouping.json"
    run_grouping(GroupingBench(model_path, (2,), (1,), 8, 2, 1, "fp32"), report)
    [row] = orjson.loads(report.read_bytes())["steps"]
    assert (row["batch"], row["drafted"]) == (2, 1)
    assert row["mixed_ms"] > 0.0
    for ratio in row["ratios"].values():
        assert 0.0 < ratio["low"] <= ratio["median"] <= ratio["high"]
