"""``gravity up | demo | gateway | worker | bench | example | chaos``."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Literal

import typer

from gateway.cli.root import ConfigFolder, JsonFile, app, group
from gateway.stack.ports import GATEWAY_PORT, VALKEY_PORT, WORKER_PORT

PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

GatewayPort = Annotated[int, typer.Option("--port", envvar="NG_PORT", help="Port of the gateway.")]
WorkerPort = Annotated[int, typer.Option(envvar="NG_WORKER_PORT", help="Port of the worker.")]
ValkeyPort = Annotated[int, typer.Option(help="Port of the embedded Valkey.")]
Model = Annotated[
    str | None, typer.Option(envvar="NG_WORKER_MODEL", help="A folder or a Hugging Face id in the cache.")
]
ExampleName = Literal["adaptive-k", "keyword-gravity"]


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
    """Measure the engine (decode, prefill, speculation, batch, grouping, weights, blocks) or a stack.

    The stack: gateway, serve, ablation, buckets, rag, soak. Each takes --json FILE.
    """
    subject, *options = context.args or ["--help"]
    if subject in ("gateway", "serve", "ablation", "buckets", "rag", "soak"):
        _become("gateway.bench", subject, *options)
    else:
        _become("worker.bench", subject, *options)


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


chaos = group("chaos", "Break a stack of one's own under load, and judge what came of it.")


@chaos.command("run")
def chaos_run(
    minutes: Annotated[float, typer.Option(min=0.1, help="How long there is load.")] = 20.0,
    seed: int = 1,
    json_file: JsonFile = None,
) -> None:
    """Pause and kill the processes of a stack of its own under load; 1 where anything is lost or left."""
    from gateway.chaos.command import run_chaos

    raise typer.Exit(run_chaos(minutes, seed, json_file))


@chaos.command()
def cancelling(
    times: Annotated[int, typer.Option(min=1, help="How often in each phase.")] = 200,
    json_file: JsonFile = None,
) -> None:
    """Measure how soon a worker is rid of a turn whose client has left; 1 where one takes over 50 ms."""
    from gateway.chaos.cancelling import run_cancelling

    raise typer.Exit(run_cancelling(times, json_file))


def _become(module: str, *arguments: str) -> None:
    """Replace this process by ``python -m module``, so that signals and exit status are its own."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", module, *arguments])
