"""What is wrong with an answer's length."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.lab.diagnosis.case import Answer, Case, Finding, SettingChange, places


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
