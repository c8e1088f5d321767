"""``gravity trace … | replay``: recorded turns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.root import JsonFile, RedisUrl, TurnId, WorkerUrl, app, group

trace_app = group("trace", "Recorded turns.")


Task = Annotated[str | None, typer.Option("--task", help="Of this task.")]
Lane = Annotated[str | None, typer.Option("--lane", help="In this lane.")]
ConfigSha = Annotated[str | None, typer.Option("--config", help="Under this configuration: its sha's start.")]
Experiment = Annotated[str | None, typer.Option("--experiment", help="Of this experiment.")]
Status = Annotated[str | None, typer.Option("--status", help="ok, error or cancelled.")]
Model = Annotated[str | None, typer.Option("--model", help="Of this model.")]
User = Annotated[str | None, typer.Option("--user", help="Of this user, as the requests name it.")]
Since = Annotated[str | None, typer.Option("--since", help="Received since: 15m, 1h, 2d, 2026-11-30T10:00.")]
Until = Annotated[str | None, typer.Option("--until", help="Received until.")]
Limit = Annotated[int, typer.Option("--limit", min=1, help="So many at most, the newest first.")]


@app.command()
def replay(
    turn_id: Annotated[str | None, typer.Argument(help="The turn's id; with --batch none.")] = None,
    exact: Annotated[bool, typer.Option(help="Draw the tokens again from the seed.")] = False,
    config: Annotated[
        str | None, typer.Option(help="Try this configuration: sha, version number, head, or a folder.")
    ] = None,
    batch: Annotated[bool, typer.Option(help="Try it on all turns of a query.")] = False,
    task: Task = None,
    lane: Lane = None,
    config_was: Annotated[
        str | None, typer.Option("--config-was", help="With --batch: served under this sha.")
    ] = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
    redis: RedisUrl = None,
    worker: WorkerUrl = None,
    json: JsonFile = None,
) -> None:
    """Run a recorded turn again and compare every step; or run it under another configuration.

    Status: 0 within the tolerance, or nothing changes; 1 where a step differs, or an answer changes;
    2 where it cannot be run.
    """
    from gateway.errors import ReplayError

    if not batch and any(value is not None for value in (task, lane, config_was, since, until)):
        raise ReplayError("the filters belong to --batch")
    if config is None:
        from gateway.replay.command import ReplayOptions, run_replay

        if batch or turn_id is None:
            raise ReplayError("give a turn's id, or --batch with --config")
        raise typer.Exit(run_replay(ReplayOptions(turn_id, exact, redis, worker, json)))

    from gateway.replay.config_command import ConfigReplayOptions, run_batch, run_config_replay
    from gateway.trace.moments import between
    from gateway.trace.query import TurnQuery

    options = ConfigReplayOptions(config, redis, worker, json)
    if batch == (turn_id is not None) or exact:
        raise ReplayError("with --config give a turn's id or --batch, and not --exact")
    if turn_id is not None:
        raise typer.Exit(run_config_replay(turn_id, options))
    start, end = between(since, until)
    query = TurnQuery(task, lane, config_was, since=start, until=end, limit=limit)
    raise typer.Exit(run_batch(query, options))


@trace_app.command("list")
def trace_list(
    task: Task = None,
    lane: Lane = None,
    config: ConfigSha = None,
    experiment: Experiment = None,
    status: Status = None,
    model: Model = None,
    user: User = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = 50,
    json: Annotated[bool, typer.Option("--json", help="A line of JSON for each turn.")] = False,
    redis: RedisUrl = None,
) -> None:
    """List recorded turns, the last one first."""
    from gateway.stack.environment import redis_to_read
    from gateway.trace.listing import run_list, run_list_json
    from gateway.trace.moments import between
    from gateway.trace.query import TurnQuery

    start, end = between(since, until)
    query = TurnQuery(task, lane, config, experiment, status, start, end, user, limit, model)
    raise typer.Exit((run_list_json if json else run_list)(query, redis or redis_to_read()))


@trace_app.command("show")
def trace_show(
    turn_id: TurnId,
    redis: RedisUrl = None,
    worker: Annotated[str | None, typer.Option(help="URL; default NG_WORKERS. None is started.")] = None,
) -> None:
    """Show a turn: its record in short, its steps as a table, and H, G and k as charts.

    The tokens have their texts where the record kept the text and a worker of the model runs.
    """
    from gateway.replay.texts import token_texts
    from gateway.settings import GatewaySettings
    from gateway.stack.environment import redis_to_read
    from gateway.trace.show import run_show

    candidates = [worker] if worker else GatewaySettings().workers
    raise typer.Exit(run_show(turn_id, redis or redis_to_read(), token_texts(turn_id, candidates)))


@trace_app.command("export")
def trace_export(
    task: Task = None,
    lane: Lane = None,
    config: ConfigSha = None,
    experiment: Experiment = None,
    status: Status = None,
    model: Model = None,
    user: User = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int | None, typer.Option(help="So many at most; without it, all.", min=1)] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A file; without it, stdout.")] = None,
    redis: RedisUrl = None,
) -> None:
    """Write record and steps of every turn that is asked for, as lines of JSON."""
    from gateway.stack.environment import redis_to_read
    from gateway.trace.export import run_export
    from gateway.trace.moments import between
    from gateway.trace.query import TurnQuery

    start, end = between(since, until)
    query = TurnQuery(task, lane, config, experiment, status, start, end, user, limit, model)
    raise typer.Exit(run_export(query, redis or redis_to_read(), output))


@trace_app.command("tail")
def trace_tail(
    task: Task = None,
    lane: Lane = None,
    config: ConfigSha = None,
    experiment: Experiment = None,
    status: Status = None,
    model: Model = None,
    user: User = None,
    steps: Annotated[bool, typer.Option(help="Also show the steps of every turn that runs.")] = False,
    redis: RedisUrl = None,
) -> None:
    """Follow turns as they end, until Ctrl-C."""
    from gateway.stack.environment import redis_to_read
    from gateway.trace.query import TurnQuery
    from gateway.trace.tail import run_tail, run_tail_steps

    query = TurnQuery(task, lane, config, experiment, status, user=user, model=model)
    raise typer.Exit((run_tail_steps if steps else run_tail)(query, redis or redis_to_read()))


@trace_app.command("delete")
def trace_delete(
    turn_id: Annotated[str | None, typer.Argument(help="One turn's id; or give --user.")] = None,
    user: Annotated[str | None, typer.Option(help="All turns of this user, as the requests name it.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    redis: RedisUrl = None,
) -> None:
    """Delete a turn, or all that a user has left: records, steps, entries, feedback, parts in experiments.

    Status: 0 deleted, 1 nothing was there.
    """
    from gateway.cli.deletion import confirm, delete_turn, delete_user
    from gateway.errors import TraceError
    from gateway.stack.environment import redis_to_read

    url = redis or redis_to_read()
    if (turn_id is None) == (not user):
        raise TraceError("give a turn's id or --user, one of them")
    if not yes:
        confirm(f"turn {turn_id}" if turn_id else f"all turns of user {user}")
    raise typer.Exit(delete_turn(turn_id, url) if turn_id else delete_user(user or "", url))
