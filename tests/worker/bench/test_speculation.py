from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import orjson

PASSAGES = (
    (
        "Solveig",
        "The Solveig is a ferry. She is powered by two hydrogen fuel cells and carries forty cars.",
        True,
    ),
    ("Bread", "Knead the dough for ten minutes and let it rise until it has doubled.", False),
)


def test_bench_speculation_writes_its_figures(tmp_path: Path) -> None:
    documents = [
        {"id": f"d{number}", "title": title, "text": text, "relevant": is_relevant}
        for number, (title, text, is_relevant) in enumerate(PASSAGES)
    ]
    request = {"question": "Repeat the passage about the Solveig.", "documents": documents}
    data = tmp_path / "data.jsonl.gz"
    data.write_bytes(gzip.compress(orjson.dumps(request)))
    report = tmp_path / "speculation.json"
    options = ["--prompts", "1", "--max-tokens", "8", "--lengths", "2", "--dtype", "fp32"]
    command = [
        sys.executable,
        "-m",
        "worker.bench",
        "speculation",
        "--data",
        str(data),
        "--json",
        str(report),
    ]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    kinds = orjson.loads(report.read_bytes())["kinds"]
    assert set(kinds) == {"rag", "open"}
    for rows in kinds.values():
        assert set(rows) == {"off", "fixed 2", "entropy"}
        assert rows["off"]["ratio"] == rows["off"]["tokens_per_step"] == 1.0
        assert rows["off"]["drafted_per_step"] == 0.0
        for row in rows.values():
            assert row["num_same_texts"] == row["num_prompts"] == 1, "float32 texts do not depend on drafts"
            assert row["ratio_low"] <= row["ratio"] <= row["ratio_high"]
            assert row["ms_per_token"] > 0
    assert kinds["rag"]["fixed 2"]["tokens_per_step"] > 1.0
