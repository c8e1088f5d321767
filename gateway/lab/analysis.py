"""An experiment's analysis: from what was observed to what can be said of it. Pure; docs/experiments.md."""

from __future__ import annotations

from dataclasses import replace

from gateway.lab.cohort import Cohort, cohort_of
from gateway.lab.compare import metric_findings, shadow_findings
from gateway.lab.findings import ExperimentReport, GuardrailState
from gateway.lab.guardrails import guardrail_states
from gateway.lab.metrics import METRICS, Metric, metric_of
from gateway.lab.notes import notes_of
from gateway.lab.observations import Observations
from gateway.lab.sequential import ALPHA
from gateway.lab.srm import sample_ratio
from gateway.lab.verdict import verdict_of
from gateway.store.document import Better, ExperimentDocument

__all__ = ["ExperimentReport", "GuardrailState", "analyse"]


def analyse(document: ExperimentDocument, observations: Observations) -> ExperimentReport:
    """Return the report on an experiment of one version.

    Intention to treat: a turn counts in the arm that it was assigned. Several arms: each is compared with
    the control at the level ``ALPHA`` divided by their number (Bonferroni), so that all intervals of a metric
    hold together. Guardrails are looked at even where the sizes of the arms hide the verdict.
    """
    cohort = cohort_of(document, observations)
    alpha = ALPHA / max(1, len(document.arms) - 1)
    found = {
        metric.name: findings
        for metric in _metrics(document, cohort)
        if (findings := metric_findings(metric, document, cohort, alpha))
    }
    counts = {arm.name: int((cohort.arms == number).sum()) for number, arm in enumerate(document.arms)}
    ratio = sample_ratio(counts, document.arms)
    guardrails = tuple(guardrail_states(document, found))
    primary = found.get(document.primary_metric)
    shown = tuple(found.values())
    shadows = [
        each
        for metric in _metrics(document, cohort)
        for each in shadow_findings(metric, document, cohort, alpha)
    ]
    return ExperimentReport(
        experiment=document.id,
        version=document.version,
        is_active=document.is_active,
        control=document.control.name,
        verdict=verdict_of(document, primary, ratio, guardrails),
        notes=notes_of(document, primary, ratio, cohort.exclusions),
        alpha=alpha,
        sample_ratio=ratio,
        guardrails=guardrails,
        metrics=tuple(replace(each, comparisons=()) for each in shown) if ratio.is_alarm else shown,
        shadows=tuple(shadows),
        exclusions=cohort.exclusions,
    )


def _metrics(document: ExperimentDocument, cohort: Cohort) -> list[Metric]:
    """The primary metric, the guardrails', then all known ones, then what clients report, by name."""
    reported = {name for turn in cohort.inside.turns for name in turn.values} - METRICS.keys()
    asked: dict[str, Better | None] = {document.primary_metric: document.primary_better}
    for guardrail in document.guardrails:
        asked.setdefault(guardrail.metric, guardrail.better)
    asked |= {name: None for name in (*METRICS, *sorted(reported)) if name not in asked}
    return [_directed(name, better) for name, better in asked.items()]


def _directed(name: str, better: Better | None) -> Metric:
    """A metric that this program does not know is shown without a unit: another version wrote it."""
    metric = metric_of(name) or Metric(name, "", better or "higher", "")
    return metric if better is None else replace(metric, better=better)
