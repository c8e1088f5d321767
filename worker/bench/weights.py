"""``python -m worker.bench weights``: what int8 weights change in what a model says, and what they save."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor

from worker.bench.decode import prompts_of
from worker.bench.ours import SteppedEngine
from worker.bench.passages import read_passages
from worker.decode.controller import Decider
from worker.engine.batch import Piece
from worker.engine.loading import EngineSettings, LoadedModel, load_model
from worker.engine.model import LanguageModel
from worker.engine.precision import Dtype, WeightFormat

CHUNK_TOKENS = 16
"""Read so few at a time, a text is multiplied as decoding steps are, not as prompts are."""
STEPS_IN_TURN = 5
"""Of one model before the other's: two models that alternate put each other out of the processor's cache."""
WARM_UP_TURNS = 1
NUM_RESAMPLES = 2000

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WeightsBench:
    """What is measured."""

    model_path: Path
    data: Path
    num_passages: int
    passage_tokens: int
    batches: tuple[int, ...]
    num_turns: int
    """Of ``STEPS_IN_TURN`` steps, for each batch size and format."""
    prompt_tokens: int
    num_rounds: int
    """Of reading the prompt."""
    num_threads: int
    dtype: Dtype


@dataclass(frozen=True, slots=True)
class Loss:
    """Against float32, position by position: nats, and the share of positions with the same likeliest token.

    Intervals are bootstrapped over passages (95 %).
    """

    kl_mean: float
    kl_low: float
    kl_high: float
    kl_p95: float
    top1: float
    top1_low: float
    top1_high: float
    nll_difference: float
    nll_difference_low: float
    nll_difference_high: float


@dataclass(frozen=True, slots=True)
class Times:
    """Medians in CPU milliseconds; ``ratio`` is full over int8, turn by turn or round by round."""

    full_ms: float
    int8_ms: float
    ratio: float
    ratio_p10: float
    ratio_p90: float


def run_weights(bench: WeightsBench, json_file: Path | None) -> None:
    """Measure, print tables, and write the figures to ``json_file``."""
    torch.set_num_threads(bench.num_threads)
    models = {"full": _load(bench, "full", bench.dtype), "int8": _load(bench, "int8", bench.dtype)}
    passages = read_passages(models["full"], bench.data, bench.num_passages, bench.passage_tokens)
    report = {
        "loss": {name: asdict(loss) for name, loss in _losses(bench, models, passages).items()},
        "times": {name: asdict(times) for name, times in _times(bench, models).items()},
        "setting": {
            "model": models["full"].name,
            "dtype": str(models["full"].model.dtype).removeprefix("torch."),
            "threads": bench.num_threads,
            "passages": len(passages),
            "passage_tokens": bench.passage_tokens,
            "prompt_tokens": bench.prompt_tokens,
            "unit": "CPU time of the process",
        },
    }
    _show(report)
    if json_file is not None:
        json_file.write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2))


def _load(bench: WeightsBench, weights: WeightFormat, dtype: Dtype) -> LoadedModel:
    context = max(bench.prompt_tokens, bench.passage_tokens, bench.num_turns * STEPS_IN_TURN + 256) + 2
    return load_model(
        EngineSettings(
            bench.model_path,
            dtype,
            bench.num_threads,
            max(bench.batches),
            context,
            prefix_tokens=0,
            weights=weights,
        )
    )


def _losses(
    bench: WeightsBench, models: dict[str, LoadedModel], passages: Sequence[tuple[int, ...]]
) -> dict[str, Loss]:
    exact = _load(bench, "full", "fp32").model
    measured: dict[str, list[Floats]] = {name: [] for name in models}
    for passage in track(passages, "loss", transient=True):
        reference = _log_probabilities(exact, passage)
        for name, loaded in models.items():
            measured[name].append(_differences(reference, _log_probabilities(loaded.model, passage), passage))
    return {name: _loss(each) for name, each in measured.items()}


def _log_probabilities(model: LanguageModel, ids: tuple[int, ...]) -> Tensor:
    """Return ln p [tokens, vocab] behind every token, in float32."""
    rows = []
    for start in range(0, len(ids), CHUNK_TOKENS):
        chunk = ids[start : start + CHUNK_TOKENS]
        rows.append(model.forward([Piece(0, start, chunk, len(chunk))]).float().log_softmax(-1))
    model.clear(0, len(ids))
    return torch.cat(rows)


def _differences(reference: Tensor, other: Tensor, ids: tuple[int, ...]) -> Floats:
    """Return [positions, 3]: KL(reference || other), whether the same token leads, difference of the NLL."""
    divergence = (reference.exp() * (reference - other)).sum(-1)[:-1]
    same = (reference.argmax(-1) == other.argmax(-1))[:-1]
    next_ids = torch.tensor(ids[1:]).unsqueeze(1)
    nll = (reference[:-1].gather(1, next_ids) - other[:-1].gather(1, next_ids)).squeeze(1)
    columns: Floats = torch.stack([divergence, same.float(), nll], 1).numpy().astype(np.float64)
    return columns


def _loss(passages: Sequence[Floats]) -> Loss:
    means = np.stack([passage.mean(axis=0) for passage in passages])
    chosen = np.random.default_rng(0).integers(0, len(means), (NUM_RESAMPLES, len(means)))
    low, high = np.percentile(means[chosen].mean(axis=1), [2.5, 97.5], axis=0)
    kl, top1, nll = np.stack([means.mean(axis=0), low, high], axis=1).round(5).tolist()
    p95 = round(float(np.percentile(np.concatenate(passages)[:, 0], 95)), 5)
    return Loss(kl[0], kl[1], kl[2], p95, top1[0], top1[1], top1[2], nll[0], nll[1], nll[2])


def _times(bench: WeightsBench, models: dict[str, LoadedModel]) -> dict[str, Times]:
    deciders = {name: Decider(loaded.vocabulary) for name, loaded in models.items()}
    times = {
        f"step, batch {size}": _compared(_turns(bench, models, deciders, size), STEPS_IN_TURN)
        for size in bench.batches
    }
    rounds = [
        {name: _prefill_s(bench, models[name], deciders[name]) for name in _in_turn(models, number)}
        for number in range(1 + bench.num_rounds)
    ]
    return times | {f"prompt of {bench.prompt_tokens}": _compared(rounds[1:], 1)}


def _turns(
    bench: WeightsBench, models: dict[str, LoadedModel], deciders: dict[str, Decider], size: int
) -> list[dict[str, float]]:
    """Return each turn's seconds by format."""
    num_turns = WARM_UP_TURNS + bench.num_turns
    engines = {name: SteppedEngine(models[name], deciders[name]) for name in models}
    for engine in engines.values():
        engine.begin(prompts_of(models["full"], size, 200), num_turns * STEPS_IN_TURN + 2)
    turns = [
        {name: sum(engines[name].step() for _ in range(STEPS_IN_TURN)) for name in _in_turn(models, number)}
        for number in track(range(num_turns), f"batch {size}", transient=True)
    ]
    for engine in engines.values():
        engine.finish()
    return turns[WARM_UP_TURNS:]


def _prefill_s(bench: WeightsBench, loaded: LoadedModel, decider: Decider) -> float:
    [prompt] = prompts_of(loaded, 1, bench.prompt_tokens)
    engine = SteppedEngine(loaded, decider)
    start = time.process_time()
    engine.begin([prompt], 2)
    spent = time.process_time() - start
    engine.finish()
    return spent


def _in_turn(models: dict[str, LoadedModel], number: int) -> Iterator[str]:
    """Yield the formats in an order that alternates."""
    yield from (sorted(models) if number % 2 else sorted(models, reverse=True))


def _compared(spent_s: Sequence[dict[str, float]], num_steps: int) -> Times:
    ratios = np.array([each["full"] / each["int8"] for each in spent_s])
    full, int8 = (1000 * statistics.median(each[name] for each in spent_s) for name in ("full", "int8"))
    p10, middle, p90 = np.percentile(ratios, [10, 50, 90])
    times = (full / num_steps, int8 / num_steps, middle, p10, p90)
    return Times(*(round(float(value), 3) for value in times))


def _show(report: dict[str, Any]) -> None:
    setting = report["setting"]
    console = Console()
    head = f"{setting['model']}, {setting['dtype']}, {setting['threads']} thread(s)"
    loss = Table(title=f"{head}: against float32")
    for column in ("weights", "KL, nats", "95 %", "KL p95", "same top-1", "NLL difference"):
        loss.add_column(column, justify="right")
    for name, row in report["loss"].items():
        spread = f"{row['kl_low']:.5f} to {row['kl_high']:.5f}"
        shares = (f"{row['kl_p95']:.5f}", f"{row['top1']:.4f}", f"{row['nll_difference']:+.5f}")
        loss.add_row(name, f"{row['kl_mean']:.5f}", spread, *shares)
    console.print(loss)
    times = Table(title=f"{head}: CPU ms")
    for column in ("work", "full", "int8", "ratio", "p10 to p90"):
        times.add_column(column, justify="right")
    for name, row in report["times"].items():
        spread = f"{row['ratio_p10']:.2f} to {row['ratio_p90']:.2f}"
        times.add_row(name, f"{row['full_ms']:.1f}", f"{row['int8_ms']:.1f}", f"{row['ratio']:.2f}", spread)
    console.print(times)
