"""transformers' ``generate``, held between its steps, so that it can be measured in turn with our engine."""

from __future__ import annotations

import threading
import time
from typing import Any

import torch


class SteppedGenerate:
    """Runs ``generate`` on a thread that waits after every step until the next one is asked for."""

    def __init__(self, model: Any, prompt_ids: torch.Tensor, num_steps: int, num_threads: int) -> None:
        self._model = model
        self._prompt_ids = prompt_ids
        self._num_steps = num_steps
        self._num_threads = num_threads
        self._may_go = threading.Semaphore(0)
        self._has_stepped = threading.Semaphore(0)
        self._error: BaseException | None = None
        self.tokens: torch.Tensor | None = None
        """[batch, prompt + completion], once all steps have been run."""
        self._thread = threading.Thread(target=self._run, name="generate", daemon=True)
        self._thread.start()

    def step(self) -> float:
        """Run one step (the first one reads the prompt) and return its CPU seconds, all threads together."""
        start = time.process_time()
        self._may_go.release()
        self._has_stepped.acquire()
        spent = time.process_time() - start
        if self._error is not None:
            raise self._error
        return spent

    def finish(self) -> None:
        """Let it return after its last step."""
        self._may_go.release()
        self._thread.join()

    def _run(self) -> None:
        try:
            torch.set_num_threads(self._num_threads)
            self._may_go.acquire()
            with torch.inference_mode():
                self.tokens = self._model.generate(
                    self._prompt_ids,
                    attention_mask=torch.ones_like(self._prompt_ids),
                    do_sample=False,
                    max_new_tokens=self._num_steps,
                    min_new_tokens=self._num_steps,
                    pad_token_id=0,
                    stopping_criteria=[self._pause],
                )
        except BaseException as error:  # noqa: BLE001 - handed to the thread that measures
            self._error = error
            self._has_stepped.release()

    def _pause(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        self._has_stepped.release()
        self._may_go.acquire()
        return torch.zeros(input_ids.shape[0], dtype=torch.bool)
