"""What is wrong with an answer's length, with what it was computed on, and with what the framework gained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gateway.lab.diagnose_case import Answer, Case, Finding, SettingChange, places
from gateway.store.document import CalibrationSection

MIN_PROMPT_TOKENS = 300
MIN_SAVING = 0.1
FULL_SHARE = 0.75
MIN_STEPS = 20
_COMPARED = ("weights", "dtype", "large_products", "device", "engine")
"""What changes the values of a step; versions beside them."""


def length_findings(case: Case) -> Iterator[Finding]:
    """Yield "cut off" and "ended at once"."""
    for answer in case.answers:
        if answer.finish_reason == "length":
            doubled = None if case.max_tokens is None else 2 * case.max_tokens
            last = len(answer.steps) - 1
            name = "max_completion_tokens" if "max_completion_tokens" in case.requested else "max_tokens"
            yield Finding(
                "length",
                "cut off",
                f"The answer was cut off at its limit of {_num_tokens(case, answer)} tokens.",
                tuple(places(answer.choice, [last] if last >= 0 else [])),
                SettingChange(case.sampling_path(name), case.max_tokens, doubled),
                weight=1.0,
            )
            break
    for answer in case.answers:
        if answer.finish_reason == "stop" and _num_tokens(case, answer) <= 1:
            yield Finding(
                "length",
                "ended at once",
                "The model ended the answer before it said anything.",
                tuple(places(answer.choice, range(len(answer.steps)))),
                advice="Look at the prompt's end: a turn that looks complete to the model needs no answer.",
                weight=1.0,
            )
            break


def _num_tokens(case: Case, answer: Answer) -> int:
    """Return the length of an answer; where no steps were kept, by what the worker counted in all."""
    return len(answer.steps) or case.completion_tokens // max(1, len(case.answers))


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


def framework_findings(case: Case) -> Iterator[Finding]:
    """Yield what failed, and where nothing was gained."""
    if case.status == "error":
        yield Finding(
            "framework",
            "error",
            f"The turn ended with the error {case.error_code or 'unknown'}.",
            advice="The gateway's log has it under the turn's id.",
            weight=1.0,
        )
    if case.status == "cancelled":
        yield Finding(
            "framework",
            "cancelled",
            f"The client left after {case.num_steps} tokens.",
            advice="If that is no wish of theirs: look at the client's timeout.",
            weight=1.0,
        )
    yield from _no_speed(case)
    if case.num_attempts > 1:
        yield Finding(
            "framework",
            "retries",
            f"{case.num_attempts} workers were asked until one answered.",
            advice="gravity_gateway_retries_total and /admin/workers say which of them fails.",
            weight=case.num_attempts,
        )
    yield from _full_batch(case)


def _no_speed(case: Case) -> Iterator[Finding]:
    context = case.context
    if not context.is_pruning or context.num_documents < 2 or context.tokens_before < MIN_PROMPT_TOKENS:
        return
    saving = 1.0 - context.tokens_after / context.tokens_before
    if saving >= MIN_SAVING:
        return
    why = f" {context.note}" if context.note else ""
    is_balanced = context.keep == "balanced"
    change = None if is_balanced else SettingChange(case.path("context.keep"), context.keep, "balanced")
    yield Finding(
        "framework",
        "no speed gained",
        f"Pruning dropped {context.num_documents - context.num_kept} of {context.num_documents} documents: "
        f"{context.tokens_after} of {context.tokens_before} tokens remain.{why}",
        change=change,
        advice="" if change else "All of them may be wanted; a token_budget would bound them.",
        weight=1.0 - saving,
    )


def _full_batch(case: Case) -> Iterator[Finding]:
    slots = case.environment.get("kv", {}).get("slots")
    sizes = [step.batch_size for answer in case.answers for step in answer.steps]
    if not isinstance(slots, int) or not sizes or slots < 2:
        return
    mean = sum(sizes) / len(sizes)
    if mean >= FULL_SHARE * slots:
        yield Finding(
            "framework",
            "full worker",
            f"The worker decoded {mean:.0f} sequences at a time of {slots} that it has room for: "
            "each token waits for all of them.",
            advice="Add a worker to NG_WORKERS.",
            weight=mean / slots,
        )
