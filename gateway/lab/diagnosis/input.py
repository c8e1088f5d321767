"""What is wrong before anything is sampled: the documents and the question."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.lab.diagnosis.case import Case, Finding, SettingChange


def input_findings(case: Case) -> Iterator[Finding]:
    """Yield what the prune report shows. Without documents there is nothing to say."""
    if not case.context.num_documents:
        return
    yield from _conflicts(case)
    yield from _centres(case)
    yield from _nothing_kept(case)
    yield from _off_theme(case)
    yield from _cut_by_budget(case)


def _conflicts(case: Case) -> Iterator[Finding]:
    conflicts = case.context.conflicts
    if conflicts:
        more = f" and {len(conflicts) - 1} more" if len(conflicts) > 1 else ""
        example = conflicts[0].rstrip(".") or "two kept documents say different things in one place"
        yield Finding(
            "input",
            "conflicting context",
            f"The documents contradict each other: {example}{more}.",
            advice="Remove the outdated one, or ask for an answer that names both.",
            weight=len(conflicts),
        )


def _centres(case: Case) -> Iterator[Finding]:
    centres = case.context.centres
    if len(centres) > 1:
        groups = "; ".join(", ".join(ids[:3]) for ids in centres[:3])
        yield Finding(
            "input",
            "several centres",
            f"The kept documents fall into {len(centres)} groups that nothing links ({groups}).",
            advice="The question may be ambiguous: ask back, or retrieve for each meaning on its own.",
            weight=len(centres),
        )


def _nothing_kept(case: Case) -> Iterator[Finding]:
    context = case.context
    if context.num_kept == 0 and not context.reasons.get("over_budget"):
        yield Finding(
            "input",
            "nothing kept",
            f"None of the {context.num_documents} documents was kept; the answer had no context. "
            f"{context.note}".rstrip(),
            advice="Look at what the retriever sends: all of it was empty.",
            weight=context.num_documents,
        )


def _off_theme(case: Case) -> Iterator[Finding]:
    """Nothing near the question, or no theme to judge by; both follow from what was retrieved or asked."""
    context = case.context
    was_judged = context.is_pruning and context.reasons.keys() & {"on_theme", "best_available", "off_theme"}
    if not was_judged or not context.num_kept:
        return
    if context.reasons.get("best_available", 0) == context.num_kept:
        yield Finding(
            "input",
            "everything off the theme",
            f"No document is clearly about the question; the nearest {context.num_kept} of "
            f"{context.num_documents} went along.",
            advice="The retriever missed, or the question needs no documents.",
            weight=context.num_documents,
        )
    elif not context.has_theme:
        yield Finding(
            "input",
            "question without a theme",
            "The question names nothing that the documents could be judged by.",
            advice="Send the conversation before it too, or a question that stands on its own.",
            weight=context.num_documents,
        )


def _cut_by_budget(case: Case) -> Iterator[Finding]:
    context = case.context
    num_cut = context.reasons.get("over_budget", 0)
    if num_cut and context.token_budget is not None:
        yield Finding(
            "input",
            "cut by the token budget",
            f"{num_cut} of {context.num_documents} documents were wanted but did not fit the budget of "
            f"{context.token_budget} tokens.",
            change=SettingChange(
                case.path("context.token_budget"), context.token_budget, 2 * context.token_budget
            ),
            weight=num_cut,
        )
