"""Runs the engine on a thread of its own. Requests come in, and events go out, between steps."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from typing import Any

import torch

from worker.decode.controller import Decider
from worker.decode.vocabulary import Vocabulary
from worker.engine.engine import Emit, Engine, EngineOptions, EngineStats
from worker.engine.heap import Heap
from worker.engine.linear import KernelsName
from worker.engine.loading import EngineSettings, LoadedModel, load_model
from worker.engine.precision import WeightFormat
from worker.engine.request import GenerationRequest
from worker.thermo.entropic_time import StepCost

__all__ = ["EngineLoop", "EngineSettings"]

log = logging.getLogger(__name__)

Command = Callable[[], None]


class EngineLoop:
    """The engine for other threads."""

    def __init__(self, loaded: LoadedModel, settings: EngineSettings) -> None:
        self._loaded = loaded
        self.settings = settings
        decider = Decider(loaded.vocabulary, loaded.model.output_embedding)
        options = EngineOptions(
            settings.prefill_chunk, settings.policy, settings.kv_tokens, settings.max_draft
        )
        self._engine = Engine(loaded.model, decider, loaded.eos_ids, options)
        self._heap = Heap()
        self._commands: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @classmethod
    def load(cls, settings: EngineSettings) -> EngineLoop:
        """Load the model and reserve its memory. ``start`` begins to serve."""
        return cls(load_model(settings), settings)

    @property
    def vocabulary(self) -> Vocabulary:
        return self._loaded.vocabulary

    @property
    def tokenizer(self) -> Any:
        """The transformers tokenizer."""
        return self._loaded.tokenizer

    @property
    def model_name(self) -> str:
        return self._loaded.name

    @property
    def max_context(self) -> int:
        return self._loaded.model.max_context

    @property
    def dtype(self) -> str:
        """``bf16`` or ``fp32``."""
        return "bf16" if self._loaded.model.dtype == torch.bfloat16 else "fp32"

    @property
    def weight_format(self) -> WeightFormat:
        """``full``: as the dtype has them; ``int8``: rounded further."""
        return self.settings.weights

    @property
    def large_products_dtype(self) -> str:
        """What prompts and large batches are multiplied in."""
        if self.settings.weights == "int8":
            return "int8"
        return "fp32" if self._loaded.model.widens_products else self.dtype

    @property
    def kernels(self) -> KernelsName:
        """Whose products and attention are computed with."""
        return self._loaded.model.kernels

    @property
    def step_cost(self) -> StepCost:
        return self._loaded.model.step_cost

    @property
    def num_slots(self) -> int:
        return self._loaded.model.num_slots

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the step that runs. What was not finished gets no more events."""
        self._commands.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def submit(self, request: GenerationRequest, emit: Emit) -> None:
        """Queue a request; ``emit`` is called on the engine's thread. Raises RequestError with the reason."""
        state = self._engine.open(request)
        self._commands.put(lambda: self._engine.submit(request, state, emit))

    def cancel(self, request_id: str) -> None:
        """Forget a request before the next step. Idempotent."""
        self._commands.put(lambda: self._engine.cancel(request_id))

    def stats(self) -> EngineStats:
        return self._engine.stats()

    def _run(self) -> None:
        torch.set_num_threads(self.settings.num_threads)
        with torch.inference_mode():
            while self._obey():
                self._engine.step()
                self._heap.between_steps()
        log.info("engine stopped")

    def _obey(self) -> bool:
        """Carry out what others asked for, waiting where there is nothing else to do. False ends the loop."""
        while True:
            is_idle = not self._engine.has_work
            if is_idle:
                self._heap.before_waiting()
            try:
                command = self._commands.get(block=is_idle)
            except queue.Empty:
                return True
            if command is None:
                return False
            command()
