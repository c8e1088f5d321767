"""Over-strong gravity: the pull chooses, not the model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from gateway.lab.diagnosis.case import Case, Finding, SettingChange, StepPlace, is_told, mean_entropy, places
from worker.protocol import StepRecord

STRONG_NATS = 1.0
EVEN_LOGPROB = math.log(0.5)
STRONG_SHARE = 0.05
MIN_STRONG_STEPS = 3
GENTLE_NATS = 0.3


def strong_gravity(case: Case) -> Iterator[Finding]:
    """Pseudo-stability: H after the pull lies far below H before it, and not because the model is sure."""
    gravity = case.controls.gravity
    if gravity is None:
        return
    found: list[StepPlace] = []
    pulled: list[StepRecord] = []
    for answer in case.answers:
        numbers = [number for number, step in enumerate(answer.steps) if _is_chosen_by_pull(step)]
        if len(numbers) >= max(MIN_STRONG_STEPS, STRONG_SHARE * len(answer.steps)):
            found += places(answer.choice, numbers)
            pulled += [answer.steps[number] for number in numbers]
    if not pulled:
        return
    largest = max(step.bias_nats for step in pulled)
    yield Finding(
        "sampling",
        "over-strong gravity",
        f"{len(pulled)} of {case.num_steps} tokens, to which the model itself gave less than 50 %, were "
        f"pulled in with up to {largest:.1f} nats{_how(pulled, gravity.max_bias_nats)}.",
        tuple(found),
        _gentler(case, gravity.strength, largest),
        weight=len(pulled) / case.num_steps,
    )


def _is_chosen_by_pull(step: StepRecord) -> bool:
    return step.bias_nats >= STRONG_NATS and step.logprob < EVEN_LOGPROB


def _how(pulled: Sequence[StepRecord], max_bias_nats: float) -> str:
    """Say what else is typical of it: H pressed down, the bias at its bound, the same words again."""
    parts = []
    drawn = [step for step in pulled if step.temperature > 0.0]
    if drawn:  # where nothing is drawn nothing is left of H, whatever pulls
        after = sum(step.entropy_after_nats for step in drawn) / len(drawn)
        parts.append(f"H there fell from {mean_entropy(drawn):.2f} to {after:.2f} nats")
    num_bound = sum(step.bias_nats >= 0.95 * max_bias_nats for step in pulled)
    if num_bound:
        parts.append(f"the bias was at its bound {num_bound} times")
    num_repeated = len(pulled) - len({step.token_id for step in pulled})
    if num_repeated and is_told(pulled):
        parts.append(f"{num_repeated} of them had been pulled in before")
    return "".join(f"; {part}" for part in parts)


def _gentler(case: Case, strength: float, largest_nats: float) -> SettingChange:
    gentle = strength * GENTLE_NATS / largest_nats
    return SettingChange(case.path("gravity_strength"), strength, max(0.1, round(gentle, 1)))
