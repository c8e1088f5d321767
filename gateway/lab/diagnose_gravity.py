"""Over-strong gravity: the pull chooses, not the model."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.lab.diagnose_case import Case, Finding, SettingChange, StepPlace, is_told, mean_entropy, places
from worker.protocol import StepRecord

STRONG_NATS = 1.0
STRONG_SHARE = 0.1
MIN_STRONG_STEPS = 3
STABLE_SHARE = 0.5
GENTLE_NATS = 0.3


def strong_gravity(case: Case) -> Iterator[Finding]:
    """Pseudo-stability: H after the pull is far below H before it, since the pull chooses, not the model."""
    gravity = case.controls.gravity
    if gravity is None:
        return
    found: list[StepPlace] = []
    pulled: list[StepRecord] = []
    for answer in case.answers:
        numbers = [n for n, step in enumerate(answer.steps) if step.bias_nats >= STRONG_NATS]
        if len(numbers) >= max(MIN_STRONG_STEPS, STRONG_SHARE * len(answer.steps)):
            found += places(answer.choice, numbers)
            pulled += [answer.steps[number] for number in numbers]
    if not pulled:
        return
    before, after = mean_entropy(pulled), sum(step.entropy_after_nats for step in pulled) / len(pulled)
    num_bound = sum(step.bias_nats >= 0.95 * gravity.max_bias_nats for step in pulled)
    num_repeated = len(pulled) - len({step.token_id for step in pulled}) if is_told(pulled) else 0
    num_settled = sum(_is_settled(step) for step in pulled)
    if max(num_settled, num_bound, num_repeated) < len(pulled) / 2:
        return
    largest = max(step.bias_nats for step in pulled)
    at_bound = f", {num_bound} times at its bound" if num_bound else ""
    again = f"; {num_repeated} of these tokens had been pulled in before" if num_repeated else ""
    yield Finding(
        "sampling",
        "over-strong gravity",
        f"{len(pulled)} of {case.num_steps} tokens were pulled in with up to {largest:.1f} nats{at_bound}; "
        f"H fell from {before:.2f} to {after:.2f} nats there: the pull chose, not the model{again}.",
        tuple(found),
        _gentler(case, gravity.strength, largest),
        weight=len(pulled) / case.num_steps,
    )


def _gentler(case: Case, strength: float, largest_nats: float) -> SettingChange:
    gentle = strength * GENTLE_NATS / largest_nats
    return SettingChange(case.path("gravity_strength"), strength, max(0.1, round(gentle, 1)))


def _is_settled(step: StepRecord) -> bool:
    # Nothing is left of H where nothing is drawn, whatever pulls.
    return step.temperature > 0.0 and step.entropy_after_nats <= STABLE_SHARE * step.entropy_nats
