"""The command ``gravity``: every subcommand and its options in one table; the work is elsewhere."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from gateway.errors import CommandError
from gateway.stack.ports import GATEWAY_PORT, VALKEY_PORT, WORKER_PORT
from gateway.stack.signals import InterruptedBySignal

app = typer.Typer(
    help="narrative-gravity: prunes context, steers decoding, records every step.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
config_app = typer.Typer(help="Configuration documents.", no_args_is_help=True)
trace_app = typer.Typer(help="Recorded turns.", no_args_is_help=True)
train_app = typer.Typer(help="Learn from labelled requests.", no_args_is_help=True)
eval_app = typer.Typer(help="Measure the product on labelled requests.", no_args_is_help=True)
app.add_typer(config_app, name="config")
app.add_typer(trace_app, name="trace")
app.add_typer(eval_app, name="eval")
app.add_typer(train_app, name="train")

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

GatewayPort = Annotated[int, typer.Option("--port", envvar="NG_PORT", help="Port of the gateway.")]
WorkerPort = Annotated[int, typer.Option(envvar="NG_WORKER_PORT", help="Port of the worker.")]
ValkeyPort = Annotated[int, typer.Option(help="Port of the embedded Valkey.")]
Model = Annotated[
    str | None, typer.Option(envvar="NG_WORKER_MODEL", help="A folder or a Hugging Face id in the cache.")
]
ConfigFolder = Annotated[Path | None, typer.Option("--config", help="Folder of the configuration documents.")]
RedisUrl = Annotated[str | None, typer.Option("--redis", help="URL; default NG_REDIS_URL, else port 6380.")]
ExampleName = Literal["adaptive-k", "keyword-gravity"]
LabelledData = Annotated[list[Path], typer.Option("--data", help="Labelled requests, JSON lines, .gz too.")]
MoreData = Annotated[list[Path] | None, typer.Argument(hidden=True)]  # --data takes several: --data A B
TurnId = Annotated[str, typer.Argument(help="The turn's id: header x-gravity-turn-id.")]


@app.command()
def up(
    port: GatewayPort = GATEWAY_PORT,
    worker_port: WorkerPort = WORKER_PORT,
    valkey_port: ValkeyPort = VALKEY_PORT,
    model: Model = None,
    config: ConfigFolder = None,
) -> None:
    """Run Valkey (or use NG_REDIS_URL), a worker and the gateway on 127.0.0.1 until Ctrl-C."""
    from gateway.stack.environment import child_environment, configured_redis_url
    from gateway.stack.stack import StackPlan
    from gateway.up import run_up

    environment = child_environment(config, model)
    plan = StackPlan(port, worker_port, valkey_port, configured_redis_url(), environment)
    raise typer.Exit(run_up(plan))


@app.command()
def demo() -> None:
    """Show one question on its way through the product, on processes of its own."""
    from gateway.demo.demo import run_demo

    raise typer.Exit(run_demo())


@app.command("gateway")
def run_gateway() -> None:
    """Run the gateway alone; its settings come from the environment."""
    _become("gateway")


@app.command("worker")
def run_worker() -> None:
    """Run a worker alone; its settings come from the environment."""
    _become("worker")


@app.command(context_settings=PASS_ON)
def bench(context: typer.Context) -> None:
    """Measure the worker: gravity bench decode --json FILE."""
    _become("worker.bench", *context.args)


@app.command()
def replay(
    turn_id: TurnId,
    exact: Annotated[bool, typer.Option(help="Draw the tokens again from the seed.")] = False,
    redis: RedisUrl = None,
    worker: Annotated[str | None, typer.Option(help="URL; default NG_WORKERS, else one is started.")] = None,
    json: Annotated[Path | None, typer.Option(help="Also write the comparison to this file.")] = None,
) -> None:
    """Run a recorded turn again and compare H, G, k and logprob of every step.

    Status: 0 within the tolerance, 1 where a step differs, 2 where the turn cannot be replayed.
    """
    from gateway.replay.command import ReplayOptions, run_replay

    raise typer.Exit(run_replay(ReplayOptions(turn_id, exact, redis, worker, json)))


@app.command()
def example(
    name: Annotated[ExampleName, typer.Argument()],
    worker: Annotated[str | None, typer.Option(help="URL; with --redis, nothing is started.")] = None,
    redis: Annotated[str | None, typer.Option(help="URL of the Redis that this worker writes to.")] = None,
    seed: int = 2,
) -> None:
    """Run an experiment on a real worker: entropy-driven k, or gravity by keywords."""
    from gateway.examples.command import ExampleOptions, run_example

    raise typer.Exit(run_example(ExampleOptions(name, worker, redis, seed)))


@trace_app.command("show")
def trace_show(turn_id: TurnId, redis: RedisUrl = None) -> None:
    """Show a turn's steps from Redis: a table, and H, G and k as charts."""
    from gateway.stack.environment import redis_to_read
    from gateway.trace.show import run_show

    raise typer.Exit(run_show(turn_id, redis or redis_to_read()))


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
    json: Annotated[Path | None, typer.Option(help="Also write the figures to this file.")] = None,
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
    json: Annotated[Path | None, typer.Option(help="Also write the figures to this file.")] = None,
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


@config_app.command("validate")
def config_validate(folder: Annotated[Path | None, typer.Argument()] = None) -> None:
    """Check every document of a folder, and say what is wrong where."""
    from gateway.validate import run_validate

    raise typer.Exit(run_validate(folder))


def _become(module: str, *arguments: str) -> None:
    """Replace this process by ``python -m module``, so that signals and exit status are its own."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])


def main() -> None:
    """Entry point. Status 2: the command could not run, and stderr says why."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # charts need more than ASCII, and shall not fail on it
    try:
        app()
    except CommandError as error:
        print(f"gravity: {error}", file=sys.stderr)
        sys.exit(2)
    except InterruptedBySignal as interruption:
        sys.exit(interruption.exit_status)


if __name__ == "__main__":
    main()
