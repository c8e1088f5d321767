"""Tiny random models of every architecture, the real small model, and engines over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedConfig

from worker.decode.controller import Decider
from worker.decode.vocabulary import Vocabulary
from worker.engine.engine import DecidesTokens, Engine, EngineOptions
from worker.engine.loading import EngineSettings, load_language_model
from worker.engine.model import LanguageModel
from worker.engine.request import EngineEvent, GenerationRequest, RequestFailed, SamplingParams, StepOutput

EOS_ID = 2


class SaveModel(Protocol):
    """Saves a random model of this config to a folder of its own and returns both."""

    def __call__(self, config: PreTrainedConfig, *, max_shard_size: str = "5GB") -> tuple[Path, Any]: ...


class MakeRequest(Protocol):
    """A greedy request that ignores EOS unless told otherwise."""

    def __call__(
        self, name: str, prompt_ids: Sequence[int], max_tokens: int = 4, **fields: Any
    ) -> GenerationRequest: ...


@dataclass(slots=True)
class RunningEngine:
    """An engine and every event it has emitted so far."""

    engine: Engine
    events: list[EngineEvent] = field(default_factory=list)

    def submit(self, *requests: GenerationRequest) -> None:
        for request in requests:
            self.engine.submit(request, self.engine.open(request), self.events.append)

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.engine.step()

    def run(self, max_steps: int = 1000) -> None:
        """Step until nothing is left to do."""
        for _ in range(max_steps):
            if not self.engine.has_work:
                return
            self.engine.step()
        pytest.fail(f"the engine still has work after {max_steps} steps")

    def tokens(self, name: str) -> list[int]:
        return [e.token_id for e in self.events if isinstance(e, StepOutput) and e.request_id == name]

    def finish(self, name: str) -> list[str]:
        """Every finish reason that the request was given; of a right engine never more than one."""
        outputs = [e for e in self.events if isinstance(e, StepOutput) and e.request_id == name]
        return [output.finish_reason for output in outputs if output.finish_reason]

    def failures(self) -> dict[str, str]:
        return {e.request_id: e.message for e in self.events if isinstance(e, RequestFailed)}


class StartEngine(Protocol):
    """An engine over a model; the decider is the real one unless another is given."""

    def __call__(
        self, model: LanguageModel, *, decider: DecidesTokens | None = None, **options: Any
    ) -> RunningEngine: ...


@pytest.fixture(scope="session")
def save_model(tmp_path_factory: pytest.TempPathFactory) -> SaveModel:
    def save(config: PreTrainedConfig, *, max_shard_size: str = "5GB") -> tuple[Path, Any]:
        torch.manual_seed(0)
        reference = AutoModelForCausalLM.from_config(config).float().eval()
        with torch.no_grad():
            for name, weight in reference.named_parameters():
                if weight.dim() == 1:  # norms begin as ones and biases as zeros, which would hide mistakes
                    weight.normal_(1.0 if "norm" in name or "ln" in name else 0.0, 0.2)
        folder = tmp_path_factory.mktemp(config.model_type)
        reference.save_pretrained(folder, max_shard_size=max_shard_size)
        return folder, reference

    return save


@pytest.fixture(scope="session")
def tiny_folder(save_model: SaveModel, vocabulary: Vocabulary) -> Path:
    """A Llama with the real vocabulary and hardly anything else, its head its own."""
    config = LlamaConfig(
        vocab_size=vocabulary.size,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        eos_token_id=EOS_ID,
        tie_word_embeddings=False,
        initializer_range=0.5,
    )
    return save_model(config)[0]


class LoadTiny(Protocol):
    """The tiny Llama in float32, with slots of its own."""

    def __call__(self, *, num_slots: int = 4, max_context: int = 64, **settings: Any) -> LanguageModel: ...


@pytest.fixture(scope="session")
def load_tiny(tiny_folder: Path, load_model_folder: LoadModelFolder) -> LoadTiny:
    def load(*, num_slots: int = 4, max_context: int = 64, **settings: Any) -> LanguageModel:
        return load_model_folder(tiny_folder, max_batch=num_slots, max_context=max_context, **settings)

    return load


class LoadModelFolder(Protocol):
    """Loads a folder's weights, float32 unless told otherwise."""

    def __call__(self, folder: Path, **settings: Any) -> LanguageModel: ...


@pytest.fixture(scope="session")
def load_model_folder() -> LoadModelFolder:
    from transformers import AutoConfig

    def load(folder: Path, **settings: Any) -> LanguageModel:
        config = AutoConfig.from_pretrained(str(folder))
        return load_language_model(EngineSettings(folder, **{"dtype": "fp32", **settings}), config)

    return load


@pytest.fixture(scope="session")
def decider(vocabulary: Vocabulary) -> Decider:
    return Decider(vocabulary)


@pytest.fixture(scope="session")
def start_engine(decider: Decider) -> StartEngine:
    real = decider

    def start(model: LanguageModel, *, decider: DecidesTokens | None = None, **options: Any) -> RunningEngine:
        return RunningEngine(Engine(model, decider or real, frozenset({EOS_ID}), EngineOptions(**options)))

    return start


@pytest.fixture(scope="session")
def make_request() -> MakeRequest:
    def make(name: str, prompt_ids: Sequence[int], max_tokens: int = 4, **fields: Any) -> GenerationRequest:
        sampling = {"temperature": 0.0, "ignore_eos": True, **fields.pop("sampling", {})}
        return GenerationRequest(
            name, tuple(prompt_ids), SamplingParams(max_tokens=max_tokens, **sampling), **fields
        )

    return make
