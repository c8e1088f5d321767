"""``gravity experiment …``: what the arms of an experiment have done."""

from __future__ import annotations

from typing import Annotated

import typer

from gateway.cli.configuration import Namespace, Store
from gateway.cli.root import ConfigFolder, JsonFile, RedisUrl, group

experiment_app = group("experiment", "Experiments: which there are, and what they found.")


@experiment_app.command("list")
def experiment_list(
    store: Store = None,
    config: ConfigFolder = None,
    redis: RedisUrl = None,
    namespace: Namespace = None,
) -> None:
    """List the experiments of the configuration in force."""
    from gateway.experiment.listing import run_list
    from gateway.experiment.source import ExperimentSource
    from gateway.stack.target import Target

    raise typer.Exit(run_list(ExperimentSource(Target(store, config, redis, namespace))))


@experiment_app.command("report")
def experiment_report(
    experiment_id: Annotated[str, typer.Argument(metavar="ID", help="The experiment's id.")],
    version: Annotated[int | None, typer.Option(min=1, help="An earlier one; default the newest.")] = None,
    json: JsonFile = None,
    store: Store = None,
    config: ConfigFolder = None,
    redis: RedisUrl = None,
    namespace: Namespace = None,
) -> None:
    """Say what an experiment has found: the verdict, then every metric with its interval."""
    from gateway.experiment.report import ReportOptions, run_report
    from gateway.experiment.source import ExperimentSource
    from gateway.stack.target import Target

    source = ExperimentSource(Target(store, config, redis, namespace))
    raise typer.Exit(run_report(source, ReportOptions(experiment_id, version, json)))
