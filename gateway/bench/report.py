"""The figures as JSON and as tables for people."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from gateway.bench.cells import FIRST_CHUNK, LONG_STREAM, PLAIN, SHORT_STREAM, Plan
from gateway.bench.figures import DIRECT, cell_figures, chunk_us, cpu_ratio
from gateway.bench.measure import Result
from gateway.bench.targets import GATEWAY
from gateway.lab.intervals import Interval

ONE_CONNECTION, SIXTEEN_CONNECTIONS = (PLAIN[0], PLAIN[3]), (PLAIN[1], PLAIN[4])


def report_of(result: Result, plan: Plan) -> dict[str, Any]:
    """Return everything, ready for JSON."""
    samples, rivals = result.samples, [name for name in result.targets if name not in (DIRECT, GATEWAY)]
    measured = {cell.name for cell in plan.cells}
    return {
        "num_rounds": len(next(iter(samples.values()))),
        "left_out": result.left_out,
        "cells": {
            name: {cell.name: asdict(cell_figures(samples, name, cell)) for cell in plan.cells}
            for name in result.targets
        },
        "direct_p50_ms": {
            cell.name: min(sample.p50_ms for sample in samples[DIRECT, cell.name]) for cell in plan.cells
        },
        "chunk_cpu_us": {name: asdict(chunk_us(samples, name)) for name in result.targets if name != DIRECT},
        "times_our_cpu": {
            name: {
                cell.name: asdict(cpu_ratio(samples, (name, cell.name), (GATEWAY, cell.name)))
                for cell in plan.cells
                if cell not in (SHORT_STREAM, LONG_STREAM)
            }
            for name in rivals
        },
        "cpu_at_16_to_1": {
            many.name: asdict(cpu_ratio(samples, (GATEWAY, many.name), (GATEWAY, one.name)))
            for one, many in zip(ONE_CONNECTION, SIXTEEN_CONNECTIONS, strict=True)
            if {one.name, many.name} <= measured
        },
        "memory_mib": asdict(result.memory),
    }


def print_report(report: dict[str, Any], console: Console) -> None:
    """Print one table of requests, one of streams, and what remains in lines."""
    table = Table(
        "target", "body, connections", "CPU ms", "added p50 ms", "added p99 ms", "requests/s", "failed"
    )
    for name, cells in report["cells"].items():
        for cell, figures in cells.items():
            if "stream" not in cell:
                keys = ("cpu_ms", "added_p50_ms", "added_p99_ms", "requests_per_s")
                table.add_row(name, cell, *(_shown(figures[key]) for key in keys), str(figures["num_failed"]))
    console.print(table)
    streams = Table("target", "CPU µs a chunk", "first chunk later by ms")
    for name, chunk in report["chunk_cpu_us"].items():
        streams.add_row(
            name, _shown(chunk), _shown(report["cells"][name][FIRST_CHUNK.name]["added_first_ms"])
        )
    console.print(streams)
    for name, ratios in report["times_our_cpu"].items():
        for cell, ratio in ratios.items():
            console.print(f"{name} takes {_shown(ratio)} times our CPU at {cell}")
    for cell, ratio in report["cpu_at_16_to_1"].items():
        console.print(f"our CPU at {cell} connections is {_shown(ratio)} times that at 1")
    told = "; ".join(f"{key.removesuffix('_mib')} {value:.0f}" for key, value in report["memory_mib"].items())
    console.print(f"our memory, MiB: {told}")
    for reason in report["left_out"]:
        console.print(reason)


def _shown(interval: dict[str, float]) -> str:
    """The mean and how far its interval reaches to either side."""
    known = Interval(**interval)
    digits = 2 if abs(known.mean) < 10 else 0
    return (
        f"{known.mean:.{digits}f} −{known.mean - known.low:.{digits}f} +{known.high - known.mean:.{digits}f}"
    )
