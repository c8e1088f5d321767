"""``gravity bench grouping``: what it would give to group the rows of a step by how much they draft.

Half of a batch drafts. Its step is run as the engine does (whoever drafts in whatever slot), with the
drafting ones in adjacent slots, and as a pass for each half.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import orjson
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from worker.engine.batch import Piece
from worker.engine.loading import EngineSettings, LoadedModel, load_model
from worker.engine.model import LanguageModel
from worker.engine.precision import Dtype

MIXED, ADJACENT, APART = "mixed", "adjacent slots", "a pass for each"
MARGIN_TOKENS = 32
NUM_WARM_UP = 2
Passes: TypeAlias = Sequence[Sequence[Piece]]


@dataclass(frozen=True, slots=True)
class GroupingBench:
    """What is measured. Batches have an even number of requests."""

    model_path: Path
    batches: tuple[int, ...]
    lengths: tuple[int, ...]
    """Tokens drafted by those that draft."""
    context_tokens: int
    num_rounds: int
    num_threads: int
    dtype: Dtype


def run_grouping(bench: GroupingBench, json_file: Path | None) -> None:
    """Measure, print a table, and write the figures to ``json_file``."""
    torch.set_num_threads(bench.num_threads)
    max_context = bench.context_tokens + max(bench.lengths) + 1 + MARGIN_TOKENS
    slots = max(bench.batches)
    loaded = load_model(
        EngineSettings(bench.model_path, bench.dtype, bench.num_threads, slots, max_context, prefix_tokens=0)
    )
    lengths = _read_prompts(loaded, bench)
    rows = [
        _measure(bench, loaded.model, lengths[:size], num_drafted)
        for size in bench.batches
        for num_drafted in bench.lengths
    ]
    setting = {
        "model": loaded.name,
        "dtype": str(loaded.model.dtype).removeprefix("torch."),
        "threads": bench.num_threads,
        "context_tokens": bench.context_tokens,
        "rounds": bench.num_rounds,
        "unit": "CPU time of the forward pass, median",
    }
    report = {"steps": rows, "setting": setting}
    _show(report)
    if json_file is not None:
        json_file.write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2))


def passes(lengths: Sequence[int], num_drafted: int) -> dict[str, Passes]:
    """Return by form one step of requests with so many tokens in their slots; half of them draft."""

    def piece(slot: int, draft: int) -> Piece:
        ids = tuple(range(500 + slot, 501 + slot + draft))
        return Piece(slot, lengths[slot], ids, num_logits=1 + draft)

    half, slots = len(lengths) // 2, range(len(lengths))
    every_other = [
        [piece(slot, 0) for slot in slots[::2]],
        [piece(slot, num_drafted) for slot in slots[1::2]],
    ]
    in_a_row = [
        [piece(slot, 0) for slot in slots[:half]],
        [piece(slot, num_drafted) for slot in slots[half:]],
    ]
    return {
        MIXED: [[*every_other[0], *every_other[1]]],
        ADJACENT: [[*in_a_row[0], *in_a_row[1]]],
        APART: in_a_row,
    }


def _read_prompts(loaded: LoadedModel, bench: GroupingBench) -> list[int]:
    """Fill a slot for each request with random tokens; return how many, no two alike."""
    random = np.random.default_rng(0)
    lengths = [bench.context_tokens + slot % MARGIN_TOKENS for slot in range(max(bench.batches))]
    for slot, length in enumerate(lengths):
        ids = random.integers(100, loaded.model.vocab_size - 100, length)
        loaded.model.forward([Piece(slot, 0, tuple(map(int, ids)), num_logits=1)])
    return lengths


def _measure(
    bench: GroupingBench, model: LanguageModel, lengths: Sequence[int], num_drafted: int
) -> dict[str, Any]:
    forms = passes(lengths, num_drafted)
    names = list(forms)
    times_s: dict[str, list[float]] = {name: [] for name in names}
    rounds = range(bench.num_rounds + NUM_WARM_UP)
    for number in track(rounds, f"batch {len(lengths)}, {num_drafted} drafted", transient=True):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            start = time.process_time()
            for pieces in forms[name]:
                model.forward(pieces)
            times_s[name].append(time.process_time() - start)
    measured = {name: np.array(times[NUM_WARM_UP:]) for name, times in times_s.items()}
    return {
        "batch": len(lengths),
        "drafted": num_drafted,
        "mixed_ms": round(1e3 * float(np.median(measured[MIXED])), 2),
        "ratios": {name: asdict(_ratio(measured[name], measured[MIXED])) for name in (ADJACENT, APART)},
    }


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of a form's time over that of the mixed step of the same round, and its quartiles."""

    median: float
    low: float
    high: float


def _ratio(times_s: np.ndarray[Any, Any], mixed_s: np.ndarray[Any, Any]) -> Ratio:
    low, median, high = (round(float(each), 3) for each in np.percentile(times_s / mixed_s, [25, 50, 75]))
    return Ratio(median, low, high)


def _show(report: dict[str, Any]) -> None:
    setting = report["setting"]
    table = Table(title=f"{setting['model']}, {setting['dtype']}, {setting['threads']} thread(s)")
    for column in ("batch", "drafted", "mixed, ms", ADJACENT, APART):
        table.add_column(column, justify="right")
    for row in report["steps"]:
        ratios = (
            f"{ratio['median']:.3f} ({ratio['low']:.3f} to {ratio['high']:.3f})"
            for ratio in row["ratios"].values()
        )
        table.add_row(str(row["batch"]), str(row["drafted"]), f"{row['mixed_ms']:.1f}", *ratios)
    Console().print(table)
