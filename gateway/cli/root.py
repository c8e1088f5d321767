"""The command itself, and the options that several subcommands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="narrative-gravity: prunes context, steers decoding, records every step.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

ConfigFolder = Annotated[Path | None, typer.Option("--config", help="Folder of the configuration documents.")]
RedisUrl = Annotated[str | None, typer.Option("--redis", help="URL; default NG_REDIS_URL, else port 6380.")]
WorkerUrl = Annotated[
    str | None, typer.Option("--worker", help="URL; default NG_WORKERS, else one is started.")
]
TurnId = Annotated[str, typer.Argument(help="The turn's id: header x-gravity-turn-id.")]
JsonFile = Annotated[Path | None, typer.Option("--json", help="Also write the result to this file.")]


def group(name: str, description: str) -> typer.Typer:
    """Return a new group of subcommands, ``gravity NAME …``."""
    commands = typer.Typer(help=description, no_args_is_help=True)
    app.add_typer(commands, name=name)
    return commands
