"""With native kernels a text's numbers do not depend on its company: the real model, bf16 and int8."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Asker:
    """Sends all prompts to engines over one model."""

    model: LanguageModel
    tokenizer: Any
    start_engine: StartEngine
    make_request: MakeRequest

    def ask(
        self, *, together: bool, controls: DecodeControls = CONTROLS, **options: Any
    ) -> tuple[RunningEngine, list[list[tuple[int, float, float]]]]:
        """Return the engine, and for each prompt token, H and logprob of every step, to the last bit."""
        running = self.start_engine(self.model, **options)
        for index, prompt in enumerate(PROMPTS):
            running.submit(
                self.make_request(
                    str(index),
                    self.tokenizer.encode(prompt),
                    NUM_TOKENS,
                    controls=controls,
                    sampling={"temperature": 0.9, "seed": index},
                )
            )
            if not together:
                running.run()
        running.run()
        assert running.failures() == {}
        return running, [told(running, str(index)) for index in range(len(PROMPTS))]


def told(running: RunningEngine, name: str) -> list[tuple[int, float, float]]:
    outputs = [e for e in running.events if isinstance(e, StepOutput) and e.request_id == name]
    return [(each.token_id, each.record.entropy_nats, each.record.logprob) for each in outputs]


@pytest.fixture(scope="module")
def asker(
    model: LanguageModel, tokenizer: Any, start_engine: StartEngine, make_request: MakeRequest
) -> Asker:
    return Asker(model, tokenizer, start_engine, make_request)


@pytest.fixture(scope="module")
def alone(asker: Asker) -> list[list[tuple[int, float, float]]]:
    _, steps = asker.ask(together=False)
    assert [len(each) for each in steps] == [NUM_TOKENS] * len(PROMPTS)
    return steps


@pytest.mark.parametrize("prefill_chunk", [256, 16])
def test_company_and_the_size_of_chunks_change_no_bit(
    prefill_chunk: int, asker: Asker, alone: list[list[tuple[int, float, float]]]
) -> None:
    _, steps = asker.ask(together=True, prefill_chunk=prefill_chunk)
    assert steps == alone


def test_who_is_put_out_and_read_again_says_the_same(
    asker: Asker, alone: list[list[tuple[int, float, float]]]
) -> None:
    running, steps = asker.ask(together=True, kv_tokens=256)
    assert running.engine.stats().preemptions > 0
    assert steps == alone


def test_drafts_change_no_bit_at_any_temperature(
    asker: Asker, alone: list[list[tuple[int, float, float]]]
) -> None:
    drafting = CONTROLS.model_copy(update={"speculation": SpeculationControls(mode="fixed", max_draft=3)})
    running, steps = asker.ask(together=False, controls=drafting)
    assert running.engine.stats().accepted > 0
    assert steps == alone
