"""A calibration as people and as programs read it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.calibrate.measure import Measurement
from gateway.calibrate.profile import HIGH, LOW, PERCENTILES, ROOM, Distribution, Profile

NUM_BINS = 16
BAR_WIDTH = 40


def print_calibration(console: Console, measured: Measurement, found: Profile) -> None:
    """The distributions, a histogram of s, and the proposal with its rules."""
    console.print(
        Text(
            f"task {measured.task}: {len(measured.turns)} prompts, {found.s.num_values} steps "
            f"of {measured.model} at temperature {measured.temperature:g}, nothing steered"
        )
    )
    for failure in sorted(set(measured.failures)):
        console.print(Text(f"left out, {measured.failures.count(failure)} x: {failure}"))
    console.print(_table(found))
    for line in histogram([value for turn in measured.turns for value in turn.normalised]):
        console.print(Text(line))
    for line in proposal_lines(found):
        console.print(Text(line))


def proposal_lines(found: Profile) -> list[str]:
    """Return the proposed values, each with its rule."""
    proposal = found.proposal
    edges = ", ".join(f"{edge:g}" for edge in proposal.edges) or "too few prompts to tell"
    return [
        "proposed:",
        f"  adaptive.s_low      {proposal.s_low:<8g} {LOW}th percentile of s",
        f"  adaptive.s_high     {proposal.s_high:<8g} {HIGH}th percentile of s",
        f"  adaptive.k_min      {proposal.k_min:<8} {ROOM:g} x exp(H) at the {LOW}th percentile of H",
        f"  adaptive.k_max      {proposal.k_max:<8} {ROOM:g} x exp(H) at the {HIGH}th",
        "  adaptive.curve      geometric, so that k is the same multiple of exp(H) in between",
        f"  calibration.s_mean  {proposal.s_mean:<8g} mean of the turns' mean s",
        f"  buckets.edges       {edges}: quartiles of the turns' mean s",
    ]


def histogram(values: Sequence[float]) -> list[str]:
    """Return s as bars of text, each a share of the steps."""
    counts, edges = np.histogram(values, bins=NUM_BINS, range=(0.0, max(0.05, max(values))))
    top = max(1, int(counts.max()))
    return [
        f"s {low:5.3f} {'█' * math.ceil(BAR_WIDTH * count / top):<{BAR_WIDTH}} {count / len(values):6.1%}"
        for low, count in zip(edges, counts, strict=False)
    ]


def as_json(measured: Measurement, found: Profile) -> dict[str, Any]:
    """The same for a file."""
    return {
        "task": measured.task,
        "model": measured.model,
        "temperature": measured.temperature,
        "num_prompts": len(measured.turns),
        "num_steps": found.s.num_values,
        "failures": list(measured.failures),
        "percentiles": list(PERCENTILES),
        "s": asdict(found.s),
        "entropy_nats": asdict(found.entropy_nats),
        "turn_s": asdict(found.turn_s),
        "proposal": asdict(found.proposal),
    }


def _table(found: Profile) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name in ("mean", *(f"p{percentile}" for percentile in PERCENTILES)):
        table.add_column(name, justify="right")
    effective = Distribution(
        found.entropy_nats.num_values,
        math.nan,
        tuple(math.exp(value) for value in found.entropy_nats.percentiles),
    )
    rows = {"s": found.s, "H nats": found.entropy_nats, "exp H": effective, "mean s of a turn": found.turn_s}
    for name, each in rows.items():
        mean = "" if math.isnan(each.mean) else f"{each.mean:.3f}"
        table.add_row(name, mean, *(f"{value:.3f}" for value in each.percentiles))
    return table
