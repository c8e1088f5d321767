"""What a look sees, against the attention weights of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from worker.engine.batch import Piece
from worker.engine.focus.attention import WINDOW, AttentionMean

if TYPE_CHECKING:
    from tests.worker.engine.conftest import LoadTiny

IDS = tuple(np.random.default_rng(3).integers(10, 40_000, 60).tolist())


@pytest.fixture(scope="module")
def weights(tiny_folder: Path) -> torch.Tensor:
    """[tokens, tokens]: the mean over layers and heads of what each token gives each."""
    model: Any = AutoModelForCausalLM.from_pretrained(str(tiny_folder), attn_implementation="eager").float()
    with torch.inference_mode():
        attentions = model.eval()(torch.tensor([IDS]), output_attentions=True).attentions
    return torch.stack(attentions)[:, 0].mean((0, 1))


def test_a_look_at_a_step_and_at_the_end_of_a_chunk_sees_the_mean_over_heads_and_layers(
    load_tiny: LoadTiny, weights: torch.Tensor
) -> None:
    model = load_tiny(num_slots=2)
    chunk, step = AttentionMean(), AttentionMean()
    model.forward([Piece(1, 0, IDS[:20], num_logits=0)])
    model.forward([Piece(1, 20, IDS[20:59], num_logits=1, look=chunk)])
    model.forward([Piece(1, 59, IDS[59:], num_logits=1, look=step)])
    assert step.mean() == pytest.approx(weights[59].numpy(), abs=1e-5)
    # Of the chunk the last queries; each sees what is before it.
    assert chunk.mean() == pytest.approx(weights[59 - WINDOW : 59, :59].mean(0).numpy(), abs=1e-5)
    assert chunk.mean().sum() == pytest.approx(1.0, abs=1e-5)


def test_a_chunk_shorter_than_the_window_is_looked_at_whole(
    load_tiny: LoadTiny, weights: torch.Tensor
) -> None:
    look = AttentionMean()
    load_tiny().forward([Piece(0, 0, IDS[:5], num_logits=1, look=look)])
    assert look.mean() == pytest.approx(weights[:5, :5].mean(0).numpy(), abs=1e-5)
