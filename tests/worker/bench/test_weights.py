from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import orjson
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig
from typer.testing import CliRunner

from worker.bench.__main__ import app
from worker.bench.weights import _differences, _loss

TEXT = (
    "The Solveig is a ferry. She is powered by two hydrogen fuel cells and carries forty cars across the "
    "fjord, in winter too, when the harbour is closed and the keeper writes down every ship that waits."
)


@pytest.fixture
def tiny_model(tmp_path: Path, model_path: Path) -> Path:
    """A random Llama with the real tokenizer, since nothing here depends on what it says."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49_152,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.3,
    )
    folder = tmp_path / "tiny"
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    for source in model_path.glob("tokenizer*"):
        (folder / source.name).symlink_to(source)
    return folder


def test_bench_weights_writes_its_figures(tiny_model: Path, tmp_path: Path) -> None:
    request = {"documents": [{"title": "Solveig", "text": TEXT}]}
    data = tmp_path / "data.jsonl.gz"
    data.write_bytes(gzip.compress(b"\n".join([orjson.dumps(request)] * 2)))
    report = tmp_path / "weights.json"
    files = ["--data", str(data), "--json", str(report), "--model", str(tiny_model)]
    texts = ["--passages", "2", "--passage-tokens", "24", "--prompt-tokens", "20"]
    times = ["--batches", "1", "--turns", "2", "--rounds", "1"]
    done = CliRunner().invoke(app, ["weights", *files, *texts, *times], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    figures = orjson.loads(report.read_bytes())
    loss = figures["loss"]
    assert 0.0 <= loss["full"]["kl_mean"] < loss["int8"]["kl_mean"] < 0.5
    assert loss["int8"]["top1"] > 0.5
    assert set(figures["times"]) == {"step, batch 1", "prompt of 20"}
    for row in figures["times"].values():
        assert row["full_ms"] > 0
        assert row["int8_ms"] > 0
        assert row["ratio_p10"] <= row["ratio"] <= row["ratio_p90"]
    assert "int8" in done.output


def test_a_loss_is_what_two_distributions_worked_out_by_hand_differ_by() -> None:
    p, q = torch.tensor([[0.5, 0.5 - 1e-6, 1e-6]]), torch.tensor([[0.25, 0.75 - 1e-6, 1e-6]])
    reference, other = torch.cat([p, p]).log(), torch.cat([q, q]).log()
    [[divergence, same, nll]] = _differences(reference, other, (0, 1))
    assert divergence == pytest.approx(0.5 * math.log(2.0) + 0.5 * math.log(2.0 / 3.0), abs=1e-5)
    assert same == 0.0
    assert nll == pytest.approx(math.log(0.5 / 0.75), abs=1e-5)


def test_a_loss_over_equal_passages_has_no_spread() -> None:
    passage = np.array([[0.1, 1.0, 0.2], [0.3, 0.0, -0.2]])
    loss = _loss([passage, passage])
    assert (loss.kl_mean, loss.kl_low, loss.kl_high) == (0.2, 0.2, 0.2)
    assert (loss.top1, loss.nll_difference) == (0.5, 0.0)
    assert loss.kl_p95 == 0.3
