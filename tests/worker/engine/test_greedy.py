"""The real model in float32: what a running batch says equals what transformers says of each prompt alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from worker.engine.model import LanguageModel
from worker.protocol import DecodeControls, KVBlockControls, SpeculationControls

if TYPE_CHECKING:
    from tests.worker.engine.conftest import LoadModelFolder, MakeRequest, StartEngine

NUM_TOKENS = 8

PROMPTS = (
    "Rain",
    "The capital of France is",
    "def quicksort(items):\n    ",
    "In the beginning there was",
    "Water boils at a temperature of",
    '{"city": "Oslo", "population":',
    "The keeper of the lighthouse looked out over the sea and",
    "1, 2, 4, 8, 16,",
    "Bread is made of flour, water, salt and",
    "The first person to walk on the moon was",
    "SELECT name, age FROM users WHERE",
    "My grandmother always told me that",
    "Light travels faster than",
    "import numpy as np\n\ndef mean(values):",
    "Dear Ms Larsen,\n\nThank you for",
    "The committee met on Monday. " * 3 + "On Tuesday it",
    "Once a year the river floods the valley, and",
    "<html><head><title>",
    "Trees lose their leaves in autumn because",
    "A list of colours: red, green,",
    "The bridge was built of stone. " * 8 + "It",
    "Nobody knew why the door was open. " * 14 + "Then",
    "Der Zug nach Berlin",
    "x",
)


@pytest.fixture(scope="module")
def prompts(tokenizer: Any) -> list[list[int]]:
    encoded = [tokenizer.encode(prompt) for prompt in PROMPTS]
    assert len({len(ids) for ids in encoded}) >= 12
    return encoded


@pytest.fixture(scope="module")
def expected(prompts: list[list[int]], language_model: Any) -> list[list[int]]:
    """What ``generate`` continues each prompt with, alone."""
    continuations = []
    for ids in prompts:
        with torch.inference_mode():
            output = language_model.generate(
                torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                max_new_tokens=NUM_TOKENS,
                min_new_tokens=NUM_TOKENS,
                do_sample=False,
                pad_token_id=2,
            )
        continuations.append(output[0, len(ids) :].tolist())
    return continuations


@pytest.fixture(scope="module")
def model(model_path: Path, load_model_folder: LoadModelFolder) -> LanguageModel:
    return load_model_folder(model_path, max_batch=len(PROMPTS), max_context=192)


def test_24_prompts_decoded_in_one_batch_equal_generate(
    model: LanguageModel,
    prompts: list[list[int]],
    expected: list[list[int]],
    start_engine: StartEngine,
    make_request: MakeRequest,
) -> None:
    running = start_engine(model)
    running.submit(*(make_request(str(i), ids, NUM_TOKENS) for i, ids in enumerate(prompts)))
    running.run()
    assert {i: running.tokens(str(i)) for i in range(len(prompts))} == dict(enumerate(expected))


def test_requests_that_join_and_leave_with_chunked_prompts_equal_generate(
    model_path: Path,
    load_model_folder: LoadModelFolder,
    prompts: list[list[int]],
    expected: list[list[int]],
    start_engine: StartEngine,
    make_request: MakeRequest,
) -> None:
    few_slots = load_model_folder(model_path, max_batch=5, max_context=192)
    running = start_engine(few_slots, prefill_chunk=16)
    # Different lengths, so that they leave at different steps and holes open between the slots.
    wanted = [NUM_TOKENS - i % 5 for i in range(len(prompts))]
    running.submit(
        *(make_request(str(i), ids, n) for i, (ids, n) in enumerate(zip(prompts, wanted, strict=True)))
    )
    running.run()
    for i, (tokens, n) in enumerate(zip(expected, wanted, strict=True)):
        assert running.tokens(str(i)) == tokens[:n], PROMPTS[i]
        assert running.finish(str(i)) == ["length"]


def test_with_everything_on_it_still_equals_generate(
    model_path: Path,
    load_model_folder: LoadModelFolder,
    prompts: list[list[int]],
    expected: list[list[int]],
    start_engine: StartEngine,
    make_request: MakeRequest,
) -> None:
    drafting = DecodeControls(speculation=SpeculationControls(mode="entropy"))
    choosing = DecodeControls(kv_blocks=KVBlockControls(mode="entropy", threshold=0.0, look_every=2))
    everything = (drafting, choosing, DecodeControls())
    crowded = load_model_folder(model_path, max_batch=8, max_context=192, prefix_tokens=640)
    running = start_engine(crowded, prefill_chunk=32, policy="entropic", kv_tokens=320)
    # Everybody comes twice: the second time others' blocks are there, and another control is on.
    for again in range(2):
        running.submit(
            *(
                make_request(f"{i} {again}", ids, NUM_TOKENS, controls=everything[(i + again) % 3])
                for i, ids in enumerate(prompts)
            )
        )
    running.run()
    for i, tokens in enumerate(expected):
        assert running.tokens(f"{i} 0") == running.tokens(f"{i} 1") == tokens, PROMPTS[i]
    stats = running.engine.stats()
    assert stats.preemptions > 0
    assert stats.prefix_found > 0
    assert stats.drafted >= stats.accepted > 0
    assert (stats.running, stats.waiting, stats.kv_used) == (0, 0, 0)
