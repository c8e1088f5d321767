"""Our engine, stepped by hand on a batch of equal prompts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from worker.decode.controller import Decider
from worker.engine.engine import Engine, EngineOptions
from worker.engine.loading import LoadedModel
from worker.engine.request import EngineEvent, GenerationRequest, RequestFailed, SamplingParams, StepOutput

PREFILL_CHUNK = 512


@dataclass(slots=True)
class SteppedEngine:
    """A batch that decodes greedily, observed as in service. Slots of the model must be free."""

    loaded: LoadedModel
    decider: Decider
    engine: Engine = field(init=False)
    outputs: dict[str, list[StepOutput]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.engine = Engine(
            self.loaded.model, self.decider, self.loaded.eos_ids, EngineOptions(PREFILL_CHUNK)
        )

    def begin(self, prompts: Sequence[tuple[int, ...]], num_steps: int) -> None:
        """Submit the prompts and read them, up to the first token of each."""
        for index, prompt in enumerate(prompts):
            sampling = SamplingParams(num_steps, temperature=0.0, ignore_eos=True)
            request = GenerationRequest(f"bench-{index}", prompt, sampling)
            self.outputs[request.id] = []
            self.engine.submit(request, self.engine.open(request), self._take)
        while not all(self.outputs.values()):
            self.engine.step()

    def step(self) -> float:
        """Run one step of the whole batch and return its CPU seconds, all threads together."""
        start = time.process_time()
        self.engine.step()
        return time.process_time() - start

    def finish(self) -> None:
        """Free the slots."""
        for request_id in self.outputs:
            self.engine.cancel(request_id)

    def _take(self, event: EngineEvent) -> None:
        if isinstance(event, RequestFailed):
            raise RuntimeError(f"the engine failed a request of the benchmark: {event.message}")
        self.outputs[event.request_id].append(event)
