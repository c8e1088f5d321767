"""What may be said in a log: no secret, no text of a request, and of an error what is made from neither.

An exception's own words are the surest way for a prompt into a log: parsers quote what they cannot read. So
only the kinds whose words come from the operating system or from our own constants keep them.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

REDACTED = "[redacted]"
SECRET_FIELDS = frozenset(
    {
        *("authorization", "proxy-authorization", "api_key", "api-key", "apikey", "x-api-key", "admin_key"),
        *("config_key", "read_key", "worker_api_key", "encoder_api_key", "password", "passwd", "token"),
        *("access_token", "refresh_token", "cookie", "set-cookie", "secret", "client_secret"),
    }
)
PROMPT_FIELDS = frozenset(
    {
        *("messages", "prompt", "content", "documents", "text", "texts", "question", "history", "body"),
        *("input", "input_value", "query", "answer", "choices", "delta", "completion", "arguments"),
    }
)
HIDDEN_FIELDS = SECRET_FIELDS | PROMPT_FIELDS
SHORTEST_SECRET = 8
LONGEST_REMEMBERED = 100
MAX_DEPTH = 16
_NUMBERS = (bool, int, float)
MAX_CHAIN = 8
"""Errors of one chain or group that are told."""

_NAMED = (
    r"(?:[\w-]*[_-])?(?:authorization|password|passwd|cookie|signature|sig|secret|token|api[ _-]?key|key)"
)
_KEY_PREFIX = r"\b(?:sk|ng|hf|pk|rk|ghp|gho|xox[abp])[-_]"
_SUSPECT = re.compile(rf"[:=@]|(?i:bearer|basic)|eyJ|{_KEY_PREFIX}")
"""Most of what is logged has none of this, and need not be looked at further."""
_OWN_ID_STARTS = ("turn-", "req-")
_OWN_ID = re.compile(r"(?:turn|req)-[0-9a-f]{32}")
"""Another with every line, so that there is no use in remembering it."""
_PATTERNS = (
    (re.compile(r"(?i)\b(bearer|basic)\s+[^\s\"',;]+"), rf"\1 {REDACTED}"),
    (re.compile(r"(?<=://)[^\s\"'<>]*@"), f"{REDACTED}@"),
    (re.compile(rf"(?i)([?&](?:{_NAMED})=)[^&\s\"'#]+"), rf"\1{REDACTED}"),
    (
        re.compile(
            rf"(?i)\b({_NAMED})([\"']?\s*[=:]\s*[\"']?)(?!\s*(?:bearer|basic)\s)[^\s\"',;}}\])&]{{4,}}"
        ),
        rf"\1\2{REDACTED}",
    ),
    (re.compile(rf"{_KEY_PREFIX}[A-Za-z0-9_-]{{12,}}"), REDACTED),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"), REDACTED),
)


def secrets_in(settings: Iterable[str]) -> tuple[str, ...]:
    """Return what of these settings must never stand in a log: of a URL its password. The longest first.

    What is shorter than 8 characters is left out: it would be found in innocent words.
    """
    written = [(urlsplit(each).password or "") if "://" in each else each for each in settings]
    known = {each for each in (*written, *map(unquote, written)) if len(each) >= SHORTEST_SECRET}
    return tuple(sorted(known, key=len, reverse=True))


def redact(value: Any, secrets: Collection[str] = ()) -> Any:
    """Return ``value`` without secrets and prompt text, at any depth, in types that JSON has.

    ``secrets`` are hidden wherever they stand, whatever they look like.
    """
    return _redacted(value, tuple(secrets), MAX_DEPTH)


def _redacted(value: Any, secrets: tuple[str, ...], depth: int) -> Any:
    if isinstance(value, str):
        return _text(value, secrets)
    if value is None or isinstance(value, _NUMBERS):
        return value
    if isinstance(value, bytes | bytearray):
        return _text(value.decode("utf-8", "replace"), secrets)
    if depth == 0:
        return REDACTED
    if isinstance(value, dict):
        return _fields(value, secrets, depth)
    if isinstance(value, list | tuple | set | frozenset):
        return [_redacted(item, secrets, depth - 1) for item in value]
    if isinstance(value, BaseException):
        return _text(describe(value), secrets)
    return _text(str(value), secrets)


def _fields(fields: Mapping[Any, Any], secrets: tuple[str, ...], depth: int) -> dict[str, Any]:
    shown = {}
    for key, item in fields.items():
        name = str(key)
        find = _named if len(name) <= LONGEST_REMEMBERED else _named.__wrapped__
        name, is_hidden = find(name, secrets)
        shown[name] = REDACTED if is_hidden else _redacted(item, secrets, depth - 1)
    return shown


@lru_cache(maxsize=1024)
def _named(name: str, secrets: tuple[str, ...]) -> tuple[str, bool]:
    """Return a field's name as it may be shown, and whether what it names may not."""
    return _text(name, secrets), name.lower() in HIDDEN_FIELDS


def _text(value: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        value = value.replace(secret, REDACTED)
    if len(value) < SHORTEST_SECRET:
        return value
    if value.startswith(_OWN_ID_STARTS) and _OWN_ID.fullmatch(value):
        return value
    return (
        _without_patterns(value) if len(value) <= LONGEST_REMEMBERED else _without_patterns.__wrapped__(value)
    )


@lru_cache(maxsize=1024)
def _without_patterns(value: str) -> str:
    # Names of fields, lanes, tasks and workers come with every line; six patterns on each cost 150 µs a line.
    if not _SUSPECT.search(value):
        return value
    for pattern, replacement in _PATTERNS:
        value = pattern.sub(replacement, value)
    return value


def describe(error: BaseException) -> str:
    """Return an error's class, and its words where they are nobody's text."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    words = _own_words(error)
    return f"{name}: {words}" if words else name


def _own_words(error: BaseException) -> str:
    if isinstance(error, RedisConnectionError | RedisTimeoutError):
        return str(error)
    if isinstance(error, OSError):
        return error.strerror or ""
    if isinstance(error, ImportError):
        return error.msg
    code = getattr(error, "code", None)  # one of ours: its message may quote a request, its code never does
    return code if isinstance(code, str) else ""


def tell_traceback(error: BaseException) -> str:
    """Return the traceback of an error and of those that it came from, oldest first; frames are code."""
    return "".join(_parts(error, set()))


def _parts(error: BaseException, seen: set[int]) -> Iterator[str]:
    if id(error) in seen or len(seen) >= MAX_CHAIN:
        return
    seen.add(id(error))
    origin = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if origin is not None:
        yield from _parts(origin, seen)
        yield "\n"
    yield "Traceback (most recent call last):\n"
    yield from traceback.format_tb(error.__traceback__)
    yield describe(error) + "\n"
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _parts(each, seen)
