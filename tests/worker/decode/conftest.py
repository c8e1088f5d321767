"""Deciders over the real vocabulary, and one-step decisions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from worker.decode.controller import Decider, Decision, StepContext
from worker.decode.vocabulary import Vocabulary
from worker.engine.request import GenerationRequest, SamplingParams
from worker.protocol import DecodeControls


class MakeRequest(Protocol):
    """A request with these sampling parameters, controls and other fields; the prompt is three tokens."""

    def __call__(
        self, *, controls: DecodeControls | None = None, fields: dict[str, Any] | None = None, **sampling: Any
    ) -> GenerationRequest: ...


class DecideAlone(Protocol):
    """Runs one request over rows of logits [N, V], in a batch of one, and returns every decision."""

    def __call__(
        self, rows: NDArray[np.float32], request: GenerationRequest, *, dtype: torch.dtype = torch.float32
    ) -> list[Decision]: ...


@pytest.fixture(scope="session")
def decider(vocabulary: Vocabulary, output_embedding: torch.Tensor) -> Decider:
    return Decider(vocabulary, output_embedding)


@pytest.fixture(scope="session")
def make_request() -> MakeRequest:
    def make(
        *, controls: DecodeControls | None = None, fields: dict[str, Any] | None = None, **sampling: Any
    ) -> GenerationRequest:
        given: dict[str, Any] = {"id": "test", "prompt_ids": (1, 2, 3), **(fields or {})}
        return GenerationRequest(
            sampling=SamplingParams(**{"max_tokens": 100, **sampling}),
            controls=controls or DecodeControls(),
            **given,
        )

    return make


@pytest.fixture(scope="session")
def decide_alone(decider: Decider) -> DecideAlone:
    def decide(
        rows: NDArray[np.float32], request: GenerationRequest, *, dtype: torch.dtype = torch.float32
    ) -> list[Decision]:
        state = decider.open(request)
        decisions: list[Decision] = []
        for step, row in enumerate(rows):
            outcomes: Sequence[Any] = decider.decide(
                torch.tensor(row[None]).to(dtype), [state], StepContext(engine_step=step, batch_size=1)
            )
            assert isinstance(outcomes[0], Decision), outcomes[0]
            decisions.append(outcomes[0])
        return decisions

    return decide
