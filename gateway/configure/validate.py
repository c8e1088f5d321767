"""``gravity config validate``: are these documents what the gateway would serve?"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.errors import ConfigError
from gateway.stack.environment import config_folder, described
from gateway.store.snapshot import Snapshot
from gateway.store.watch import ConfigStore

VALID, INVALID = 0, 1


def run_validate(folder: Path | None) -> int:
    """Print what the folder holds and return 0; or what is wrong, and where, and return 1."""
    console = Console(highlight=False)
    folder = folder or config_folder()
    try:
        snapshot = ConfigStore.open(folder).snapshot
    except ConfigError as error:
        console.print(Text(f"invalid: {described(error)}"), soft_wrap=True)
        return INVALID
    print_snapshot(console, folder, snapshot)
    return VALID


def print_snapshot(console: Console, folder: Path, snapshot: Snapshot) -> None:
    """One row a task, one line an experiment, and the sha that requests will carry."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("task", "gravity", "k", "temperature"):
        table.add_column(name)
    for name, task in sorted(snapshot.tasks.items()):
        adaptive = f"{task.adaptive.k_min} to {task.adaptive.k_max}" if task.adaptive else "-"
        temperature = task.sampling.temperature
        table.add_row(
            name, f"{task.gravity_strength:g}", adaptive, "-" if temperature is None else f"{temperature:g}"
        )
    console.print(table)
    for experiment in snapshot.experiments:
        arms = ", ".join(arm.name for arm in experiment.arms)
        state = "active" if experiment.is_active else "not active"
        console.print(Text(f"experiment {experiment.id}: {arms} ({state}, coverage {experiment.coverage:g})"))
    console.print(Text(f"valid: {folder}, sha {snapshot.sha}"), soft_wrap=True)
