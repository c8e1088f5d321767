"""Loops: what was said is said again, and again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

from gateway.lab.diagnosis.case import Case, Finding, SettingChange, is_told, places
from gateway.lab.repetition import rep_n
from worker.protocol import StepRecord

LOOP_STEPS = 12
LOOP_SHARE = 0.2
PULLED_SHARE = 0.25


def loops(case: Case) -> Iterator[Finding]:
    """A stretch of tokens that says what was said twice before, with the model sure of it."""
    for answer in case.answers:
        numbers = _repeated(answer.steps)
        if len(numbers) < LOOP_SHARE * len(answer.steps) or _longest_run(numbers) < LOOP_STEPS:
            continue
        steps = [answer.steps[number] for number in numbers]
        share = rep_n([str(step.token_id) for step in answer.steps], 4)
        yield Finding(
            "sampling",
            "loop",
            f"{len(numbers)} of {len(answer.steps)} tokens end four in a row that came at least twice before "
            f"(rep-4 {share:.0%}), {_longest_run(numbers)} of them on end; {_sure(case, steps)}.",
            tuple(places(answer.choice, numbers)),
            _unlooped(case, steps),
            weight=len(numbers) / len(answer.steps),
        )
        return


def _repeated(steps: Sequence[StepRecord]) -> list[int]:
    """Return the steps that end a 4-gram of tokens which was there at least twice before."""
    if not is_told(steps):
        return []
    seen: Counter[tuple[int, ...]] = Counter()
    found = []
    for number in range(3, len(steps)):
        gram = tuple(step.token_id for step in steps[number - 3 : number + 1])
        if seen[gram] >= 2:
            found.append(number)
        seen[gram] += 1
    return found


def _longest_run(numbers: Sequence[int]) -> int:
    longest = length = 0
    for place, number in enumerate(numbers):
        length = length + 1 if place and number == numbers[place - 1] + 1 else 1
        longest = max(longest, length)
    return longest


def _sure(case: Case, steps: Sequence[StepRecord]) -> str:
    adaptive = case.controls.adaptive
    if all(step.temperature == 0.0 for step in steps):
        return "nothing is drawn at temperature 0, so nothing leads out of it"
    if adaptive is not None:
        num_at_floor = sum(step.k <= adaptive.k_min for step in steps)
        return f"k was at its floor of {adaptive.k_min} at {num_at_floor} of them"
    return f"the model gave its favourite {median(step.p_max for step in steps):.0%} there"


def _unlooped(case: Case, steps: Sequence[StepRecord]) -> SettingChange:
    gravity = case.controls.gravity
    num_pulled = sum(step.bias_nats > 0.0 for step in steps)
    if gravity is not None and gravity.repetition_brake > 0.8 and num_pulled >= PULLED_SHARE * len(steps):
        return SettingChange(case.path("gravity.repetition_brake"), gravity.repetition_brake, 0.7)
    usual = case.calibration.temperature if case.calibration is not None else 0.7
    if case.temperature < 0.5 * usual:
        return SettingChange(case.sampling_path("temperature"), case.temperature, usual)
    return SettingChange("request.frequency_penalty", None, 0.3)
