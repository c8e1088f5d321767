"""``python -m gateway.bench``: measure the gateway and the worker against what one would run instead."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from gateway.errors import CommandError

if TYPE_CHECKING:
    from rich.console import Console

    from gateway.bench.environments import Package

Python = Annotated[
    Path | None, typer.Option(help="An interpreter that has it; default: as --install left it.")
]
Report: TypeAlias = dict[str, Any]
WIDTH = 130
"""Of the tables, in a file."""

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def gateway(
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    litellm_python: Python = None,
    vllm_router_python: Python = None,
    install: Annotated[
        bool,
        typer.Option("--install", help="First put LiteLLM and vllm-router into environments of their own."),
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A few seconds, to see that it runs.")] = False,
) -> None:
    """Compare what the gateway costs with no proxy, LiteLLM's and vllm-router, all before one upstream."""
    from rich.console import Console

    from gateway.bench.cells import QUICK, Plan
    from gateway.bench.measure import Rivals, measure
    from gateway.bench.report import print_report, report_of
    from gateway.bench.targets import PACKAGES
    from gateway.stack.signals import until_signal

    console = Console(stderr=True)
    if install:
        _install(PACKAGES, console)
    plan = QUICK if quick else Plan()
    rivals = Rivals(litellm_python, vllm_router_python)
    result = asyncio.run(until_signal(measure(plan, rivals, lambda said: console.print(said, style="dim"))))
    report = report_of(result, plan)
    _deliver(report, json, print_report)


@app.command()
def serve(
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    clients: Annotated[int, typer.Option(help="A closed loop of so many.")] = 8,
    rate: Annotated[float | None, typer.Option(help="Requests a second, Poisson, not in a loop.")] = None,
    mix: Annotated[str, typer.Option(help="Shares of the kinds.")] = "short=1,json=1,rag=1,open=1",
    requests: Annotated[int, typer.Option(min=1, help="In each block.")] = 16,
    blocks: Annotated[int, typer.Option(min=1)] = 5,
    seed: int = 0,
    threads: Annotated[int, typer.Option(min=1, help="For the matrices, of every engine.")] = 1,
    rivals: Annotated[str, typer.Option(help="Names, or nothing.")] = "transformers-cb,llama.cpp,vllm",
    install: Annotated[
        bool, typer.Option("--install", help="First put llama.cpp and vLLM into environments of their own.")
    ] = False,
) -> None:
    """Compare our worker over HTTP with other engines on the same prompts."""
    from rich.console import Console

    from gateway.bench.serve.arrivals import Arrivals
    from gateway.bench.serve.engines import PACKAGES, RIVALS, Setting
    from gateway.bench.serve.measure import ServePlan
    from gateway.bench.serve.measure import serve as serve_all
    from gateway.bench.serve.mix import parse_shares
    from gateway.bench.serve.report import print_report, report_of
    from gateway.stack.signals import until_signal

    console = Console(stderr=True)
    names = tuple(name for name in rivals.split(",") if name)
    if unknown := set(names) - set(RIVALS):
        raise CommandError(f"--rivals {', '.join(unknown)}: they are {', '.join(RIVALS)}")
    if install:
        _install(PACKAGES, console)
    setting = Setting(_bundled_model(), threads, clients)
    plan = ServePlan(setting, parse_shares(mix), Arrivals(clients, rate), requests, blocks, seed, names)
    served = asyncio.run(until_signal(serve_all(plan, lambda said: console.print(said, style="dim"))))
    report = report_of(served, plan)
    _deliver(report, json, print_report)


@app.command()
def ablation(
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    blocks: Annotated[int, typer.Option(min=1)] = 5,
    questions: Annotated[int, typer.Option(min=1, max=8, help="Of the bundled ones, in each block.")] = 8,
    clients: Annotated[int, typer.Option(min=1, help="A closed loop of so many.")] = 4,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    arms: Annotated[
        str, typer.Option(help="Of these alone, comma-separated, beside the baseline.")
    ] = "+context,+sampling,+scheduling,+KV blocks,+speculation",
) -> None:
    """Compare what each part of the product adds, by the real gateway and worker."""
    from rich.console import Console

    from gateway.bench.ablation.arms import arms_named
    from gateway.bench.ablation.measure import AblationPlan, ablate
    from gateway.bench.ablation.report import print_report, report_of
    from gateway.stack.signals import until_signal

    console = Console(stderr=True)
    plan = AblationPlan(blocks, questions, clients, seed, arms_named(arms))
    ablated = asyncio.run(until_signal(ablate(plan, lambda said: console.print(said, style="dim"))))
    report = report_of(ablated, plan)
    _deliver(report, json, print_report)


@app.command()
def buckets(
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    rate: Annotated[float, typer.Option(min=0.01, help="Requests a second, Poisson.")] = 0.6,
    mix: Annotated[
        str, typer.Option(help="Shares of the kinds short, json and open.")
    ] = "short=1,json=1,open=1",
    requests: Annotated[int, typer.Option(min=1, help="In each block.")] = 12,
    blocks: Annotated[int, typer.Option(min=1)] = 5,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    drafts: Annotated[str, typer.Option(help="How tasks draft: entropy or fixed.")] = "entropy",
    max_draft: Annotated[int, typer.Option(min=1, max=64, help="Of the tasks.")] = 8,
    arms: Annotated[str, typer.Option(help="Comma-separated.")] = "buckets,load,random,no drafts",
) -> None:
    """Compare buckets with random and with least loaded, over two workers of different settings."""
    from rich.console import Console

    from gateway.bench.buckets.arms import arms_named, drafts_named, kinds_of
    from gateway.bench.buckets.measure import BucketsPlan, measure
    from gateway.bench.buckets.report import print_report, report_of
    from gateway.bench.serve.mix import parse_shares
    from gateway.stack.signals import until_signal

    console = Console(stderr=True)
    shares, mode, chosen = kinds_of(parse_shares(mix)), drafts_named(drafts), arms_named(arms)
    plan = BucketsPlan(_bundled_model(), rate, shares, requests, blocks, seed, mode, max_draft, chosen)
    measured = asyncio.run(until_signal(measure(plan, lambda said: console.print(said, style="dim"))))
    _deliver(report_of(measured, plan), json, print_report)


@app.command()
def rag(
    data: Annotated[list[Path], typer.Option(help="Labelled requests, as gravity eval answers reads them.")],
    json: Annotated[Path | None, typer.Option(help="Write the figures to this file.")] = None,
    questions: Annotated[int, typer.Option(min=1)] = 20,
    rounds: Annotated[int, typer.Option(min=1, help="Each on a stack of its own.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Draws other questions.")] = 0,
    rival_dtype: Annotated[str | None, typer.Option(help="bf16 or fp32; default: the worker's.")] = None,
) -> None:
    """Compare whole requests with twenty documents with transformers' generate, which reads all of them."""
    from rich.console import Console

    from gateway.bench.rag.measure import DTYPES, RagPlan, measure
    from gateway.bench.rag.report import print_report, report_of
    from gateway.stack.signals import until_signal

    console = Console(stderr=True)
    if rival_dtype not in (None, *DTYPES):
        raise CommandError(f"--rival-dtype {rival_dtype}: it is one of {', '.join(DTYPES)}")
    plan = RagPlan(tuple(data), _bundled_model(), questions, rounds, seed, rival_dtype)
    measured = asyncio.run(until_signal(measure(plan, lambda said: console.print(said, style="dim"))))
    _deliver(report_of(measured, plan), json, print_report)


@app.command()
def soak(
    json: Annotated[Path | None, typer.Option(help="Write what was seen to this file.")] = None,
    minutes: Annotated[float, typer.Option(min=0.05, help="How long there is load.")] = 30.0,
    clients: Annotated[int, typer.Option(min=1, help="A closed loop of so many.")] = 10,
    seed: Annotated[int, typer.Option(min=0)] = 1,
) -> None:
    """Load a gateway and a worker with all that clients do; 1 where anything is wrong or left behind."""
    from rich.console import Console

    from gateway.bench.soak.report import print_report, report_of
    from gateway.bench.soak.run import SoakPlan
    from gateway.bench.soak.run import soak as run_soak
    from gateway.stack.signals import until_signal

    console = Console(stderr=True)
    plan = SoakPlan(60.0 * minutes, seed, clients)
    soaked = asyncio.run(until_signal(run_soak(plan, lambda said: console.print(said, style="dim"))))
    report = report_of(soaked, plan)
    _deliver(report, json, print_report)
    raise typer.Exit(0 if report["is_good"] else 1)


def _deliver(
    report: dict[str, Any], json: Path | None, show: Callable[[dict[str, Any], Console], None]
) -> None:
    """Write a report to the file, where there is one, and show it."""
    import orjson
    from rich.console import Console

    if json is not None:
        json.write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2))
    show(report, Console(width=None if sys.stdout.isatty() else WIDTH))


def _install(packages: Sequence[Package], console: Console) -> None:
    from gateway.bench.environments import install as install_package

    for package in packages:
        console.print(f"installing {package.name}")
        install_package(package)


def _bundled_model() -> Path:
    """Return the bundled model's folder. A process of the worker's finds it: the gateway knows none."""
    found = "from worker.models import BUNDLED_MODEL, resolve_model; print(resolve_model(BUNDLED_MODEL))"
    done = subprocess.run([sys.executable, "-c", found], check=False, capture_output=True, text=True)
    if done.returncode:
        raise CommandError(f"the bundled model is missing: {done.stderr.strip()[-500:]}")
    return Path(done.stdout.strip().splitlines()[-1])


def main() -> None:
    """Status 2: it could not run, and stderr says why."""
    from gateway.stack.signals import InterruptedBySignal

    try:
        app()
    except CommandError as error:
        print(f"gravity: {error}", file=sys.stderr)
        sys.exit(2)
    except InterruptedBySignal as interruption:
        sys.exit(interruption.exit_status)


if __name__ == "__main__":
    main()
