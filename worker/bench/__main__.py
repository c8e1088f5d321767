"""``python -m worker.bench decode``: measure this worker against what its users would run instead."""

from __future__ import annotations

import os

# Before torch is imported: spinning threads on a busy machine are many times slower than one that sleeps.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from pathlib import Path
from typing import Annotated, Literal

import typer

from worker.models import BUNDLED_MODEL, ModelNotFoundError, resolve_model

JsonFile = Annotated[Path | None, typer.Option(help="Write the figures to this file.")]
Threads = Annotated[int, typer.Option(min=1)]
DtypeName = Annotated[Literal["auto", "bf16", "fp32"], typer.Option()]
Model = Annotated[str, typer.Option(help="A folder, or a Hugging Face id in the cache.")]

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def main() -> None:
    """Benchmarks by CPU time, interleaved with the rival in one process."""


@app.command()
def decode(
    json: JsonFile = None,
    batches: Annotated[str, typer.Option(help="Batch sizes, comma-separated.")] = "1,8,32",
    steps: Annotated[int, typer.Option(min=3, help="Measured steps for each batch size.")] = 40,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Tokens of every prompt.")] = 200,
    threads: Threads = 1,
    dtype: Annotated[Literal["auto", "bf16", "fp32"], typer.Option(help="The rival uses the same.")] = "auto",
    model: Model = BUNDLED_MODEL,
) -> None:
    """Compare our decoding step with transformers' generate, and price the trace and the controls."""
    from worker.bench.decode import DecodeBench, run_decode

    sizes = _counts_in(batches, "--batches")
    folder = _folder_of(model)
    run_decode(DecodeBench(folder, sizes, steps, prompt_tokens, threads, dtype), json)


@app.command()
def speculation(
    data: Annotated[Path, typer.Option(help="Questions with documents, as for gravity eval context.")],
    json: JsonFile = None,
    prompts: Annotated[int, typer.Option(min=1, max=30, help="Of each kind: with documents, open.")] = 30,
    max_tokens: Annotated[int, typer.Option(min=2, help="Of every answer.")] = 64,
    lengths: Annotated[str, typer.Option(help="Fixed draft lengths, comma-separated.")] = "3",
    threads: Threads = 1,
    dtype: DtypeName = "auto",
    model: Model = BUNDLED_MODEL,
) -> None:
    """Compare decoding without drafts, with drafts of a fixed length, and by entropy."""
    from worker.bench.speculation import SpeculationBench, run_speculation

    fixed = _counts_in(lengths, "--lengths")
    folder = _folder_of(model)
    run_speculation(SpeculationBench(folder, data, prompts, max_tokens, fixed, threads, dtype), json)


@app.command()
def batch(
    json: JsonFile = None,
    batches: Annotated[str, typer.Option(help="Requests that run together, comma-separated.")] = "4,8",
    requests: Annotated[int, typer.Option(min=1, max=8, help="Of each kind.")] = 6,
    rounds: Annotated[int, typer.Option(min=1, help="Measured rounds.")] = 4,
    lengths: Annotated[str, typer.Option(help="Fixed draft lengths, comma-separated.")] = "3",
    threads: Threads = 1,
    dtype: DtypeName = "auto",
    model: Model = BUNDLED_MODEL,
) -> None:
    """Compare a mixed batch without drafts, with drafts of a fixed length, and by entropy."""
    from worker.bench.speculation_batch import BatchBench, run_batches

    sizes, fixed = _counts_in(batches, "--batches"), _counts_in(lengths, "--lengths")
    folder = _folder_of(model)
    run_batches(BatchBench(folder, sizes, requests, rounds, fixed, threads, dtype), json)


@app.command()
def grouping(
    json: JsonFile = None,
    batches: Annotated[str, typer.Option(help="Even numbers of requests, comma-separated.")] = "4,8",
    lengths: Annotated[str, typer.Option(help="Tokens that half of them draft, comma-separated.")] = "1,3,7",
    context: Annotated[int, typer.Option(min=1, help="Tokens before the step.")] = 300,
    rounds: Annotated[int, typer.Option(min=1, help="Measured rounds.")] = 20,
    threads: Threads = 1,
    dtype: DtypeName = "auto",
    model: Model = BUNDLED_MODEL,
) -> None:
    """Compare a step in which half draft with the same step grouped, and with a pass for each group."""
    from worker.bench.grouping import GroupingBench, run_grouping

    sizes, drafted = _counts_in(batches, "--batches"), _counts_in(lengths, "--lengths")
    if any(size % 2 for size in sizes):
        raise typer.BadParameter("half of a batch drafts, so give even numbers", param_hint="--batches")
    folder = _folder_of(model)
    run_grouping(GroupingBench(folder, sizes, drafted, context, rounds, threads, dtype), json)


@app.command()
def prefill(
    json: JsonFile = None,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Tokens of the prompt.")] = 1500,
    rounds: Annotated[int, typer.Option(min=1, help="Measured rounds.")] = 3,
    threads: Threads = 1,
    dtype: Annotated[Literal["auto", "bf16", "fp32"], typer.Option(help="The rival uses the same.")] = "auto",
    model: Model = BUNDLED_MODEL,
) -> None:
    """Compare reading a prompt with transformers' forward pass, and with its matrix products alone."""
    from worker.bench.prefill import PrefillBench, run_prefill

    folder = _folder_of(model)
    run_prefill(PrefillBench(folder, prompt_tokens, rounds, threads, dtype), json)


@app.command()
def weights(
    data: Annotated[Path, typer.Option(help="Requests with documents, as for gravity eval context.")],
    json: JsonFile = None,
    passages: Annotated[int, typer.Option(min=2, help="Texts that the loss is measured on.")] = 30,
    passage_tokens: Annotated[int, typer.Option(min=2, help="Of every text.")] = 256,
    batches: Annotated[str, typer.Option(help="Batch sizes, comma-separated.")] = "1,8,32",
    turns: Annotated[int, typer.Option(min=1, help="Of five steps, for each batch size.")] = 12,
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Of the prompt that is read.")] = 1500,
    rounds: Annotated[int, typer.Option(min=1, help="Of reading it.")] = 5,
    threads: Threads = 1,
    dtype: DtypeName = "auto",
    model: Model = BUNDLED_MODEL,
) -> None:
    """Compare int8 weights with full ones: what the model says, by float32, and what a step costs."""
    from worker.bench.weights import WeightsBench, run_weights

    sizes = _counts_in(batches, "--batches")
    folder = _folder_of(model)
    bench = WeightsBench(
        folder, data, passages, passage_tokens, sizes, turns, prompt_tokens, rounds, threads, dtype
    )
    run_weights(bench, json)


@app.command()
def blocks(
    data: Annotated[Path, typer.Option(help="Questions with documents, as for gravity eval context.")],
    json: JsonFile = None,
    tokens: Annotated[str, typer.Option(help="Sizes of the contexts, comma-separated.")] = "2000,6000",
    contexts: Annotated[int, typer.Option(min=1, help="Of each size.")] = 6,
    continuation: Annotated[int, typer.Option(min=2, help="Tokens that follow a context.")] = 64,
    thresholds: Annotated[str, typer.Option(help="Of kv_blocks, comma-separated.")] = "1,4",
    reference: Annotated[float, typer.Option(min=0.1, help="reference_nats of kv_blocks.")] = 6.0,
    threads: Threads = 1,
    dtype: DtypeName = "auto",
    model: Model = BUNDLED_MODEL,
) -> None:
    """Compare attending to all blocks of a long text with some, chosen by us, Quest, recency and chance."""
    from worker.bench.blocks import BlocksBench, run_blocks

    sizes = _counts_in(tokens, "--tokens", "2000,6000")
    try:
        chosen = tuple(float(threshold) for threshold in thresholds.split(","))
    except ValueError as error:
        raise typer.BadParameter("give numbers, such as 1,4", param_hint="--thresholds") from error
    if min(sizes) < 256:
        raise typer.BadParameter("a context has at least 256 tokens", param_hint="--tokens")
    folder = _folder_of(model)
    run_blocks(
        BlocksBench(folder, data, sizes, contexts, continuation, chosen, reference, threads, dtype), json
    )


def _counts_in(text: str, option: str, such_as: str = "1,8,32") -> tuple[int, ...]:
    try:
        counts = tuple(int(count) for count in text.split(","))
    except ValueError as error:
        raise typer.BadParameter(f"give whole numbers, such as {such_as}", param_hint=option) from error
    if min(counts) < 1:
        raise typer.BadParameter("give numbers of at least 1", param_hint=option)
    return counts


def _folder_of(model: str) -> Path:
    try:
        return resolve_model(model)
    except ModelNotFoundError as error:
        raise typer.BadParameter(str(error), param_hint="--model") from error


if __name__ == "__main__":
    app()
