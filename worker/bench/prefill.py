"""``python -m worker.bench prefill``: a prompt read by us, by transformers, and by matrix products alone."""

from __future__ import annotations

import logging
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson
import torch
from rich.console import Console
from transformers import AutoConfig, AutoModelForCausalLM

from worker.bench.decode import prompts_of
from worker.bench.floor import Floor
from worker.bench.ours import PREFILL_CHUNK, SteppedEngine
from worker.decode.controller import Decider
from worker.engine.architecture import Architecture
from worker.engine.loading import EngineSettings, LoadedModel, load_model
from worker.engine.precision import Dtype


@dataclass(frozen=True, slots=True)
class PrefillBench:
    """What is measured."""

    model_path: Path
    prompt_tokens: int
    num_rounds: int
    num_threads: int
    dtype: Dtype


@dataclass(frozen=True, slots=True)
class PrefillFigures:
    """Medians over the rounds, in CPU milliseconds; the ratios are taken round by round."""

    ours_ms: float
    transformers_ms: float
    floor_ms: float
    transformers_to_ours: float
    ours_to_floor: float
    num_rounds: int


def run_prefill(bench: PrefillBench, json_file: Path | None) -> None:
    """Measure, print, and write the figures to ``json_file``."""
    torch.set_num_threads(bench.num_threads)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    # No prefix is kept: every round reads the same prompt.
    settings = EngineSettings(
        bench.model_path, bench.dtype, bench.num_threads, 1, bench.prompt_tokens + 2, prefix_tokens=0
    )
    loaded = load_model(settings)
    folder = str(bench.model_path)
    rival = AutoModelForCausalLM.from_pretrained(
        folder, dtype=loaded.model.dtype, trust_remote_code=False, use_safetensors=True
    ).eval()
    floor = Floor(
        Architecture.from_config(AutoConfig.from_pretrained(folder, trust_remote_code=False)),
        loaded.model.dtype,
    )
    figures = _measure(bench, loaded, rival, floor)
    report = {
        "prefill": asdict(figures),
        "setting": {
            "model": loaded.name,
            "dtype": str(loaded.model.dtype).removeprefix("torch."),
            "threads": bench.num_threads,
            "prompt_tokens": bench.prompt_tokens,
            "chunk": PREFILL_CHUNK,
            "unit": "CPU time of the process",
        },
    }
    Console().print(
        f"{loaded.name}, {bench.prompt_tokens} tokens, CPU ms: ours {figures.ours_ms:.0f}, "
        f"transformers {figures.transformers_ms:.0f} ({figures.transformers_to_ours:.2f} x ours), "
        f"floor {figures.floor_ms:.0f} (ours is {figures.ours_to_floor:.2f} x)"
    )
    if json_file is not None:
        json_file.write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2))


def _measure(bench: PrefillBench, loaded: LoadedModel, rival: Any, floor: Floor) -> PrefillFigures:
    decider = Decider(loaded.vocabulary, loaded.model.output_embedding)
    (prompt,) = prompts_of(loaded, 1, bench.prompt_tokens)
    ids = torch.tensor([prompt])
    rounds = []
    for number in range(bench.num_rounds + 1):
        if number % 2:
            ours, theirs = _ours_s(loaded, decider, prompt), _rival_s(rival, ids)
        else:
            theirs, ours = _rival_s(rival, ids), _ours_s(loaded, decider, prompt)
        rounds.append((ours, theirs, floor.prefill_s(bench.prompt_tokens, PREFILL_CHUNK)))
    ours_s, theirs_s, floor_s = zip(*rounds[1:], strict=True)  # the first warms up
    return PrefillFigures(
        ours_ms=round(1000 * statistics.median(ours_s), 1),
        transformers_ms=round(1000 * statistics.median(theirs_s), 1),
        floor_ms=round(1000 * statistics.median(floor_s), 1),
        transformers_to_ours=round(statistics.median(b / a for a, b, _ in rounds[1:]), 3),
        ours_to_floor=round(statistics.median(a / c for a, _, c in rounds[1:]), 3),
        num_rounds=bench.num_rounds,
    )


def _ours_s(loaded: LoadedModel, decider: Decider, prompt: tuple[int, ...]) -> float:
    engine = SteppedEngine(loaded, decider)
    start = time.process_time()
    engine.begin([prompt], 2)
    spent = time.process_time() - start
    engine.finish()
    return spent


@torch.inference_mode()
def _rival_s(rival: Any, ids: torch.Tensor) -> float:
    start = time.process_time()
    rival(input_ids=ids, use_cache=True, logits_to_keep=1)
    return time.process_time() - start
