"""``gravity bench blocks``: attending to some blocks of a long text, chosen by us and by others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from worker.bench.block_arms import AttentionFocus, EvenFocus, FixedFocus, RandomFocus, RecentFocus
from worker.bench.block_contexts import ContextPlan, make_contexts
from worker.bench.block_figures import Run, difference, figures
from worker.bench.block_reading import Bench
from worker.bench.block_runs import Arm, Branch, ContextRuns
from worker.bench.quest import QuestKeeper
from worker.engine.focus.focus import Focus
from worker.engine.focus.keeper import BlockKeeper
from worker.engine.loading import EngineSettings, LoadedModel, load_model
from worker.engine.model import LanguageModel
from worker.engine.precision import Dtype
from worker.protocol import KVBlockControls

DENSE, OURS, QUEST = "dense", "ours", "quest"
LOOKING: Mapping[str, type[FixedFocus]] = {"even": EvenFocus, "attention": AttentionFocus}
"""Ours without the threshold by entropy, and without surprisal as well."""
BLIND: Mapping[str, type[FixedFocus]] = {"random": RandomFocus, "recent": RecentFocus}
_ROOM = 256
"""Positions behind a context, for questions and for what is written."""


@dataclass(frozen=True, slots=True)
class BlocksBench:
    """What is measured."""

    model_path: Path
    data: Path
    sizes: tuple[int, ...]
    """Tokens of the contexts."""
    num_contexts: int
    """Of each size."""
    num_continued: int
    thresholds: tuple[float, ...]
    reference_nats: float
    num_threads: int
    dtype: Dtype

    def controls(self, threshold: float) -> KVBlockControls:
        """Return the controls that are measured, with B_min out of the way."""
        return KVBlockControls(
            mode="entropy", threshold=threshold, reference_nats=self.reference_nats, min_blocks=1
        )


def run_blocks(bench: BlocksBench, json_file: Path | None) -> None:
    """Measure, print tables, and write the figures to ``json_file``, anew after every context."""
    torch.set_num_threads(bench.num_threads)
    sizes: dict[str, Any] = {}
    report: dict[str, Any] = {"sizes": sizes}
    for num_tokens in bench.sizes:
        loaded = _load(bench, num_tokens)
        report["setting"] = _setting(bench, loaded)
        for measured in _measure(bench, loaded, num_tokens):
            sizes[str(num_tokens)] = measured
            if json_file is not None:
                json_file.write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2))
    _show(report)


def arms(model: LanguageModel, controls: KVBlockControls) -> dict[str, Arm]:
    """Return what is compared, ours first: how much it keeps is what the others may keep."""

    def fixed(kind: type[FixedFocus], looks: bool) -> Arm:
        def begin(branch: Branch) -> tuple[BlockKeeper, Focus]:
            # A look attends to everything; the steps between pay for it.
            num_looks = branch.num_steps // controls.look_every if looks else 0
            share = (branch.share * branch.num_steps - num_looks) / (branch.num_steps - num_looks)
            return BlockKeeper(model), kind(controls, max(share, 0.0))

        return begin

    return {
        OURS: lambda branch: (BlockKeeper(model), Focus(controls)),
        **{name: fixed(kind, looks=True) for name, kind in LOOKING.items()},
        **{name: fixed(kind, looks=False) for name, kind in BLIND.items()},
        QUEST: lambda branch: (QuestKeeper(model, 0, branch.share), None),
    }


def _load(bench: BlocksBench, num_tokens: int) -> LoadedModel:
    room = num_tokens + bench.num_continued + _ROOM
    return load_model(
        EngineSettings(bench.model_path, bench.dtype, bench.num_threads, 2, room, prefix_tokens=room)
    )


def _setting(bench: BlocksBench, loaded: LoadedModel) -> dict[str, Any]:
    return {
        "model": loaded.name,
        "dtype": str(loaded.model.dtype).removeprefix("torch."),
        "threads": bench.num_threads,
        "continuation": bench.num_continued,
        "reference_nats": bench.reference_nats,
        "unit": "CPU time of a step of one text, without the decision",
    }


def _measure(bench: BlocksBench, loaded: LoadedModel, num_tokens: int) -> Iterator[dict[str, Any]]:
    """Yield the figures of the contexts so far, after each."""
    plan = ContextPlan(bench.data, num_tokens, bench.num_continued, bench.num_contexts)
    dense: list[Run] = []
    runs: dict[float, dict[str, list[Run]]] = {threshold: {} for threshold in bench.thresholds}
    reading: dict[str, float] = {}
    contexts = make_contexts(loaded.tokenizer, plan)
    for context in track(contexts, f"{num_tokens} tokens", plan.count, transient=True):
        with torch.inference_mode():
            of_context = ContextRuns(Bench.of(loaded), context)
            if not reading:
                reading = {"plain_s": of_context.read_plainly_s(), "told_s": of_context.read_told_s}
            dense.append(of_context.run(lambda branch: (BlockKeeper(loaded.model), None), 1.0, 1.0))
            for threshold in bench.thresholds:
                _run_arms(of_context, arms(loaded.model, bench.controls(threshold)), runs[threshold])
        yield {
            "num_contexts": len(dense),
            "reading": reading,
            "dense": asdict(figures(dense, dense)),
            "thresholds": {str(threshold): _summed_up(of_arms, dense) for threshold, of_arms in runs.items()},
        }


def _run_arms(of_context: ContextRuns, compared: Mapping[str, Arm], runs: dict[str, list[Run]]) -> None:
    share = needle_share = 1.0
    for name, arm in compared.items():
        run = of_context.run(arm, share, needle_share)
        if name == OURS:
            share, needle_share = run.share, run.needle_share
        runs.setdefault(name, []).append(run)


def _summed_up(runs: Mapping[str, Sequence[Run]], dense: Sequence[Run]) -> dict[str, Any]:
    return {
        "arms": {name: asdict(figures(of_arm, dense)) for name, of_arm in runs.items()},
        "ours_less": {name: difference(runs[OURS], other) for name, other in runs.items() if name != OURS},
    }


def _show(report: dict[str, Any]) -> None:
    setting = report["setting"]
    for size, measured in report["sizes"].items():
        title = f"{measured['num_contexts']} texts of {size} tokens, {setting['model']}, {setting['dtype']}"
        table = Table(title=title)
        for column in ("threshold", "arm", "kept", "nats more", "95 %", "recall", "95 %", "step", "95 %"):
            table.add_column(column, justify="right")
        _add(table, "", DENSE, measured["dense"])
        for threshold, rows in measured["thresholds"].items():
            for name, row in rows["arms"].items():
                _add(table, threshold, name, row)
        Console().print(table)


def _add(table: Table, threshold: str, name: str, row: Mapping[str, Any]) -> None:
    table.add_row(
        threshold,
        name,
        f"{row['share']:.2f} / {row['needle_share']:.2f}",
        f"{row['nats_more']:+.3f}",
        f"{row['nats_more_low']:+.3f} to {row['nats_more_high']:+.3f}",
        f"{row['recall']:.2f}",
        f"{row['recall_low']:.2f} to {row['recall_high']:.2f}",
        f"{row['step_ratio']:.2f}",
        f"{row['step_ratio_low']:.2f} to {row['step_ratio_high']:.2f}",
    )
