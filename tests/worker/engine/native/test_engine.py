"""With native kernels a text's numbers do not depend on its company: the real model, bf16 and int8."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from worker.engine.model import LanguageModel
from worker.engine.native.kernels import native_kernels
from worker.engine.request import StepOutput
from worker.protocol import AdaptiveControls, DecodeControls, GravityControls, SpeculationControls

if TYPE_CHECKING:
    from tests.worker.engine.conftest import LoadModelFolder, MakeRequest, RunningEngine, StartEngine

NATIVE = native_kernels()
pytestmark = pytest.mark.skipif(NATIVE is None or not NATIVE.has_int8, reason="no native kernels here")

NUM_TOKENS = 16
PROMPTS = (
    "The ferry is called Solveig. The ferry Solveig carries forty cars. The ferry",
    "Once a year the river floods the valley, and",
    "The bridge was built of stone. " * 8 + "It",
    '{"city": "Oslo", "population":',
    "x",
    "Nobody knew why the door was open. " * 14 + "Then",
    "Dear Ms Larsen,\n\nThank you for",
    "1, 2, 4, 8, 16,",
)
CONTROLS = DecodeControls(adaptive=AdaptiveControls(), gravity=GravityControls(keywords=("stone", "river")))


@pytest.fixture(scope="module", params=["full", "int8"])
def weights(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def model(weights: str, model_path: Path, load_model_folder: LoadModelFolder) -> LanguageModel:
    loaded = load_model_folder(
        model_path, dtype="bf16", weights=weights, max_batch=len(PROMPTS), max_context=256, prefix_tokens=0
    )
    assert loaded.kernels == "native"
    return loaded


def told(running: RunningEngine, name: str) -> list[tuple[int, float, float]]:
    """Token, H and logprob of every step, to the last bit."""
    outputs = [e for e in running.events if isinstance(e, StepOutput) and e.request_id == name]
    return [(each.token_id, each.record.entropy_nats, each.record.logprob) for each in outputs]


@pytest.fixture(scope="module")
def alone(
    model: LanguageModel, tokenizer: Any, start_engine: StartEngine, make_request: MakeRequest
) -> list[list[tuple[int, float, float]]]:
    running = start_engine(model)
    for index, prompt in enumerate(PROMPTS):
        running.submit(request_of(make_request, tokenizer, index, prompt))
        running.run()
    assert running.failures() == {}
    return [told(running, str(index)) for index in range(len(PROMPTS))]


def request_of(
    make_request: MakeRequest, tokenizer: Any, index: int, prompt: str, controls: DecodeControls = CONTROLS
) -> Any:
    return make_request(
        str(index),
        tokenizer.encode(prompt),
        NUM_TOKENS,
        controls=controls,
        sampling={"temperature": 0.9, "seed": index},
    )


@pytest.mark.parametrize("prefill_chunk", [256, 16])
def test_company_and_the_size_of_chunks_change_no_bit(
    prefill_chunk: int,
    model: LanguageModel,
    alone: list[list[tuple[int, float, float]]],
    tokenizer: Any,
    start_engine: StartEngine,
    make_request: MakeRequest,
) -> None:
    running = start_engine(model, prefill_chunk=prefill_chunk)
    running.submit(*(request_of(make_request, tokenizer, i, prompt) for i, prompt in enumerate(PROMPTS)))
    running.run()
    assert [told(running, str(index)) for index in range(len(PROMPTS))] == alone


def test_who_is_put_out_and_read_again_says_the_same(
    model: LanguageModel,
    alone: list[list[tuple[int, float, float]]],
    tokenizer: Any,
    start_engine: StartEngine,
    make_request: MakeRequest,
) -> None:
    running = start_engine(model, kv_tokens=256)
    running.submit(*(request_of(make_request, tokenizer, i, prompt) for i, prompt in enumerate(PROMPTS)))
    running.run()
    assert running.engine.stats().preemptions > 0
    assert [told(running, str(index)) for index in range(len(PROMPTS))] == alone


def test_drafts_change_no_bit_at_any_temperature(
    model: LanguageModel,
    alone: list[list[tuple[int, float, float]]],
    tokenizer: Any,
    start_engine: StartEngine,
    make_request: MakeRequest,
) -> None:
    drafting = CONTROLS.model_copy(update={"speculation": SpeculationControls(mode="fixed", max_draft=3)})
    running = start_engine(model)
    for index, prompt in enumerate(PROMPTS):
        running.submit(request_of(make_request, tokenizer, index, prompt, drafting))
        running.run()
    assert running.engine.stats().accepted > 0
    assert [told(running, str(index)) for index in range(len(PROMPTS))] == alone
