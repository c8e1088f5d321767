"""``gravity bench speculation``: the same requests without drafts, with fixed ones, and by entropy."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import orjson
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from worker.bench.speculation_prompts import open_prompts, rag_prompts
from worker.decode.controller import Decider
from worker.engine.engine import Engine, EngineOptions
from worker.engine.loading import EngineSettings, LoadedModel, load_model
from worker.engine.precision import Dtype
from worker.engine.request import EngineEvent, GenerationRequest, SamplingParams, StepOutput
from worker.protocol import DecodeControls, SpeculationControls

MAX_CONTEXT = 2048
NUM_RESAMPLES = 2000
TEMPERATURES = {"rag": 0.4, "open": 0.9}
"""Those of the tasks ``rag_qa`` and ``open_writing``."""

Kind: TypeAlias = Literal["rag", "open"]


@dataclass(frozen=True, slots=True)
class SpeculationBench:
    """What is measured."""

    model_path: Path
    data: Path
    num_prompts: int
    """Of each kind."""
    max_tokens: int
    fixed_lengths: tuple[int, ...]
    num_threads: int
    dtype: Dtype

    def arms(self) -> dict[str, SpeculationControls]:
        """Return what is compared, by name."""
        return arms_of(self.fixed_lengths)


def arms_of(fixed_lengths: Sequence[int]) -> dict[str, SpeculationControls]:
    """Return "off", each fixed length, and "entropy"."""
    fixed = {
        f"fixed {length}": SpeculationControls(mode="fixed", max_draft=length) for length in fixed_lengths
    }
    return {"off": SpeculationControls(), **fixed, "entropy": SpeculationControls(mode="entropy")}


@dataclass(frozen=True, slots=True)
class Run:
    """One answer."""

    cpu_s: float
    """Behind the first token."""
    num_tokens: int
    """Behind the first one."""
    num_steps: int
    num_drafted: int
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """One arm over all prompts of a kind.

    Ratios are of CPU time a token, off over arm, with an interval bootstrapped over prompts.
    """

    ms_per_token: float
    ratio: float
    ratio_low: float
    ratio_high: float
    tokens_per_step: float
    drafted_per_step: float
    num_same_texts: int
    num_prompts: int


def run_speculation(bench: SpeculationBench, json_file: Path | None) -> None:
    """Measure, print a table, and write the figures to ``json_file``."""
    torch.set_num_threads(bench.num_threads)
    loaded = load_model(
        EngineSettings(
            bench.model_path, bench.dtype, bench.num_threads, 1, MAX_CONTEXT, prefix_tokens=MAX_CONTEXT
        )
    )
    engine = Engine(
        loaded.model,
        Decider(loaded.vocabulary, loaded.model.output_embedding),
        loaded.eos_ids,
        EngineOptions(),
    )
    prompts: dict[Kind, list[tuple[int, ...]]] = {
        "rag": rag_prompts(loaded, bench.data, bench.num_prompts),
        "open": open_prompts(loaded, bench.num_prompts),
    }
    with torch.inference_mode():
        kinds = {kind: _measure(bench, engine, kind, prompts[kind]) for kind in prompts}
    report = {
        "kinds": {kind: {name: asdict(row) for name, row in rows.items()} for kind, rows in kinds.items()},
        "setting": _setting(bench, loaded),
    }
    _show(report)
    if json_file is not None:
        json_file.write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2))


def _setting(bench: SpeculationBench, loaded: LoadedModel) -> dict[str, Any]:
    return {
        "model": loaded.name,
        "dtype": str(loaded.model.dtype).removeprefix("torch."),
        "threads": bench.num_threads,
        "max_tokens": bench.max_tokens,
        "temperatures": TEMPERATURES,
        "unit": "CPU time of the process behind the first token",
    }


def _measure(
    bench: SpeculationBench, engine: Engine, kind: Kind, prompts: Sequence[tuple[int, ...]]
) -> dict[str, ArmFigures]:
    arms = bench.arms()
    names = list(arms)
    runs: dict[str, list[Run]] = {name: [] for name in names}
    for number, prompt in enumerate(track(prompts, kind, transient=True)):
        sampling = SamplingParams(bench.max_tokens, temperature=TEMPERATURES[kind], seed=number)
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            controls = DecodeControls(speculation=arms[name])
            runs[name].append(_run(engine, GenerationRequest("bench", prompt, sampling, controls)))
    # An answer of one token has no steps to compare.
    told = [number for number in range(len(prompts)) if all(runs[name][number].num_tokens for name in names)]
    kept = {name: [runs[name][number] for number in told] for name in names}
    return {name: figures_of(kept["off"], kept[name]) for name in names}


def _run(engine: Engine, request: GenerationRequest) -> Run:
    outputs: list[StepOutput] = []

    def take(event: EngineEvent) -> None:
        if not isinstance(event, StepOutput):
            raise RuntimeError(f"the engine failed a request of the benchmark: {event.message}")
        outputs.append(event)

    engine.submit(request, engine.open(request), take)
    while not outputs:
        engine.step()
    before, start = engine.stats(), time.process_time()
    while engine.has_work:
        engine.step()
    spent, after = time.process_time() - start, engine.stats()
    return Run(
        cpu_s=spent,
        num_tokens=len(outputs) - 1,
        num_steps=after.steps - before.steps,
        num_drafted=after.drafted - before.drafted,
        token_ids=tuple(output.token_id for output in outputs),
    )


def figures_of(off: Sequence[Run], arm: Sequence[Run]) -> ArmFigures:
    """Compare runs of the same work, in pairs."""
    counts = np.array([[a.cpu_s, a.num_tokens, b.cpu_s, b.num_tokens] for a, b in zip(off, arm, strict=True)])
    chosen = np.random.default_rng(0).integers(0, len(counts), (NUM_RESAMPLES, len(counts)))
    low, high = np.percentile(_ratio(counts[chosen].sum(axis=1)), [2.5, 97.5])
    num_steps = sum(run.num_steps for run in arm)
    num_tokens = sum(run.num_tokens for run in arm)
    return ArmFigures(
        ms_per_token=round(1000 * sum(run.cpu_s for run in arm) / num_tokens, 2),
        ratio=round(float(_ratio(counts.sum(axis=0, keepdims=True))[0]), 3),
        ratio_low=round(float(low), 3),
        ratio_high=round(float(high), 3),
        tokens_per_step=round(num_tokens / num_steps, 3),
        drafted_per_step=round(sum(run.num_drafted for run in arm) / num_steps, 3),
        num_same_texts=sum(a.token_ids == b.token_ids for a, b in zip(off, arm, strict=True)),
        num_prompts=len(arm),
    )


def _ratio(sums: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return CPU time a token, off over arm; sums [n, 4] of seconds and tokens of off and of the arm."""
    ratios: np.ndarray[Any, np.dtype[np.float64]] = (sums[:, 0] / sums[:, 1]) / (sums[:, 2] / sums[:, 3])
    return ratios


def _show(report: dict[str, Any]) -> None:
    setting = report["setting"]
    table = Table(title=f"{setting['model']}, {setting['dtype']}, {setting['threads']} thread(s), batch 1")
    for column in (
        "prompts",
        "arm",
        "ms a token",
        "ratio",
        "95 %",
        "tokens a step",
        "drafted a step",
        "same text",
    ):
        table.add_column(column, justify="right")
    for kind, rows in report["kinds"].items():
        for name, row in rows.items():
            spread = f"{row['ratio_low']:.2f} to {row['ratio_high']:.2f}"
            numbers = (f"{row['ms_per_token']:.1f}", f"{row['ratio']:.3f}", spread)
            steps = (f"{row['tokens_per_step']:.2f}", f"{row['drafted_per_step']:.2f}")
            table.add_row(kind, name, *numbers, *steps, f"{row['num_same_texts']} of {row['num_prompts']}")
    Console().print(table)
