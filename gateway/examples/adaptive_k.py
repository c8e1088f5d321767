"""Adaptive k: few candidates where the model is sure, many where it is not.

k = k_min + (k_max - k_min) * s at every step, s = H / ln V, with no smoothing. An open prompt keeps the
entropy high and k moving; a prompt for JSON keeps it low and k near k_min.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


@dataclass(frozen=True, slots=True)
class Profile:
    """Means over the steps of some answers."""

    mean_entropy_nats: float
    mean_normalised_entropy: float
    mean_k: float

    @classmethod
    def of(cls, answers: Sequence[Completion]) -> Profile:
        steps = [step for answer in answers for step in answer.steps]
        return cls(
            fmean(step.entropy_nats for step in steps),
            fmean(step.normalised_entropy for step in steps),
            fmean(step.k for step in steps),
        )


async def run(laboratory: Laboratory, sampling: Sampling) -> Mapping[str, tuple[Completion, ...]]:
    """Return the answers to each prompt, by the prompt's name."""
    return {name: await laboratory.complete(prompt, sampling, CONTROLS) for name, prompt in PROMPTS.items()}


def show(console: Console, completions: Mapping[str, tuple[Completion, ...]]) -> None:
    """Print step, H, G and k of the first answer to each prompt, and the means over all of them."""
    for name, answers in completions.items():
        console.rule(f"{name} prompt")
        console.print(PROMPTS[name], style="bold", markup=False, end="")
        console.print(answers[0].text, markup=False)
        console.print()
        print_steps(console, answers[0].steps, answers[0].tokens)
        profile = Profile.of(answers)
        console.print(
            f"\nmean H {profile.mean_entropy_nats:.2f} nats, mean s {profile.mean_normalised_entropy:.3f}, "
            f"mean k {profile.mean_k:.1f}\n"
        )
