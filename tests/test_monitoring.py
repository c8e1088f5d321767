"""Dashboard and alert rules read metrics and labels that gateway and worker really have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from gateway.telemetry.metrics import STATUS_CLASSES
from gateway.telemetry.metrics import Metrics as GatewayMetrics
from tests.promql import parse
from worker.engine.engine import EngineStats
from worker.server.app import error_codes
from worker.server.metrics import Metrics as WorkerMetrics
from worker.server.routes import ROUTES
from worker.trace import TraceCounters

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"
OF_SCRAPING = {"job", "instance"}
"""Labels that Prometheus itself puts on whatever it reads."""


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((DEPLOY / "grafana" / "dashboard.json").read_text())
    return loaded


def panels() -> list[dict[str, Any]]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    yield from ((rule["alert"], rule["expr"]) for rule in rules())
    yield from ((panel["title"], target["expr"]) for panel in panels() for target in panel["targets"])


def labels_of(registry: CollectorRegistry) -> dict[str, set[str]]:
    """The labels of each series name, by the registry's own collectors: what a scrape would show."""
    found: dict[str, set[str]] = {}
    for collector in list(registry._collector_to_names):
        given = set(getattr(collector, "_labelnames", ()))
        for metric in collector.collect() if not given else collector.describe():  # type: ignore[attr-defined]
            suffixes = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count")}.get(
                metric.type, ("",)
            )
            for suffix in suffixes:
                found[metric.name + suffix] = given | ({"le"} if suffix == "_bucket" else set())
    return found


@pytest.fixture(scope="module")
def known() -> Mapping[str, set[str]]:
    worker = WorkerMetrics((route.path for route in ROUTES), error_codes())
    worker.watch(
        lambda: EngineStats(**dict.fromkeys(EngineStats.__dataclass_fields__, 0)), lambda: TraceCounters()
    )
    return {"up": set(), **labels_of(GatewayMetrics().registry), **labels_of(worker.registry)}


def test_every_metric_and_label_of_an_expression_exists(known: Mapping[str, set[str]]) -> None:
    for where, expression in expressions():
        query = parse(expression)
        assert query.metrics, where
        assert query.metrics <= known.keys(), where
        for metric, label, _ in query.selected:
            assert label in known[metric] | OF_SCRAPING | {""}, where
        together = set.union(*(known[metric] for metric in query.metrics)) | OF_SCRAPING
        assert query.grouped <= together, where


def test_counters_are_read_by_their_growth_and_histograms_by_their_buckets() -> None:
    for where, expression in expressions():
        for metric in parse(expression).metrics:
            if metric.endswith(("_total", "_bucket")):
                assert re.search(rf"(rate|increase)\({metric}(\{{[^}}]*\}})?\[", expression), where
        if "histogram_quantile" in expression:
            assert re.search(r"by \([^)]*\ble\b", expression), where


def test_values_that_are_asked_for_are_of_the_closed_sets() -> None:
    closed = {
        "status_class": set(STATUS_CLASSES),
        "error_code": {*error_codes(), ""},
        "stage": {"before", "after"},
    }
    closed |= {"job": {"gateway", "worker"}, "task": {"$task"}}
    for where, expression in expressions():
        for _, label, value in parse(expression).selected:
            assert not label or value in closed[label], where


def test_every_alert_says_what_is_wrong_in_labels_that_it_has(known: Mapping[str, set[str]]) -> None:
    assert len({rule["alert"] for rule in rules()}) == len(rules())
    for rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket")
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "1m"))
        query = parse(rule["expr"])
        told = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
        is_aggregated = re.match(r"\s*(sum|min|max|histogram_quantile)\b", rule["expr"])
        left = query.grouped if is_aggregated else set.union(*(known[m] for m in query.metrics)) | OF_SCRAPING
        assert told <= left, rule["alert"]


def test_panels_have_names_places_and_the_data_source_of_the_deployment() -> None:
    sources = yaml.safe_load((DEPLOY / "grafana" / "datasources.yaml").read_text())["datasources"]
    uids = {source["uid"] for source in sources}
    assert len({panel["id"] for panel in dashboard()["panels"]}) == len(dashboard()["panels"])
    assert len({panel["title"] for panel in panels()}) == len(panels())
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        assert panel["datasource"]["uid"] in uids
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells


@pytest.mark.parametrize("expression", ["made_up(x)", "rate(x[5m]", "x{a}", "x ~ y", "rate(x[5 minutes])"])
def test_what_is_no_expression_is_found(expression: str) -> None:
    with pytest.raises(ValueError):
        parse(expression)


def test_an_expression_is_read_by_hand() -> None:
    query = parse('sum by (le, task) (rate(a_bucket{task=~"$task", x="1"}[5m])) / b > 0.5')
    assert query.metrics == {"a_bucket", "b"}
    assert query.selected >= {("a_bucket", "task", "$task"), ("a_bucket", "x", "1")}
    assert query.grouped == {"le", "task"}
