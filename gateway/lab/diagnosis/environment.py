"""What is wrong with what an answer was computed on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gateway.lab.diagnosis.case import Case, Finding, SettingChange
from gateway.store.document import CalibrationSection

MIN_STEPS = 20
"""For a percentile of them."""
_COMPARED = ("weights", "dtype", "weight_format", "large_products", "kernels", "device", "engine")
"""What changes the values of a step; versions beside them."""


def environment_findings(case: Case) -> Iterator[Finding]:
    """Yield "calibrated elsewhere" and "environment changed"."""
    yield from _calibrated_elsewhere(case)
    changed = dict(changes(case.environment, case.environment_now))
    if changed:
        told = "; ".join(f"{name} {before} then, {after} now" for name, (before, after) in changed.items())
        yield Finding(
            "environment",
            "environment changed",
            f"The worker that looks at it now is not as the one that answered: {told}.",
            advice="Differences of later digits are to be expected; an exact replay is not.",
            weight=len(changed),
        )


def _calibrated_elsewhere(case: Case) -> Iterator[Finding]:
    measured = case.calibration
    if measured is None or case.controls.adaptive is None or case.temperature == 0.0:
        return  # greedy: k plays no part
    elsewhere = []
    if measured.model != case.model:
        elsewhere.append(f"with {measured.model} and not {case.model}")
    if abs(measured.temperature - case.temperature) > 1e-9:
        elsewhere.append(f"at temperature {measured.temperature:g} and not {case.temperature:g}")
    if elsewhere:
        yield Finding(
            "environment",
            "calibrated elsewhere",
            f"The range of s that k follows was measured {' and '.join(elsewhere)}; H moves with both.",
            change=_recalibrated(case, measured),
            advice=f"gravity calibrate {case.task} --prompts FILE --temperature {case.temperature:g}",
            weight=abs(measured.temperature - case.temperature) + (measured.model != case.model),
        )


def _recalibrated(case: Case, measured: CalibrationSection) -> SettingChange | None:
    """The request's own temperature goes back to the task's; else s_high becomes what this turn had."""
    if "temperature" in case.requested and measured.model == case.model:
        return SettingChange("request.temperature", case.temperature, measured.temperature)
    values = sorted(step.normalised_entropy for answer in case.answers for step in answer.steps)
    adaptive = case.controls.adaptive
    if adaptive is None or len(values) < MIN_STEPS:
        return None
    high = round(values[int(0.95 * (len(values) - 1))], 3)
    return SettingChange(case.path("adaptive.s_high"), adaptive.s_high, max(high, adaptive.s_low + 0.01))


def changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield what differs between two environments of workers and both tell, as (name, (then, now))."""
    for name in _COMPARED:
        if name in then and name in now and then[name] != now[name]:
            yield name, (then[name], now[name])
    versions_then, versions_now = then.get("versions", {}), now.get("versions", {})
    for name in sorted(versions_then.keys() & versions_now.keys()):
        if versions_then[name] != versions_now[name]:
            yield name, (versions_then[name], versions_now[name])
