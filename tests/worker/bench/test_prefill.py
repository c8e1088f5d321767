from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import torch
from transformers import AutoConfig

from worker.bench.floor import Products
from worker.engine.architecture import Architecture
from worker.engine.linear import PlainLinear


def test_bench_prefill_writes_its_figures(tmp_path: Path) -> None:
    report = tmp_path / "prefill.json"
    options = ["--rounds", "1", "--prompt-tokens", "24", "--dtype", "fp32"]
    command = [sys.executable, "-m", "worker.bench", "prefill", "--json", str(report), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    read = orjson.loads(report.read_bytes())
    figures = read["prefill"]
    assert read["setting"]["prompt_tokens"] == 24
    assert figures["ours_to_floor"] > 0
    # One round, so the ratios are those of the times.
    assert abs(figures["transformers_to_ours"] - figures["transformers_ms"] / figures["ours_ms"]) < 0.1
    assert "floor" in done.stdout


def test_the_floor_multiplies_by_as_many_weights_as_the_model_has(model_path: Path) -> None:
    architecture = Architecture.from_config(AutoConfig.from_pretrained(str(model_path)))
    products = Products.of(architecture, torch.float32, PlainLinear)
    outputs = [linear(torch.zeros(1, width)).shape[1] for linear, width in products.layers]
    num_weights = sum(n * width for n, (_, width) in zip(outputs, products.layers, strict=True))
    assert num_weights + 49_152 * 576 == architecture.num_parameters == 134_479_872
