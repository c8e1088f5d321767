"""``python -m gateway.bench``: measure the gateway against what its users would run instead."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from gateway.errors import CommandError

Python = Annotated[
    Path | None, typer.Option(help="An interpreter that has it; default: as --install left it.")
]
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
    import orjson
    from rich.console import Console

    from gateway.bench.cells import QUICK, Plan
    from gateway.bench.measure import Rivals, measure
    from gateway.bench.report import print_report, report_of
    from gateway.bench.targets import PACKAGES
    from gateway.bench.targets import install as install_package
    from gateway.stack.signals import until_signal

    console = Console(stderr=True)
    if install:
        for name in PACKAGES:
            console.print(f"installing {name}")
            install_package(name)
    plan = QUICK if quick else Plan()
    rivals = Rivals(litellm_python, vllm_router_python)
    result = asyncio.run(until_signal(measure(plan, rivals, lambda said: console.print(said, style="dim"))))
    report = report_of(result, plan)
    if json is not None:
        json.write_bytes(orjson.dumps(report, option=orjson.OPT_INDENT_2))
    print_report(report, Console(width=None if sys.stdout.isatty() else WIDTH))


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
