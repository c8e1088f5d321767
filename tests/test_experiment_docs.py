"""docs/experiments.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from gateway.lab.cuped import MIN_UNITS_BEFORE
from gateway.lab.metrics import METRICS, metric_of
from gateway.lab.sequential import MIN_UNITS, TUNED_UNITS, boundary
from gateway.lab.srm import ALARM_P
from gateway.store.document import ExperimentDocument

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "experiments.md").read_text()


def test_the_documents_example_is_valid() -> None:
    (example,) = re.findall(r"<!-- example: experiment -->\n```yaml\n(.*?)```", PAGE, re.DOTALL)
    document = ExperimentDocument.model_validate(yaml.safe_load(example))
    assert document.control.name == "control"
    for name in (document.primary_metric, *(guardrail.metric for guardrail in document.guardrails)):
        assert metric_of(name) is not None


def test_every_metric_has_a_row_with_its_unit_and_direction() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\S+) \| (higher|lower) \|", PAGE, re.MULTILINE)
    assert rows == [(metric.name, metric.unit, metric.better) for metric in METRICS.values()]


@pytest.mark.parametrize(
    "words",
    [
        f"fewer than {MIN_UNITS} units in an arm",
        f"below {MIN_UNITS} units an arm",
        f"narrowest at {TUNED_UNITS} units",
        f"Where {MIN_UNITS_BEFORE} units or more have a period before",
        f"alarm at p < {ALARM_P:g}",
    ],
)
def test_the_numbers_are_the_codes(words: str) -> None:
    assert words in " ".join(PAGE.split())


def test_the_widths_of_the_intervals_are_the_documented_ones() -> None:
    (widths,) = re.findall(
        r"(\d\.\d) standard errors there, (\d\.\d) at 5,000, (\d\.\d) at 50,000", " ".join(PAGE.split())
    )
    assert widths == tuple(f"{boundary(units):.1f}" for units in (TUNED_UNITS, 5_000, 50_000))
