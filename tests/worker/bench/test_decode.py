from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest
import torch
from transformers import AutoModelForCausalLM

from worker.bench.rival import SteppedGenerate


def test_bench_decode_writes_its_figures(tmp_path: Path) -> None:
    report = tmp_path / "decode.json"
    options = ["--batches", "1,2", "--steps", "3", "--prompt-tokens", "12", "--dtype", "fp32"]
    command = [sys.executable, "-m", "worker.bench", "decode", "--json", str(report), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    figures = orjson.loads(report.read_bytes())
    assert set(figures["batches"]) == {"1", "2"}
    for row in figures["batches"].values():
        assert row["num_steps"] == 3
        assert row["is_text_equal"], "greedy fp32 tokens are transformers' own"
        assert row["ours_ms"] > 0
        assert row["generate_ms"] > 0
        assert row["floor_ms"] > 0
        assert row["ratio_p10"] <= row["ratio"] <= row["ratio_p90"]
    assert figures["trace_overhead"] > 0
    assert isinstance(figures["controls_overhead"], float)
    assert "generate" in done.stdout


def test_bad_batches_are_refused_with_what_to_write() -> None:
    command = [sys.executable, "-m", "worker.bench", "decode", "--batches", "1,x"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "1,8,32" in done.stderr


def test_generate_held_between_steps_writes_what_it_writes_alone(model_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(str(model_path), dtype=torch.float32).eval()
    prompt = torch.tensor([[504, 2786, 1511, 335, 1343]])
    with torch.inference_mode():
        alone = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            max_new_tokens=4,
            min_new_tokens=4,
            pad_token_id=0,
        )
    held = SteppedGenerate(model, prompt, 4, num_threads=1)
    for _ in range(4):
        assert held.step() > 0
    held.finish()
    assert held.tokens is not None
    assert held.tokens.tolist() == alone.tolist()


def test_an_error_of_the_rival_reaches_who_measures() -> None:
    held = SteppedGenerate(object(), torch.tensor([[1]]), 2, num_threads=1)
    with pytest.raises(AttributeError):
        held.step()
