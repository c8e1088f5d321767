"""``gravity key …``: the keys of clients, in Redis for a fleet, or in a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from gateway.cli.root import RedisUrl, group

if TYPE_CHECKING:
    from gateway.configure.speech import Tell

key_app = group("key", "Keys of clients: what they open, and how much of it.")

KeyFile = Annotated[Path | None, typer.Option("--file", help="A file of keys (NG_KEYS_FILE), not Redis.")]
Namespace = Annotated[str | None, typer.Option(help="In Redis; default NG_CONFIG_NAMESPACE, else 'default'.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
KeyId = Annotated[str, typer.Argument(help="The key's id: what stands between ng_ and the next _.")]
Most = Annotated[int | None, typer.Option(min=1, help="Default: no limit.")]


@key_app.command("create")
def key_create(
    name: Annotated[str, typer.Argument(help="For people: who or what it is for.")],
    scope: Annotated[
        list[str],
        typer.Option(
            help="infer, prune, feedback, config:read, config:write, turns:read, turns:write, "
            "experiments:read or admin; may be repeated."
        ),
    ],
    expires: Annotated[str | None, typer.Option(help="90d, 12h, or a moment; default never.")] = None,
    task: Annotated[list[str] | None, typer.Option(help="That it may ask for; default all.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="That it may use; default all.")] = None,
    priority: Annotated[int, typer.Option(min=-100, max=100, help="The larger is served first.")] = 0,
    requests_per_minute: Most = None,
    tokens_per_minute: Most = None,
    concurrent_turns: Most = None,
    file: KeyFile = None,
    redis: RedisUrl = None,
    namespace: Namespace = None,
    as_json: AsJson = False,
) -> None:
    """Make a key and print its secret, this once."""
    from gateway.keys.key import Limits
    from gateway.keys.scope import Scope
    from gateway.provision.book import KeyTarget
    from gateway.provision.command import NewKey, run_create

    limits = Limits(
        requests_per_minute=requests_per_minute,
        tokens_per_minute=tokens_per_minute,
        concurrent_turns=concurrent_turns,
    )
    # What is no scope is refused with the rest that a key cannot be.
    scopes = cast("tuple[Scope, ...]", tuple(scope))
    new = NewKey(name, scopes, expires, tuple(task or ()), tuple(model or ()), priority, limits)
    raise typer.Exit(run_create(KeyTarget(file, redis, namespace), new, _tell(as_json)))


@key_app.command("list")
def key_list(
    file: KeyFile = None, redis: RedisUrl = None, namespace: Namespace = None, as_json: AsJson = False
) -> None:
    """List all keys, revoked ones too."""
    from gateway.provision.book import KeyTarget
    from gateway.provision.command import run_list

    raise typer.Exit(run_list(KeyTarget(file, redis, namespace), _tell(as_json)))


@key_app.command("show")
def key_show(
    key_id: KeyId,
    file: KeyFile = None,
    redis: RedisUrl = None,
    namespace: Namespace = None,
    as_json: AsJson = False,
) -> None:
    """Show one key, without its hash."""
    from gateway.provision.book import KeyTarget
    from gateway.provision.command import run_show

    raise typer.Exit(run_show(KeyTarget(file, redis, namespace), key_id, _tell(as_json)))


@key_app.command("rotate")
def key_rotate(
    key_id: KeyId,
    grace: Annotated[str, typer.Option(help="How long the secret before still opens.")] = "1d",
    file: KeyFile = None,
    redis: RedisUrl = None,
    namespace: Namespace = None,
    as_json: AsJson = False,
) -> None:
    """Give a key another secret, and print it this once."""
    from gateway.provision.book import KeyTarget
    from gateway.provision.command import run_rotate

    raise typer.Exit(run_rotate(KeyTarget(file, redis, namespace), key_id, grace, _tell(as_json)))


@key_app.command("revoke")
def key_revoke(
    key_id: KeyId,
    file: KeyFile = None,
    redis: RedisUrl = None,
    namespace: Namespace = None,
    as_json: AsJson = False,
) -> None:
    """Let a key open nothing from now on; what it has begun goes on."""
    from gateway.provision.book import KeyTarget
    from gateway.provision.command import run_revoke

    raise typer.Exit(run_revoke(KeyTarget(file, redis, namespace), key_id, _tell(as_json)))


def _tell(as_json: bool) -> Tell:
    from gateway.configure.speech import tell_people, tell_programs

    return tell_programs if as_json else tell_people
