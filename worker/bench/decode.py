"""``gravity bench decode``: our decoding step beside ``generate``'s, step by step in one process."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from transformers import AutoConfig, AutoModelForCausalLM

from worker.bench.floor import Floor
from worker.bench.ours import SteppedEngine
from worker.bench.overhead import controls_overhead_s, records_of, trace_overhead_s
from worker.bench.rival import SteppedGenerate
from worker.decode.controller import Decider
from worker.engine.architecture import Architecture
from worker.engine.batch import Piece
from worker.engine.loading import EngineSettings, LoadedModel, load_model
from worker.engine.precision import Dtype

WARM_UP_STEPS = 3
OVERHEAD_ROUNDS = 16
TRACED_STEPS = 40
TEXT = (
    "The harbour master wrote down every ship that came in that autumn, its captain, its cargo and the "
    "state of its sails. When the storm broke the old lamp on the pier, the engineer asked for stone from "
    "the quarry in the north and for forty men. Nobody believed that the bridge would be ready before ice. "
)


@dataclass(frozen=True, slots=True)
class DecodeBench:
    """What is measured."""

    model_path: Path
    batches: tuple[int, ...]
    num_steps: int
    prompt_tokens: int
    num_threads: int
    dtype: Dtype


@dataclass(frozen=True, slots=True)
class BatchFigures:
    """Medians over the steps, in CPU milliseconds; ``ratio`` is generate's over ours, step by step."""

    ours_ms: float
    generate_ms: float
    floor_ms: float
    """The matrix products alone"""
    ratio: float
    ratio_p10: float
    ratio_p90: float
    num_steps: int
    is_text_equal: bool
    """Whether both wrote the same tokens; in bf16 near ties may fall either way."""


def run_decode(bench: DecodeBench, json_file: Path | None) -> None:
    """Measure, print a table, and write the figures to ``json_file``."""
    torch.set_num_threads(bench.num_threads)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    max_context = bench.prompt_tokens + WARM_UP_STEPS + bench.num_steps + 2
    loaded = load_model(
        EngineSettings(bench.model_path, bench.dtype, bench.num_threads, max(bench.batches), max_context)
    )
    rival = AutoModelForCausalLM.from_pretrained(
        str(bench.model_path), dtype=loaded.model.dtype, trust_remote_code=False, use_safetensors=True
    ).eval()
    decider = Decider(loaded.vocabulary, loaded.model.output_embedding)
    architecture = Architecture.from_config(
        AutoConfig.from_pretrained(str(bench.model_path), trust_remote_code=False)
    )
    floor = Floor(architecture, loaded.model.dtype)
    figures = {
        size: _measure_batch(bench, size, loaded, decider, rival, floor.step_s(size, size))
        for size in bench.batches
    }
    largest = max(bench.batches)
    trace, controls = _overheads(bench, loaded, decider, figures[largest].ours_ms / 1000.0)
    report = {
        "batches": {str(size): asdict(row) for size, row in figures.items()},
        "trace_overhead": trace,
        "controls_overhead": controls,
        "setting": {
            "model": loaded.name,
            "dtype": str(loaded.model.dtype).removeprefix("torch."),
            "threads": bench.num_threads,
            "prompt_tokens": bench.prompt_tokens,
            "overheads_at_batch": largest,
            "unit": "CPU time of the process",
        },
    }
    _show(report)
    if json_file is not None:
        json_file.write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2))


def _measure_batch(
    bench: DecodeBench, size: int, loaded: LoadedModel, decider: Decider, rival_model: Any, floor_s: float
) -> BatchFigures:
    prompts = prompts_of(loaded, size, bench.prompt_tokens)
    num_steps = WARM_UP_STEPS + bench.num_steps
    # One step more, so that the last measured one does not also end the batch.
    ours = SteppedEngine(loaded, decider)
    ours.begin(prompts, num_steps + 2)
    rival = SteppedGenerate(rival_model, torch.tensor(prompts), num_steps + 2, bench.num_threads)
    rival.step()  # reads the prompts
    pairs = []
    with Progress(transient=True) as progress:
        task = progress.add_task(f"batch {size}", total=num_steps)
        for number in range(num_steps):
            pair = (ours.step(), rival.step()) if number % 2 else (rival.step(), ours.step())[::-1]
            pairs.append(pair)
            progress.advance(task)
    rival.step()
    rival.finish()
    ours.step()
    ours.finish()
    return _figures(pairs[WARM_UP_STEPS:], floor_s, _is_equal(ours, rival, bench.prompt_tokens))


def prompts_of(loaded: LoadedModel, size: int, num_tokens: int) -> list[tuple[int, ...]]:
    """Return ``size`` different prompts of exactly ``num_tokens`` tokens of English text."""
    text_ids = loaded.vocabulary.encode(TEXT)
    repeated = text_ids * (2 + num_tokens // len(text_ids))
    return [tuple(repeated[(7 * i) % len(text_ids) :][:num_tokens]) for i in range(size)]


def _figures(pairs: Sequence[tuple[float, float]], floor_s: float, is_text_equal: bool) -> BatchFigures:
    ours, theirs = zip(*pairs, strict=True)
    ratios = sorted(b / a for a, b in pairs)
    return BatchFigures(
        ours_ms=round(1000 * statistics.median(ours), 3),
        generate_ms=round(1000 * statistics.median(theirs), 3),
        floor_ms=round(1000 * floor_s, 3),
        ratio=round(statistics.median(ratios), 3),
        ratio_p10=round(ratios[len(ratios) // 10], 3),
        ratio_p90=round(ratios[len(ratios) * 9 // 10], 3),
        num_steps=len(pairs),
        is_text_equal=is_text_equal,
    )


def _is_equal(ours: SteppedEngine, rival: SteppedGenerate, prompt_tokens: int) -> bool:
    assert rival.tokens is not None
    theirs = rival.tokens[:, prompt_tokens:].tolist()
    written = [[output.token_id for output in outputs] for outputs in ours.outputs.values()]
    return all(a[: len(b)] == b[: len(a)] for a, b in zip(written, theirs, strict=True))


def _overheads(
    bench: DecodeBench, loaded: LoadedModel, decider: Decider, step_s: float
) -> tuple[float, float]:
    """Return what trace and controls add to a step of ``step_s`` seconds at the largest batch, as shares."""
    prompts = prompts_of(loaded, max(bench.batches), bench.prompt_tokens)
    pieces = [Piece(slot, 0, prompt, num_logits=1) for slot, prompt in enumerate(prompts)]
    logits = torch.cat([loaded.model.forward([piece]) for piece in pieces])
    controls = statistics.median(controls_overhead_s(decider, logits, prompts, OVERHEAD_ROUNDS))
    records = records_of(decider, logits, prompts)
    trace = trace_overhead_s(records, TRACED_STEPS, step_s)
    return round(trace / step_s, 4), round(controls / step_s, 4)


def _show(report: dict[str, Any]) -> None:
    setting = report["setting"]
    console = Console()
    table = Table(
        title=f"{setting['model']}, {setting['dtype']}, {setting['threads']} thread(s), CPU ms a step",
    )
    for column in ("batch", "ours", "floor", "generate", "ratio", "p10 to p90", "same text"):
        table.add_column(column, justify="right")
    for size, row in report["batches"].items():
        spread = f"{row['ratio_p10']:.2f} to {row['ratio_p90']:.2f}"
        is_equal = "yes" if row["is_text_equal"] else "no"
        times = [f"{row[name]:.1f}" for name in ("ours_ms", "floor_ms", "generate_ms")]
        table.add_row(size, *times, f"{row['ratio']:.2f}", spread, is_equal)
    console.print(table)
    console.print(
        f"of a step at batch {setting['overheads_at_batch']}: "
        f"controls {100 * report['controls_overhead']:.1f} %, trace {100 * report['trace_overhead']:.1f} %"
    )
