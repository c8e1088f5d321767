"""``gravity config …``: the configuration centre, on the store itself, whether a gateway runs or not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from gateway.cli.root import ConfigFolder, RedisUrl, group

if TYPE_CHECKING:
    from gateway.configure.speech import Tell

config_app = group("config", "The configuration: documents, versions, publishing, rollback.")

NEGATIVE = {"ignore_unknown_options": True}
"""So that -1 is an argument."""

Store = Annotated[
    Literal["files", "redis"] | None,
    typer.Option(help="Where the configuration lives; default NG_CONFIG_STORE, else files."),
]
Namespace = Annotated[str | None, typer.Option(help="In Redis; default NG_CONFIG_NAMESPACE, else 'default'.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Sources = Annotated[
    list[Path] | None, typer.Argument(help="One folder, which is everything, or single files.")
]
Why = Annotated[str, typer.Option(help="The reason; it stays in the history.")]
Who = Annotated[str | None, typer.Option(help="Whose change it is; default the login name.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check and say what would change; write nothing.")]
Force = Annotated[bool, typer.Option("--force", help="Let a jump through that a guard holds back.")]
REFERENCE = "head, a version's number, -1 for the one before the head, or the start of a sha."


@config_app.command("list")
def config_list(
    store: Store = None,
    config: ConfigFolder = None,
    redis: RedisUrl = None,
    namespace: Namespace = None,
    as_json: AsJson = False,
) -> None:
    """List the documents in force."""
    from gateway.configure.listing import run_list
    from gateway.stack.target import Target

    raise typer.Exit(run_list(Target(store, config, redis, namespace), _tell(as_json)))


@config_app.command("show")
def config_show(
    name: Annotated[str | None, typer.Argument(help="A task or an experiment; default all.")] = None,
    at: Annotated[str, typer.Option(help=REFERENCE)] = "head",
    written: Annotated[
        bool, typer.Option("--written/--effective", help="As written, or with all that is in force.")
    ] = False,
    store: Store = None,
    config: ConfigFolder = None,
    redis: RedisUrl = None,
    namespace: Namespace = None,
    as_json: AsJson = False,
) -> None:
    """Show a document: each field in force, and whether it is written here, from default, or the schema's."""
    from gateway.configure.show import ShowOptions, run_show
    from gateway.stack.target import Target

    options = ShowOptions(name, at, written, _tell(as_json))
    raise typer.Exit(run_show(Target(store, config, redis, namespace), options))


@config_app.command("validate")
def config_validate(
    paths: Sources = None,
    store: Store = None,
    config: ConfigFolder = None,
    redis: RedisUrl = None,
    namespace: Namespace = None,
    as_json: AsJson = False,
) -> None:
    """Check a folder, or single files together with what is in force, and say what is wrong where."""
    from gateway.configure.validate import run_validate
    from gateway.stack.target import Target

    raise typer.Exit(run_validate(paths or (), Target(store, config, redis, namespace), _tell(as_json)))


@config_app.command("diff", context_settings=NEGATIVE)
def config_diff(
    one: Annotated[str | None, typer.Argument(help=f"A folder, or {REFERENCE}")] = None,
    other: Annotated[str | None, typer.Argument(help="The same; default the folder.")] = None,
    store: Store = None,
    config: ConfigFolder = None,
    redis: RedisUrl = None,
    namespace: Namespace = None,
    as_json: AsJson = False,
) -> None:
    """Print what differs, field by field, by default the head against the folder; status 1 where it does."""
    from gateway.configure.difference import run_diff
    from gateway.stack.target import Target

    raise typer.Exit(run_diff(Target(store, config, redis, namespace), one, other, _tell(as_json)))


@config_app.command("publish")
def config_publish(
    why: Why,
    paths: Sources = None,
    who: Who = None,
    dry_run: DryRun = False,
    force: Force = False,
    share: Annotated[
        float | None, typer.Option(help="Of the traffic, at most 0.5: try the change on it first.")
    ] = None,
    expect: Annotated[str | None, typer.Option(help="The head's sha: refuse where it is another.")] = None,
    remove: Annotated[
        list[str] | None, typer.Option(help="tasks.NAME or experiments.ID to take out; may be repeated.")
    ] = None,
    store: Store = None,
    config: ConfigFolder = None,
    redis: RedisUrl = None,
    namespace: Namespace = None,
    as_json: AsJson = False,
) -> None:
    """Publish a folder as everything, or single files into what is in force; all or nothing."""
    from gateway.configure.publish import PublishOptions, login_name, run_publish
    from gateway.stack.target import Target
    from gateway.store.centre import Note

    options = PublishOptions(
        note=Note(who or login_name(), why, "publish", force),
        paths=paths or (),
        removed=tuple(remove or ()),
        share=share,
        expect=expect,
        is_dry_run=dry_run,
        tell=_tell(as_json),
    )
    raise typer.Exit(run_publish(Target(store, config, redis, namespace), options))


@config_app.command("rollback", context_settings=NEGATIVE)
def config_rollback(
    reference: Annotated[str, typer.Argument(help=REFERENCE)],
    why: Why,
    who: Who = None,
    dry_run: DryRun = False,
    store: Store = None,
    config: ConfigFolder = None,
    redis: RedisUrl = None,
    namespace: Namespace = None,
    as_json: AsJson = False,
) -> None:
    """Publish an old version's content again."""
    from gateway.configure.publish import PublishOptions, login_name, run_rollback
    from gateway.stack.target import Target
    from gateway.store.centre import Note

    options = PublishOptions(
        Note(who or login_name(), why, "rollback"), is_dry_run=dry_run, tell=_tell(as_json)
    )
    raise typer.Exit(run_rollback(Target(store, config, redis, namespace), reference, options))


@config_app.command("history")
def config_history(
    limit: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 20,
    store: Store = None,
    config: ConfigFolder = None,
    redis: RedisUrl = None,
    namespace: Namespace = None,
    as_json: AsJson = False,
) -> None:
    """List the changes of the head: when, who, from what to what, and why."""
    from gateway.configure.listing import run_history
    from gateway.stack.target import Target

    raise typer.Exit(run_history(Target(store, config, redis, namespace), limit, _tell(as_json)))


@config_app.command("status")
def config_status(
    store: Store = None,
    config: ConfigFolder = None,
    redis: RedisUrl = None,
    namespace: Namespace = None,
    as_json: AsJson = False,
) -> None:
    """Show the head and what every gateway serves; status 1 where one has drifted or has an error."""
    from gateway.configure.status import run_status
    from gateway.stack.target import Target

    raise typer.Exit(run_status(Target(store, config, redis, namespace), _tell(as_json)))


@config_app.command("export")
def config_export(
    file: Annotated[Path, typer.Argument(help="Where to write the whole namespace, as JSON.")],
    store: Store = None,
    config: ConfigFolder = None,
    redis: RedisUrl = None,
    namespace: Namespace = None,
) -> None:
    """Write head, history and all versions to a file."""
    from gateway.configure.transfer import run_export
    from gateway.stack.target import Target

    raise typer.Exit(run_export(Target(store, config, redis, namespace), file))


@config_app.command("import")
def config_import(
    file: Annotated[Path, typer.Argument(help="What export wrote.")],
    why: Why,
    who: Who = None,
    force: Force = False,
    store: Store = None,
    config: ConfigFolder = None,
    redis: RedisUrl = None,
    namespace: Namespace = None,
) -> None:
    """Take over what export wrote; every version is checked against its sha first."""
    from gateway.configure.publish import login_name
    from gateway.configure.transfer import run_import
    from gateway.stack.target import Target
    from gateway.store.centre import Note

    note = Note(who or login_name(), why, "import", force)
    raise typer.Exit(run_import(Target(store, config, redis, namespace), file, note))


def _tell(as_json: bool) -> Tell:
    from gateway.configure.speech import tell_people, tell_programs

    return tell_programs if as_json else tell_people
