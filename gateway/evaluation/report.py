"""An evaluation as a program reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from gateway.evaluation.comparison import Cell, Comparison, Group
from gateway.evaluation.conflict_recall import ConflictRecall
from gateway.evaluation.evaluate import OVERALL, ContextEvaluation
from gateway.lab.intervals import Interval


def as_json(evaluation: ContextEvaluation, conflicts: ConflictRecall | None) -> dict[str, Any]:
    """Return the shape that docs/evaluation.md tables; shares in [0, 1], times in ms."""
    return {
        "sets": {name: _methods(group) for name, group in evaluation.sets.items()},
        OVERALL: _methods(evaluation.overall),
        "mean_of_sets": _mean_of_sets(evaluation.sets),
        "comparisons": {
            name: {ours: _comparison(found) for ours, found in group.comparisons.items()}
            for name, group in evaluation.groups.items()
        },
        "calibration": asdict(evaluation.calibration) if evaluation.calibration else None,
        "cost": {str(size): asdict(cost) for size, cost in evaluation.costs.items()},
        "conflicts": asdict(conflicts) if conflicts else None,
        "selector": evaluation.selector,
        "encoder": {**asdict(evaluation.encoder), "tokens": "of title and text, by the encoder's tokenizer"},
        "methods": dict(evaluation.descriptions),
        "requests": {name: group.num_requests for name, group in evaluation.groups.items()},
        "seed": evaluation.seed,
    }


def _methods(group: Group) -> dict[str, Any]:
    return {method: _cell(cell) for method, cell in group.cells.items()}


def _cell(cell: Cell) -> dict[str, Any]:
    means = {measure: interval.mean if interval else None for measure, interval in cell.items()}
    intervals = {measure: _bounds(interval) for measure, interval in cell.items() if interval}
    return {**means, "intervals": intervals}


def _mean_of_sets(sets: Mapping[str, Group]) -> dict[str, dict[str, float | None]]:
    """Average the sets' means, every set counted alike."""
    groups = list(sets.values())
    return {
        method: {measure: _mean([group.cells[method][measure] for group in groups]) for measure in cell}
        for method, cell in groups[0].cells.items()
    }


def _mean(intervals: list[Interval | None]) -> float | None:
    means = [interval.mean for interval in intervals if interval]
    return sum(means) / len(means) if means else None


def _comparison(found: Comparison) -> dict[str, Any]:
    written = asdict(found)
    written["at_equal_tokens"]["is_below"] = found.at_equal_tokens.is_below
    return written


def _bounds(interval: Interval) -> list[float]:
    return [interval.low, interval.high]
