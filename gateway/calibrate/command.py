"""``gravity calibrate TASK --prompts FILE``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import orjson
from rich.console import Console

from gateway.calibrate.measure import TIMEOUT, Measurement, Plan, measure
from gateway.calibrate.plot import check_plot, plot_calibration
from gateway.calibrate.profile import profile
from gateway.calibrate.prompts import Body, read_prompts
from gateway.calibrate.publish import PublishPlan, publish_calibration
from gateway.calibrate.report import as_json, print_calibration
from gateway.errors import CalibrationError, StackError
from gateway.settings import GatewaySettings
from gateway.stack.child import keep_quiet
from gateway.stack.environment import child_environment, redis_to_read
from gateway.stack.ports import free_port
from gateway.stack.signals import until_signal
from gateway.stack.stack import StackPlan, running
from gateway.store.centre import Published


@dataclass(frozen=True, slots=True)
class CalibrateOptions:
    """``gateway_url`` None starts a stack of its own; ``publish`` None only shows."""

    plan: Plan
    prompts_file: Path
    gateway_url: str | None = None
    config: Path | None = None
    json_file: Path | None = None
    plot_file: Path | None = None
    publish: PublishPlan | None = None


def run_calibrate(options: CalibrateOptions) -> int:
    """Measure a task and show what follows; publish it where that is asked for. Return 0.

    Raises CalibrationError (status 2). What was measured is shown and written before anything is published.
    """
    bodies = read_prompts(options.prompts_file)
    _check_outputs(options)
    measured = asyncio.run(until_signal(_measured(options, bodies)))
    found = profile(measured.turns)
    console = Console(highlight=False)
    print_calibration(console, measured, found)
    if options.json_file is not None:
        content = as_json(measured, found)
        options.json_file.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2) + b"\n")
    if options.plot_file is not None:
        plot_calibration(measured, found, options.plot_file)
    if options.publish is not None:
        _print_published(console, publish_calibration(options.publish, measured, found))
    return 0


def _check_outputs(options: CalibrateOptions) -> None:
    """Before minutes are spent on what could not be written then."""
    for file in (options.json_file, options.plot_file):
        if file is not None and not file.resolve().parent.is_dir():
            raise CalibrationError(f"{file}: there is no such folder")
    if options.plot_file is not None:
        check_plot(options.plot_file)


async def _measured(options: CalibrateOptions, bodies: tuple[Body, ...]) -> Measurement:
    # Of a stack of its own the model is a setting, perhaps a folder; the gateway knows it by its name.
    plan = options.plan if options.gateway_url is not None else replace(options.plan, model=None)
    async with _client(options) as client:
        return await measure(client, plan, bodies)


@asynccontextmanager
async def _client(options: CalibrateOptions) -> AsyncIterator[httpx.AsyncClient]:
    """Give a client of the gateway named, or of one started for this, before a worker of its own."""
    settings = GatewaySettings()
    key = settings.admin_key.get_secret_value() if settings.admin_key else ""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    if options.gateway_url is not None:
        async with httpx.AsyncClient(
            base_url=options.gateway_url, timeout=TIMEOUT, headers=headers
        ) as client:
            yield client
        return
    # Where Redis holds the configuration it is needed; else nothing of the measurement goes to anybody's.
    redis_url = redis_to_read() if settings.config_store == "redis" else None
    environment = child_environment(options.config, options.plan.model)
    plan = StackPlan(free_port(), free_port(), free_port(), redis_url, environment)
    try:
        async with (
            running(plan, keep_quiet) as stack,
            httpx.AsyncClient(base_url=stack.gateway_url, timeout=TIMEOUT, headers=headers) as client,
        ):
            yield client
    except StackError as error:
        raise CalibrationError(f"no stack can be started to measure with: {error}") from error


def _print_published(console: Console, published: Published) -> None:
    for change in published.changes:
        console.print(f"{change.path}: {change.before} -> {change.after}", markup=False)
    for warning in published.warnings:
        console.print(f"warning: {warning}", markup=False)
    if published.sha == published.from_sha:
        console.print(f"version {published.number} has it all; nothing is published")
    else:
        console.print(f"published as version {published.number}, {published.sha[:12]}")
