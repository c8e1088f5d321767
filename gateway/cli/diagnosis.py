"""``gravity diagnose``: what is wrong with recorded turns."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli.root import JsonFile, RedisUrl, app

GivenWorker = Annotated[
    str | None, typer.Option("--worker", help="URL; default NG_WORKERS. Shows the likeliest tokens.")
]


@app.command()
def diagnose(
    turn_id: Annotated[str | None, typer.Argument(help="The turn's id, or none with --task.")] = None,
    task: Annotated[str | None, typer.Option(help="Diagnose this task's turns together.")] = None,
    since: Annotated[str | None, typer.Option(help="With --task: received since, as 1h or a date.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="With --task: so many at most, the newest first.")] = 200,
    redis: RedisUrl = None,
    worker: GivenWorker = None,
    json: JsonFile = None,
) -> None:
    """Say what is wrong with a recorded turn, or with a task's, and what to change.

    Status: 0 where nothing is found, 1 where something is, 2 where it cannot be read.
    """
    from gateway.diagnose.command import DiagnoseOptions, run_diagnose, run_diagnose_task
    from gateway.errors import TraceError
    from gateway.trace.moments import between
    from gateway.trace.query import TurnQuery

    options = DiagnoseOptions(redis, worker, json)
    if (turn_id is None) == (task is None):
        raise TraceError("give a turn's id or --task, one of them")
    if turn_id is not None:
        raise typer.Exit(run_diagnose(turn_id, options))
    start, _ = between(since, None)
    raise typer.Exit(run_diagnose_task(TurnQuery(task=task, since=start, limit=limit), options))
