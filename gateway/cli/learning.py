"""``gravity train … | eval …``: labelled requests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.root import JsonFile, group

train_app = group("train", "Learn from labelled requests.")
eval_app = group("eval", "Measure the product on labelled requests.")

LabelledData = Annotated[list[Path], typer.Option("--data", help="Labelled requests, JSON lines, .gz too.")]
MoreData = Annotated[list[Path] | None, typer.Argument(hidden=True)]  # --data takes several: --data A B


@train_app.command("context")
def train_context(
    data: LabelledData,
    out: Annotated[Path, typer.Option(help="The selector; its card goes beside it, as .md.")],
    more_data: MoreData = None,
    seed: Annotated[int, typer.Option(help="Of folds, variations and trees.")] = 0,
) -> None:
    """Learn which documents to keep, and choose the settings' thresholds out of fold."""
    from gateway.training.context import TrainOptions, run_train_context
    from gateway.training.fitting import Recipe

    raise typer.Exit(run_train_context(TrainOptions((*data, *(more_data or ())), out, Recipe(seed=seed))))


@eval_app.command("context")
def eval_context(
    data: LabelledData,
    more_data: MoreData = None,
    json: JsonFile = None,
    plot: Annotated[Path | None, typer.Option(help="Also write recall against tokens as PNG.")] = None,
    conflicts: Annotated[Path | None, typer.Option(help="Pairs of texts, contradicting or not.")] = None,
    selector: Annotated[
        Path | None, typer.Option(help="Another than the package's: gravity train context.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
) -> None:
    """Measure context pruning against what one would use instead: recall, tokens, cost."""
    from gateway.evaluation.context import ContextOptions, run_eval_context

    files = (*data, *(more_data or ()))
    raise typer.Exit(run_eval_context(ContextOptions(files, json, plot, conflicts, selector, seed)))


@eval_app.command("answers")
def eval_answers(
    data: LabelledData,
    more_data: MoreData = None,
    json: JsonFile = None,
    results: Annotated[
        Path | None,
        typer.Option(help="JSON lines: each answer as it comes; a second run goes on from there."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only so many requests, drawn by the seed.")
    ] = None,
    workers: Annotated[
        int, typer.Option(min=1, help="Worker processes, a core each, that share the work.")
    ] = 1,
    seed: Annotated[int, typer.Option(help="Of the order of requests and of the bootstrap.")] = 0,
) -> None:
    """Let the real worker answer from all chunks, ours, the top 5, none: right answers, time, CPU."""
    from gateway.evaluation.answers import AnswersOptions, run_eval_answers

    files = (*data, *(more_data or ()))
    raise typer.Exit(run_eval_answers(AnswersOptions(files, json, results, limit, workers, seed)))
