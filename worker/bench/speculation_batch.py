"""``gravity bench batch``: a mixed load in a batch that stays full, without drafts and with them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table

from worker.bench.speculation import Run, arms_of, figures_of
from worker.bench.speculation_prompts import open_prompts, short_prompts, structured_prompts
from worker.decode.controller import Decider
from worker.engine.engine import Engine, EngineOptions
from worker.engine.loading import EngineSettings, LoadedModel, load_model
from worker.engine.precision import Dtype
from worker.engine.request import EngineEvent, GenerationRequest, RequestFailed, SamplingParams
from worker.protocol import DecodeControls, SpeculationControls

MAX_CONTEXT = 512
PREFIX_TOKENS = 16_384


@dataclass(frozen=True, slots=True)
class BatchBench:
    """What is measured. ``num_requests`` of each kind: short factual, structured, long open."""

    model_path: Path
    batches: tuple[int, ...]
    num_requests: int
    num_rounds: int
    fixed_lengths: tuple[int, ...]
    num_threads: int
    dtype: Dtype
    max_tokens: int = 96
    """Of every answer; short and structured ones have fewer."""


def run_batches(bench: BatchBench, json_file: Path | None) -> None:
    """Measure, print a table, and write the figures to ``json_file``."""
    torch.set_num_threads(bench.num_threads)
    loaded = load_model(
        EngineSettings(
            bench.model_path,
            bench.dtype,
            bench.num_threads,
            max(bench.batches),
            MAX_CONTEXT,
            prefix_tokens=PREFIX_TOKENS,
        )
    )
    decider = Decider(loaded.vocabulary, loaded.model.output_embedding)
    engine = Engine(loaded.model, decider, loaded.eos_ids, EngineOptions())
    requests = mixed_requests(loaded, bench.num_requests, bench.max_tokens)
    with torch.inference_mode():
        batches = {size: _measure(bench, engine, requests, size) for size in bench.batches}
    report = {
        "batches": batches,
        "setting": {
            "model": loaded.name,
            "dtype": str(loaded.model.dtype).removeprefix("torch."),
            "threads": bench.num_threads,
            "requests": len(requests),
            "rounds": bench.num_rounds,
            "unit": "CPU time of the process, prompts from the prefix cache",
        },
    }
    _show(report)
    if json_file is not None:
        json_file.write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS))


def mixed_requests(loaded: LoadedModel, num_each: int, max_tokens: int) -> list[GenerationRequest]:
    """Return requests of the three kinds in turn, each of its kind's most tokens or of ``max_tokens``."""
    kinds = (
        (short_prompts(loaded, num_each), SamplingParams(min(24, max_tokens), temperature=0.4)),
        (structured_prompts(loaded, num_each), SamplingParams(min(64, max_tokens), temperature=0.2)),
        (open_prompts(loaded, num_each), SamplingParams(min(96, max_tokens), temperature=0.9)),
    )
    pairs = [(prompts[place], sampling) for place in range(num_each) for prompts, sampling in kinds]
    return [
        GenerationRequest(f"bench-{number}", prompt, replace(sampling, seed=number))
        for number, (prompt, sampling) in enumerate(pairs)
    ]


def _measure(
    bench: BatchBench, engine: Engine, requests: Sequence[GenerationRequest], size: int
) -> dict[str, dict[str, Any]]:
    arms = arms_of(bench.fixed_lengths)
    names = list(arms)
    runs: dict[str, list[Run]] = {name: [] for name in names}
    _run(engine, requests, size, arms["off"])  # the prompts' keys and values are kept from here on
    for number in track(range(bench.num_rounds), f"batch {size}", transient=True):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            runs[name].append(_run(engine, requests, size, arms[name]))
    told = {name: asdict(figures_of(runs["off"], runs[name])) for name in names}
    for row in told.values():
        del row["num_same_texts"], row["num_prompts"]  # a run is all texts here
    return told


def _run(
    engine: Engine, requests: Sequence[GenerationRequest], size: int, speculation: SpeculationControls
) -> Run:
    """Let ``size`` requests run together until all have: who ends makes room for the next."""
    token_ids: list[int] = []

    def take(event: EngineEvent) -> None:
        if isinstance(event, RequestFailed):
            raise RuntimeError(f"the engine failed a request of the benchmark: {event.message}")
        token_ids.append(event.token_id)

    controls = DecodeControls(speculation=speculation)
    waiting = deque(replace(request, controls=controls) for request in requests)
    before, start = engine.stats(), time.process_time()
    while waiting or engine.has_work:
        running = engine.stats()
        for _ in range(min(len(waiting), size - running.running - running.waiting)):
            request = waiting.popleft()
            engine.submit(request, engine.open(request), take)
        engine.step()
    spent, after = time.process_time() - start, engine.stats()
    return Run(
        cpu_s=spent,
        num_tokens=len(token_ids),
        num_steps=after.steps - before.steps,
        num_drafted=after.drafted - before.drafted,
        token_ids=tuple(token_ids),
    )


def _show(report: dict[str, Any]) -> None:
    setting = report["setting"]
    table = Table(title=f"{setting['model']}, {setting['dtype']}, {setting['threads']} thread(s), mixed load")
    for column in ("batch", "arm", "ms a token", "ratio", "95 %", "tokens a step", "drafted a step"):
        table.add_column(column, justify="right")
    for size, rows in report["batches"].items():
        for name, row in rows.items():
            spread = f"{row['ratio_low']:.2f} to {row['ratio_high']:.2f}"
            numbers = (f"{row['ms_per_token']:.1f}", f"{row['ratio']:.3f}", spread)
            steps = (f"{row['tokens_per_step']:.2f}", f"{row['drafted_per_step']:.2f}")
            table.add_row(str(size), name, *numbers, *steps)
    Console().print(table)
