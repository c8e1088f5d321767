"""What a request remembers, by hand."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.nn.functional import log_softmax

from worker.engine.focus.focus import Focus
from worker.engine.focus.keeper import surprisals
from worker.protocol import KVBlockControls

if TYPE_CHECKING:
    from tests.worker.engine.conftest import LoadTiny, MakeRequest, StartEngine

CONTROLS = KVBlockControls(
    mode="entropy", threshold=1.0, reference_nats=4.0, min_blocks=1, look_every=4, attention_smoothing=0.5
)


def looking_at(*blocks: int, num_blocks: int = 10) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Attention that lies on these blocks in equal parts."""
    attention = np.zeros(16 * num_blocks, np.float32)
    for block in blocks:
        attention[16 * block : 16 * (block + 1)] = 1.0 / (16 * len(blocks))
    return attention


def focused() -> Focus:
    focus = Focus(CONTROLS)
    focus.tell(0, np.full(160, 2.0, np.float32))
    focus.take(0.0)
    return focus


def test_blocks_that_are_looked_at_stay_and_attention_is_smoothed_from_look_to_look() -> None:
    focus = focused()
    focus.look(looking_at(2), num_shared_tokens=0)
    # Blocks 1 and 3 to 5 go, of ten.
    assert focus.kept_share(160) == pytest.approx(0.6)
    focus.look(looking_at(4), num_shared_tokens=0)  # half of it is still on 2
    assert focus.kept_share(160) == pytest.approx(0.7)
    for _ in range(2):
        focus.look(looking_at(4), num_shared_tokens=0)  # an eighth is: below the mean of five
    assert focus.kept_share(160) == pytest.approx(0.6)


def test_what_was_no_surprise_is_not_worth_its_attention() -> None:
    focus = focused()
    focus.tell(32, [0.01] * 16)
    focus.look(looking_at(2, 4), num_shared_tokens=0)
    assert focus.kept_share(160) == pytest.approx(0.6)


def test_where_attention_alone_counts_no_surprise_is_none() -> None:
    focus = Focus(CONTROLS.model_copy(update={"score": "attention"}))
    focus.tell(32, [0.01] * 16)
    focus.take(0.0)
    focus.look(looking_at(2, 4), num_shared_tokens=0)
    assert focus.kept_share(160) == pytest.approx(0.7)
    assert focus.surprisals(3).tolist() == [1.0] * 3


def test_entropy_is_smoothed_and_over_the_reference_nothing_is_dropped() -> None:
    focus = focused()
    focus.look(looking_at(2), num_shared_tokens=0)
    assert focus.is_narrow
    focus.take(9.0)  # 0.7 * 0 + 0.3 * 9 = 2.7
    assert focus.is_narrow
    focus.take(9.0)  # 0.7 * 2.7 + 0.3 * 9 = 4.59
    assert not focus.is_narrow
    assert focus.kept_share(160) == pytest.approx(0.6), "the set is there still"


def test_a_look_is_due_after_so_many_steps() -> None:
    focus = focused()
    focus.look(looking_at(2), num_shared_tokens=0)
    due = []
    for _ in range(4):
        due.append(focus.is_look_due)
        focus.take(1.0)
    assert due == [False, False, False, True]


def test_tokens_that_nobody_told_about_are_no_surprise() -> None:
    focus = Focus(CONTROLS)
    assert focus.surprisals(5).tolist() == [0.0] * 5
    focus.tell(3, [1.5])
    assert focus.surprisals(6).tolist() == [0.0, 0.0, 0.0, 1.5, 0.0, 0.0]


def test_surprisals_of_many_rows_are_those_of_each() -> None:
    logits = torch.randn(70, 11, generator=torch.Generator().manual_seed(0))
    came = [n % 11 for n in range(70)]
    expected = [-float(log_softmax(row, -1)[token]) for row, token in zip(logits, came, strict=True)]
    assert surprisals(logits, came) == pytest.approx(expected, abs=1e-5)


def test_every_token_of_a_prompt_in_chunks_and_of_the_text_is_told(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest, tiny_folder: Path
) -> None:
    from transformers import AutoModelForCausalLM

    from worker.protocol import DecodeControls

    prompt = tuple(range(100, 130))
    running = start_engine(load_tiny(), prefill_chunk=8)
    running.submit(make_request("a", prompt, 6, controls=DecodeControls(kv_blocks=CONTROLS)))
    running.step(4 + 4)  # four chunks, the last of which gives a token
    focus = running.engine._active["a"].focus
    assert focus is not None
    text = torch.tensor([[*prompt, *running.tokens("a")]])
    reference: Any = AutoModelForCausalLM.from_pretrained(str(tiny_folder)).float().eval()
    with torch.inference_mode():
        logprobs = reference(text).logits[0].log_softmax(-1)
    expected = [-float(logprobs[n - 1, text[0, n]]) for n in range(1, 35)]
    assert focus.surprisals(35).tolist() == pytest.approx([0.0, *expected], abs=1e-4)
