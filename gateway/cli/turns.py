"""``gravity trace … | replay``: recorded turns."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli.root import JsonFile, RedisUrl, TurnId, WorkerUrl, app, group

trace_app = group("trace", "Recorded turns.")


@app.command()
def replay(
    turn_id: TurnId,
    exact: Annotated[bool, typer.Option(help="Draw the tokens again from the seed.")] = False,
    redis: RedisUrl = None,
    worker: WorkerUrl = None,
    json: JsonFile = None,
) -> None:
    """Run a recorded turn again and compare H, G, k and logprob of every step.

    Status: 0 within the tolerance, 1 where a step differs, 2 where the turn cannot be replayed.
    """
    from gateway.replay.command import ReplayOptions, run_replay

    raise typer.Exit(run_replay(ReplayOptions(turn_id, exact, redis, worker, json)))


@trace_app.command("show")
def trace_show(turn_id: TurnId, redis: RedisUrl = None) -> None:
    """Show a turn's steps from Redis: a table, and H, G and k as charts."""
    from gateway.stack.environment import redis_to_read
    from gateway.trace.show import run_show

    raise typer.Exit(run_show(turn_id, redis or redis_to_read()))
