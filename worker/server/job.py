"""What one HTTP request asks of the engine."""

from __future__ import annotations

from dataclasses import dataclass

from worker.engine.request import GenerationRequest, SamplingParams
from worker.protocol import DecodeControls

Prompt = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """``num_choices`` samples of every prompt; the index of a choice counts through all of them."""

    id: str
    prompts: tuple[Prompt, ...]
    num_choices: int
    sampling: SamplingParams
    controls: DecodeControls = DecodeControls()
    stop: tuple[str, ...] = ()

    def requests(self) -> list[GenerationRequest]:
        """One request for every choice. Sample i of n draws from (seed, i), whatever the prompt's place."""
        return [
            GenerationRequest(
                id=f"{self.id}:{place * self.num_choices + sample}",
                prompt_ids=prompt,
                sampling=self.sampling,
                controls=self.controls,
                choice=sample,
            )
            for place, prompt in enumerate(self.prompts)
            for sample in range(self.num_choices)
        ]

    @property
    def num_prompt_tokens(self) -> int:
        return sum(len(prompt) for prompt in self.prompts)
