"""``gravity calibrate``: measure a task's entropies and set its range from them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.configuration import Namespace, Store
from gateway.cli.root import ConfigFolder, JsonFile, RedisUrl, app


@app.command()
def calibrate(
    task: Annotated[str, typer.Argument(help="The task that is measured.")],
    prompts: Annotated[Path, typer.Option(help="A prompt a line: text, or a request body as JSON.")],
    gateway: Annotated[str | None, typer.Option(help="URL; by default a stack is started for it.")] = None,
    model: Annotated[str | None, typer.Option(help="Default the gateway's first.")] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0.0, max=2.0, help="Default the task's own.")
    ] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Of each answer, where its line says none.")] = 128,
    parallel: Annotated[int, typer.Option(min=1, max=64, help="So many prompts at a time.")] = 4,
    plot: Annotated[Path | None, typer.Option(help="Also write the distribution of s as PNG.")] = None,
    json: JsonFile = None,
    publish: Annotated[
        bool, typer.Option("--publish", help="Publish what is proposed; needs --why.")
    ] = False,
    why: Annotated[str | None, typer.Option(help="The reason; it stays in the history.")] = None,
    who: Annotated[str | None, typer.Option(help="Whose change it is; default the login name.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Publish a jump that a guard holds back.")] = False,
    buckets: Annotated[bool, typer.Option("--buckets", help="Publish the buckets' edges too.")] = False,
    store: Store = None,
    config: ConfigFolder = None,
    redis: RedisUrl = None,
    namespace: Namespace = None,
) -> None:
    """Run a task's prompts unsteered, show s and H, and propose s_low, s_high, k_min, k_max and buckets."""
    from gateway.calibrate.command import CalibrateOptions, run_calibrate
    from gateway.calibrate.measure import Plan
    from gateway.calibrate.publish import PublishPlan
    from gateway.configure.publish import login_name
    from gateway.errors import CalibrationError
    from gateway.stack.target import Target
    from gateway.store.centre import Note

    if publish and not (why or "").strip():
        raise CalibrationError("--publish needs --why: the reason stays in the history")
    target = Target(store, config, redis, namespace)
    note = Note(who or login_name(), why or "", is_forced=force)
    plan = PublishPlan(target.settings(), note, buckets) if publish else None
    raise typer.Exit(
        run_calibrate(
            CalibrateOptions(
                Plan(task, max_tokens, temperature, model, parallel),
                prompts,
                gateway,
                config,
                json,
                plot,
                plan,
            )
        )
    )
