"""``gravity eval context``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson
from rich.console import Console

from gateway.context.embed import EncoderSettings
from gateway.context.selector import Selector
from gateway.errors import CommandError, ConfigError
from gateway.evaluation.conflict_recall import measure_conflicts, read_pairs
from gateway.evaluation.evaluate import OVERALL, evaluate_context
from gateway.evaluation.plot import check_plot, plot_context
from gateway.evaluation.report import as_json
from gateway.evaluation.tables import print_conflicts, print_evaluation
from gateway.lab.labelled import LabelledRequest, read_labelled
from gateway.stack.signals import until_signal

_COLUMNS = 100


@dataclass(frozen=True, slots=True)
class ContextOptions:
    data: tuple[Path, ...]
    json_file: Path | None = None
    plot_file: Path | None = None
    conflicts_file: Path | None = None
    """Pairs of texts to measure the conflict detector with."""
    selector_file: Path | None = None
    """What ``gravity train context`` wrote; without it, what comes with the package."""
    seed: int = 0


def run_eval_context(options: ContextOptions) -> int:
    """Print the figures and return 0. Raises CommandError where they cannot be had."""
    requests = read_labelled(options.data)
    pairs = read_pairs(options.conflicts_file) if options.conflicts_file is not None else None
    _check(options, requests)
    selector = _selector(options.selector_file)
    evaluating = evaluate_context(requests, EncoderSettings(), selector, options.seed)
    evaluation = asyncio.run(until_signal(evaluating))
    conflicts = measure_conflicts(pairs, requests, options.seed) if pairs is not None else None
    console = Console(highlight=False, width=_COLUMNS)
    print_evaluation(console, evaluation)
    if conflicts is not None:
        print_conflicts(console, conflicts)
    try:
        if options.json_file is not None:
            found = as_json(evaluation, conflicts)
            options.json_file.write_bytes(orjson.dumps(found, option=orjson.OPT_INDENT_2) + b"\n")
        if options.plot_file is not None:
            plot_context(evaluation, options.plot_file)
    except OSError as error:
        raise CommandError(f"{error.filename} cannot be written: {error.strerror}") from error
    return 0


def _selector(file: Path | None) -> Selector:
    try:
        return Selector.load(file)
    except ConfigError as error:
        raise CommandError(f"{error.file}: {error}") from error


def _check(options: ContextOptions, requests: Sequence[LabelledRequest]) -> None:
    """Find what would fail only after minutes of work. Raises CommandError."""
    if any(request.set == OVERALL for request in requests):
        raise CommandError(f"a set cannot be called {OVERALL!r}: that is all of them together")
    empty = next((request.id for request in requests if not request.documents), None)
    if empty is not None:
        raise CommandError(f"request {empty!r} has no documents")
    if options.plot_file is not None:
        check_plot(options.plot_file)
    for file in filter(None, (options.json_file, options.plot_file)):
        if not file.parent.is_dir():
            raise CommandError(f"{file} cannot be written: there is no folder {file.parent}")
