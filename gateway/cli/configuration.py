"""``gravity config …``: the configuration documents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.root import group

config_app = group("config", "Configuration documents.")


@config_app.command("validate")
def config_validate(folder: Annotated[Path | None, typer.Argument()] = None) -> None:
    """Check every document of a folder, and say what is wrong where."""
    from gateway.configure.validate import run_validate

    raise typer.Exit(run_validate(folder))
