"""The command ``gravity``: subcommands and their options; the work is elsewhere."""

from __future__ import annotations

import io
import sys

from gateway.cli import calibration, configuration, diagnosis, experiments, keys, learning, processes, turns
from gateway.cli.root import app
from gateway.errors import CommandError
from gateway.stack.signals import InterruptedBySignal

__all__ = [
    "app",
    "calibration",
    "configuration",
    "diagnosis",
    "experiments",
    "keys",
    "learning",
    "main",
    "processes",
    "turns",
]


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
