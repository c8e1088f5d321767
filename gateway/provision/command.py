"""``gravity key create | list | show | rotate | revoke``."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ValidationError

from gateway.configure.speech import Tell, columns
from gateway.errors import CommandError
from gateway.keys.key import Key, Limits, Replaced
from gateway.keys.scope import Scope
from gateway.keys.secret import digest_of, new_id, new_secret
from gateway.provision.book import KeyTarget

_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
SHOWN_ONCE = "It is shown this once; what is kept is its hash."


@dataclass(frozen=True, slots=True)
class NewKey:
    """What a key is made with. ``expires``: a span such as 90d, or a moment; None for never."""

    name: str
    scopes: tuple[Scope, ...]
    expires: str | None = None
    tasks: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    priority: int = 0
    limits: Limits = Limits()


def run_create(target: KeyTarget, new: NewKey, tell: Tell) -> int:
    """Make a key and print its secret."""
    now = datetime.now(UTC)
    key_id = new_id(secrets.token_hex)
    secret = new_secret(key_id, secrets.token_hex)
    key = _made(new, key_id, digest_of(secret.encode()), now)
    target.work(lambda book: book.change(key_id, lambda before: _unused(before, key)))
    tell({**public(key, now), "secret": secret}, [secret, f"{key.name}: {', '.join(key.scopes)}", SHOWN_ONCE])
    return 0


def run_list(target: KeyTarget, tell: Tell) -> int:
    """Print all keys, revoked ones too."""
    now = datetime.now(UTC)
    keys = sorted(target.work(lambda book: book.read()).values(), key=lambda key: (key.name, key.id))
    rows = [("id", "name", "state", "expires", "scopes", "limits")]
    rows += [
        (key.id, key.name, state_of(key, now), _day(key.expires_at), ",".join(key.scopes), _limits_text(key))
        for key in keys
    ]
    tell([public(key, now) for key in keys], columns(rows) if keys else ["there are no keys"])
    return 0


def run_show(target: KeyTarget, key_id: str, tell: Tell) -> int:
    """Print one key, without its hash."""
    now = datetime.now(UTC)
    key = _there(target.work(lambda book: book.read()).get(key_id), key_id)
    content = public(key, now)
    tell(content, [f"{name}: {_text(value)}" for name, value in content.items()])
    return 0


def run_rotate(target: KeyTarget, key_id: str, grace: str, tell: Tell) -> int:
    """Give a key another secret and print it; the one before opens for as long as ``grace`` says."""
    now = datetime.now(UTC)
    secret = new_secret(key_id, secrets.token_hex)
    until = _moment(grace, now)

    def rotated(before: Key | None) -> Key:
        key = _there(before, key_id)
        if not key.is_valid(now):
            raise CommandError(f"{key_id} is {state_of(key, now)}: make another key")
        replaced = Replaced(sha256=key.sha256, expires_at=until)
        return key.model_copy(update={"sha256": digest_of(secret.encode()), "replaced": replaced})

    key = target.work(lambda book: book.change(key_id, rotated))
    lines = [secret, f"The secret before opens until {until:%Y-%m-%d %H:%M:%S} UTC.", SHOWN_ONCE]
    tell({**public(key, now), "secret": secret}, lines)
    return 0


def run_revoke(target: KeyTarget, key_id: str, tell: Tell) -> int:
    """Let a key open nothing from now on."""
    now = datetime.now(UTC)

    def revoked(before: Key | None) -> Key:
        key = _there(before, key_id)
        return key if key.revoked_at else key.model_copy(update={"revoked_at": now, "replaced": None})

    key = target.work(lambda book: book.change(key_id, revoked))
    tell(public(key, now), [f"{key_id} ({key.name}) opens nothing any more"])
    return 0


def public(key: Key, now: datetime) -> dict[str, Any]:
    """Return what may be told of a key: everything but its hashes, and how it stands."""
    content = key.model_dump(mode="json", exclude={"sha256": True, "replaced": {"sha256"}}, exclude_none=True)
    return {**content, "state": state_of(key, now)}


def state_of(key: Key, now: datetime) -> str:
    if key.revoked_at is not None:
        return "revoked"
    return "valid" if key.is_valid(now) else "expired"


def _made(new: NewKey, key_id: str, digest: str, now: datetime) -> Key:
    try:
        return Key(
            id=key_id,
            name=new.name,
            sha256=digest,
            scopes=tuple(dict.fromkeys(new.scopes)),
            created_at=now,
            expires_at=_moment(new.expires, now) if new.expires else None,
            tasks=new.tasks,
            models=new.models,
            priority=new.priority,
            limits=new.limits,
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise CommandError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _unused(before: Key | None, key: Key) -> Key:
    if before is not None:
        raise CommandError("the new key's id is taken: try again")
    return key


def _there(key: Key | None, key_id: str) -> Key:
    if key is None:
        raise CommandError(f"there is no key {key_id!r}: gravity key list names them")
    return key


def _moment(text: str, now: datetime) -> datetime:
    """Return so long after ``now``, or the moment itself, in this machine's zone where it names none."""
    try:
        if span := _SPAN.fullmatch(text.strip()):
            return now + timedelta(**{_UNITS[span[2]]: float(span[1])})
        return datetime.fromisoformat(text.strip()).astimezone(UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise CommandError(f"{text!r} is no time: write 90d, 12h, or 2027-01-31T10:00") from error


def _day(moment: datetime | None) -> str:
    return "never" if moment is None else f"{moment:%Y-%m-%d}"


def _limits_text(key: Key) -> str:
    limits = key.limits
    named = (
        (limits.requests_per_minute, "requests/min"),
        (limits.tokens_per_minute, "tokens/min"),
        (limits.concurrent_turns, "turns at once"),
    )
    return ", ".join(f"{limit} {name}" for limit, name in named if limit) or "none"


def _text(value: Any) -> str:
    match value:
        case dict():
            return ", ".join(f"{name} {each}" for name, each in value.items()) or "none"
        case list():
            return ", ".join(map(str, value)) or "all"
    return str(value)
