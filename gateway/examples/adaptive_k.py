"""Adaptive k: few candidates where the model is sure, many where it is not.

k = k_min + (k_max - k_min) * s at every step, s = H / ln V, with no smoothing. An open prompt keeps the
entropy high and k moving; a prompt for JSON keeps it low and k near k_min.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from rich.console import Console

from gateway.examples.laboratory import Completion, Laboratory, Sampling
from gateway.trace.table import print_steps
from worker.protocol import AdaptiveControls, DecodeControls

CONTROLS = DecodeControls(
    adaptive=AdaptiveControls(k_min=3, k_max=40, s_low=0.0, s_high=1.0, curve="linear", smoothing=0.0)
)
PROMPTS: Mapping[str, str] = {
    "open": "What happened next, nobody in the village could explain:",
    "json": (
        "Cities as JSON, one object a line:\n"
        '{"city": "Lisbon", "country": "Portugal", "continent": "Europe"}\n'
        '{"city": "Oslo", "country": "Norway", "continent": "Europe"}\n'
        '{"city":'
    ),
}
SEED = 2


@dataclass(frozen=True, slots=True)
class Profile:
    """Means over the steps of one answer."""

    mean_entropy_nats: float
    mean_normalised_entropy: float
    mean_k: float

    @classmethod
    def of(cls, completion: Completion) -> Profile:
        steps = completion.steps
        return cls(
            fmean(step.entropy_nats for step in steps),
            fmean(step.normalised_entropy for step in steps),
            fmean(step.k for step in steps),
        )


async def run(laboratory: Laboratory, *, max_tokens: int = 40, seed: int = SEED) -> Mapping[str, Completion]:
    """Return the answer to each prompt, by the prompt's name."""
    sampling = Sampling(max_tokens=max_tokens, seed=seed)
    return {
        name: (await laboratory.complete(prompt, sampling, CONTROLS))[0] for name, prompt in PROMPTS.items()
    }


def show(console: Console, completions: Mapping[str, Completion]) -> None:
    """Print step, H, G and k of each answer, and the means."""
    for name, completion in completions.items():
        console.rule(f"{name} prompt")
        console.print(PROMPTS[name], style="bold", markup=False, end="")
        console.print(completion.text, markup=False)
        console.print()
        print_steps(console, completion.steps, completion.tokens)
        profile = Profile.of(completion)
        console.print(
            f"\nmean H {profile.mean_entropy_nats:.2f} nats, mean s {profile.mean_normalised_entropy:.3f}, "
            f"mean k {profile.mean_k:.1f}\n"
        )
