"""What failed, and where nothing was gained."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.lab.diagnosis.case import Case, Finding, SettingChange

MIN_PROMPT_TOKENS = 300
MIN_SAVING = 0.1
FULL_SHARE = 0.75


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
            advice="The gateway's log names the worker that failed: worker_refused, with its code.",
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
