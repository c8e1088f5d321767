"""What is wrong with how tokens were drawn, read from the steps; docs/diagnosis.md has the reasons."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from statistics import median

from gateway.lab.diagnosis.case import Answer, Case, Finding, SettingChange, StepPlace, mean_entropy, places
from gateway.lab.diagnosis.gravity import strong_gravity
from gateway.lab.diagnosis.loops import loops
from worker.protocol import AdaptiveControls, StepRecord

STARVED = 4.0
"""Times as many effective candidates as were allowed."""
NARROW_K = 8
"""A k_max below this is a floor itself."""
MIN_STARVED_STEPS = 2
MIN_STARVED_SHARE = 0.05
LONG_STEPS = 24
OPEN_S = 0.35
"""Where nothing was calibrated: the 95th percentile of s over ordinary text."""
OPEN_SHARE = 0.75
HOT = 1.5
STUCK_SHARE = 0.5


def sampling_findings(case: Case) -> Iterator[Finding]:
    """Yield what the steps show, the more particular before the more general."""
    yield from _broken_text(case)
    yield from _drift(case)
    yield from loops(case)
    yield from strong_gravity(case)
    yield from _temperature(case)


def _broken_text(case: Case) -> Iterator[Finding]:
    """k at its floor at a peak of H: the model was unsure, and few candidates were allowed."""
    floor = _floor(case)
    if floor is None:
        return
    found: list[StepPlace] = []
    starved: list[StepRecord] = []
    for answer in case.answers:
        numbers = [number for number, step in enumerate(answer.steps) if _is_starved(step, floor)]
        if len(numbers) >= max(MIN_STARVED_STEPS, MIN_STARVED_SHARE * len(answer.steps)):
            found += places(answer.choice, numbers)
            starved += [answer.steps[number] for number in numbers]
    if not starved:
        return
    candidates = median(math.exp(step.entropy_nats) for step in starved)
    yield Finding(
        "sampling",
        "broken text",
        f"At {len(found)} of {case.num_steps} steps the model was unsure (H up to {_peak(starved):.1f} nats, "
        f"typically as if among {_about(candidates)} tokens), and k was {_range(starved)}.",
        tuple(found),
        _wider(case, starved, candidates),
        weight=len(found) / case.num_steps,
    )


def _floor(case: Case) -> int | None:
    """Return the k up to which a step is at its floor; None where k is not limited at all."""
    adaptive = case.controls.adaptive
    if adaptive is None:
        return case.top_k or None
    k_max = min(adaptive.k_max, case.top_k or adaptive.k_max)
    return k_max if k_max < NARROW_K else min(adaptive.k_min, k_max)


def _is_starved(step: StepRecord, floor: int) -> bool:
    return step.temperature > 0.0 and step.k <= floor and math.exp(step.entropy_nats) >= STARVED * step.k


def _wider(case: Case, starved: Sequence[StepRecord], candidates: float) -> SettingChange:
    adaptive = case.controls.adaptive
    wanted = min(40, 2 ** math.ceil(math.log2(max(2.0, candidates))))
    by_client = case.top_k is not None and all(step.k == case.top_k for step in starved)
    if adaptive is None or by_client:
        return SettingChange("request.top_k", case.top_k, max(wanted, 2 * (case.top_k or 1)))
    if adaptive.k_max < NARROW_K:
        return SettingChange(case.path("adaptive.k_max"), adaptive.k_max, max(wanted, NARROW_K))
    if adaptive.smoothing > 0.0 and all(step.normalised_entropy > adaptive.s_low for step in starved):
        # The range would have opened; the mean that k follows lags behind.
        return SettingChange(case.path("adaptive.smoothing"), adaptive.smoothing, adaptive.smoothing / 2)
    if adaptive.s_low > 0.0:
        low = round(min(step.normalised_entropy for step in starved) / 2, 3)
        return SettingChange(case.path("adaptive.s_low"), adaptive.s_low, min(low, adaptive.s_low / 2))
    k_min = min(adaptive.k_max, max(2 * adaptive.k_min, min(wanted, 4 * adaptive.k_min)))
    return SettingChange(case.path("adaptive.k_min"), adaptive.k_min, k_min)


def _drift(case: Case) -> Iterator[Finding]:
    """H high for long while k stands at its largest: unlikely tokens come in one after the other."""
    limit = _open_s(case)
    for answer in case.answers:
        numbers = _longest_open_run(answer, limit, case.controls.adaptive)
        if not numbers:
            continue
        steps = [answer.steps[number] for number in numbers]
        mean_s = sum(step.normalised_entropy for step in steps) / len(steps)
        yield Finding(
            "sampling",
            "drift",
            f"Over {len(steps)} steps in a row H stayed at {mean_entropy(steps):.1f} nats (s {mean_s:.2f}, "
            f"usual is up to {limit:.2f}), {_openness(case, steps)}: "
            "the text wanders where the tail leads it.",
            tuple(places(answer.choice, numbers)),
            _narrower(case),
            weight=mean_s / limit,
        )
        return


def _open_s(case: Case) -> float:
    adaptive = case.controls.adaptive
    if adaptive is None or case.calibration is None or adaptive.s_high == 1.0:
        return OPEN_S
    return adaptive.s_high


def _longest_open_run(answer: Answer, limit: float, adaptive: AdaptiveControls | None) -> range | None:
    """Return the longest stretch whose every window of LONG_STEPS is open; None without one."""
    if adaptive is not None and adaptive.k_max < NARROW_K:
        return None
    best = range(0)
    start = None
    for end in range(LONG_STEPS, len(answer.steps) + 1):
        is_open = _is_open(answer.steps[end - LONG_STEPS : end], limit, adaptive)
        start = (end - LONG_STEPS if start is None else start) if is_open else None
        if start is not None and end - start > len(best):
            best = range(start, end)
    return best or None


def _is_open(window: Sequence[StepRecord], limit: float, adaptive: AdaptiveControls | None) -> bool:
    if sum(step.normalised_entropy for step in window) < limit * len(window):
        return False
    if any(step.temperature == 0.0 for step in window):
        return False
    ceiling = 0.9 * adaptive.k_max if adaptive is not None else 0.0
    return sum(step.k >= ceiling for step in window) >= OPEN_SHARE * len(window)


def _narrower(case: Case) -> SettingChange:
    usual = case.calibration.temperature if case.calibration is not None else 1.0
    if case.temperature > usual + 1e-9:
        return SettingChange(case.sampling_path("temperature"), case.temperature, usual)
    adaptive = case.controls.adaptive
    if adaptive is not None:
        k_max = max(adaptive.k_min, adaptive.k_max // 2)
        return SettingChange(case.path("adaptive.k_max"), adaptive.k_max, k_max)
    lower = round(max(0.3, 0.7 * case.temperature), 2)
    return SettingChange(case.sampling_path("temperature"), case.temperature, lower)


def _temperature(case: Case) -> Iterator[Finding]:
    usual = case.calibration.temperature if case.calibration is not None else 1.0
    if case.temperature >= max(HOT, usual + 0.5):
        steps = [step for answer in case.answers for step in answer.steps]
        unlikely = f": the mean token had a log-probability of {_mean_logprob(steps):.1f}" if steps else ""
        yield Finding(
            "sampling",
            "temperature too high",
            f"The temperature was {case.temperature:g}, where the task is used at {usual:g}{unlikely}.",
            change=SettingChange(case.sampling_path("temperature"), case.temperature, usual),
            weight=case.temperature,
        )
    yield from _stuck_temperature(case)


def _stuck_temperature(case: Case) -> Iterator[Finding]:
    controls = case.controls.temperature
    if controls is None or controls.mode != "feedback":
        return
    for answer in case.answers:
        for bound, name in ((controls.t_max, "t_max"), (controls.t_min, "t_min")):
            numbers = [n for n, step in enumerate(answer.steps) if abs(step.temperature - bound) < 1e-6]
            if len(answer.steps) >= LONG_STEPS and len(numbers) >= STUCK_SHARE * len(answer.steps):
                steps = [answer.steps[number] for number in numbers]
                reached = round(mean_entropy(steps), 2)
                yield Finding(
                    "sampling",
                    "temperature loop at its bound",
                    f"T stood at {name} = {bound:g} in {len(numbers)} of {len(answer.steps)} steps: "
                    f"H was {reached:g} nats there, the target of {controls.target_nats:g} is out of reach.",
                    tuple(places(answer.choice, numbers)),
                    SettingChange(case.path("temperature.target_nats"), controls.target_nats, reached),
                    weight=len(numbers) / len(answer.steps),
                )
                return


def _mean_logprob(steps: Sequence[StepRecord]) -> float:
    return sum(step.logprob for step in steps) / len(steps)


def _peak(steps: Sequence[StepRecord]) -> float:
    return max(step.entropy_nats for step in steps)


def _range(steps: Sequence[StepRecord]) -> str:
    low, high = min(step.k for step in steps), max(step.k for step in steps)
    return str(low) if low == high else f"{low} to {high}"


def _openness(case: Case, steps: Sequence[StepRecord]) -> str:
    is_bounded = case.controls.adaptive is not None or case.top_k is not None
    return f"k at {_range(steps)}" if is_bounded else "k without a bound"


def _about(candidates: float) -> str:
    return f"{candidates:.0f}" if candidates < 1000 else f"{candidates:.2g}"
