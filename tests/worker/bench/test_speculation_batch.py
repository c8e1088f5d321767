from __future__ import annotations

from pathlib import Path

import orjson

from worker.bench.speculation_batch import BatchBench, run_batches


def test_a_mixed_batch_writes_the_figures_of_every_arm(tmp_path: Path, model_path: Path) -> None:
    report = tmp_path / "batch.json"
    run_batches(BatchBench(model_path, (2,), 1, 1, (2,), 1, "fp32", max_tokens=8), report)
    written = orjson.loads(report.read_bytes())
    assert written["setting"]["requests"] == 3, "one of each kind"
    rows = written["batches"]["2"]
    assert set(rows) == {"off", "fixed 2", "entropy"}
    assert rows["off"]["ratio"] == 1.0
    assert rows["off"]["drafted_per_step"] == 0.0
    assert 1.0 < rows["off"]["tokens_per_step"] <= 2.0, "two run together, and at the end one"
    for row in rows.values():
        assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
        assert row["tokens_per_step"] >= rows["off"]["tokens_per_step"]
