"""Nothing that was planted comes out of a log line, however it got into it."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Annotated, Any

import orjson
import pytest
from pydantic import BaseModel, Field
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from gateway.__main__ import secrets_of
from gateway.errors import UpstreamRejected
from gateway.settings import GatewaySettings
from gateway.telemetry.logs import JsonFormatter
from worker.redaction import describe, redact, tell_traceback

SECRET = "Xylophonquark77"
TEXT = "the quick Xylophonquark77 jumps"


@pytest.mark.parametrize(
    "written",
    [
        *(f"Authorization: Bearer {SECRET}", f"authorization={SECRET}", f'"x-api-key": "{SECRET}"'),
        *(
            f"'password': '{SECRET}'",
            f"password={SECRET}&x=1",
            f"PASSWORD : {SECRET}",
            f"worker_api_key={SECRET}",
        ),
        *(f"GET /v1/models?api_key={SECRET}&a=1", f"https://host/a?x=1&token={SECRET}", f"?key={SECRET}#a"),
        *(f"redis://:{SECRET}@host:6379/0", f"redis://user:a/{SECRET}@b@host:1", f"https://{SECRET}@host/x"),
        *(f"sk-{SECRET}", f"ng_abcd_{SECRET}", f"hf_{SECRET}", f"ghp_{SECRET}", f"pk-live-{SECRET}"),
        *(f"eyJhbGciOiJIUzI1NiJ9.{SECRET}.abc", f"Basic {SECRET}=", f"cookie: session={SECRET}; a=b"),
        *(
            f"client_secret={SECRET}",
            f"refresh_token: {SECRET}",
            f"NG_ADMIN_KEY={SECRET}",
            f"Api-Key: {SECRET}",
        ),
    ],
)
def test_a_secret_is_hidden_by_where_it_stands(written: str) -> None:
    for value in (written, f"before {written} after", written.encode(), {"note": [written]}, {written: 1}):
        told = json.dumps(redact(value))
        assert SECRET not in told
        assert "redacted" in told


@pytest.mark.parametrize(
    "plain",
    [
        *(
            "http://127.0.0.1:8080/v1/models?limit=5",
            "redis://host:6379/0",
            "5 tokens: 7",
            "turn-0123456789abcdef",
        ),
        *("keys: none", "a monkey: it climbs", "basically fine", "worker http://10.0.0.1:8081 out"),
    ],
)
def test_what_is_no_secret_stays(plain: str) -> None:
    assert redact(plain) == plain


def test_a_secret_that_the_process_knows_is_hidden_wherever_it_stands() -> None:
    told = redact({"a": [f"x{SECRET}y", SECRET.encode()], SECRET: {SECRET}}, [SECRET])
    assert SECRET not in json.dumps(told)


def test_the_process_knows_the_secrets_of_its_settings() -> None:
    settings = GatewaySettings(
        redis_url="redis://u:long%2Fpassword@host:1/0", admin_key="administration", worker_api_key="short"
    )
    assert set(secrets_of(settings)) == {"long%2Fpassword", "long/password", "administration"}
    assert secrets_of(GatewaySettings(redis_url="redis://host:6379/0")) == ()


def test_no_value_is_too_deep_too_strange_or_its_own_part() -> None:
    deep: list[Any] = []
    for _ in range(1_000):
        deep = [deep, SECRET]
    deep.append(deep)
    assert SECRET not in json.dumps(redact(deep, [SECRET]))


class Body(BaseModel):
    """Quotes what it cannot read."""

    seed: Annotated[int, Field(ge=0)]


def _raise(error: BaseException) -> None:
    raise error


def _chained() -> None:
    try:
        raise ValueError(TEXT)
    except ValueError as error:
        raise RuntimeError(TEXT) from error


def _in_context() -> None:
    try:
        raise KeyError(TEXT)
    except KeyError:
        _raise(RuntimeError(TEXT))


def _with_notes() -> None:
    error = ValueError("a")
    error.add_note(TEXT)
    raise error


QUOTING: list[Callable[[], object]] = [
    lambda: int(TEXT),
    lambda: dict[str, int]()[TEXT],
    lambda: TEXT.encode().decode("utf-16-be") + ("\ud800" + TEXT).encode().decode(),
    lambda: json.loads(f'{{"a": {TEXT}'),
    lambda: orjson.loads(TEXT),
    lambda: Body.model_validate({"seed": TEXT}),
    lambda: getattr(object(), TEXT),
    lambda: _raise(ResponseError(f"ERR unknown command 'x', with args beginning with: '{TEXT}'")),
    lambda: _raise(UpstreamRejected(f"'{TEXT}' is no seed", status=400)),
    lambda: _raise(ExceptionGroup(TEXT, [ValueError(TEXT), ExceptionGroup(TEXT, [KeyError(TEXT)])])),
    lambda: _raise(FileNotFoundError(2, "No such file", TEXT)),
    _chained,
    _in_context,
    _with_notes,
]


@pytest.mark.parametrize("failing", QUOTING)
def test_an_errors_own_words_do_not_leave_with_its_traceback(failing: Callable[[], object]) -> None:
    with pytest.raises(BaseException) as caught:
        failing()
    error = caught.value
    record = logging.LogRecord(
        "a", logging.ERROR, "", 0, "failed", (), (type(error), error, error.__traceback__)
    )
    line = JsonFormatter().format(record)
    assert type(error).__name__ in json.loads(line)["traceback"]
    assert "test_redaction.py" in line
    assert SECRET not in line
    assert SECRET not in json.dumps(redact({"reason": error}))


def test_what_the_system_says_of_a_failure_is_told() -> None:
    assert (
        describe(ConnectionRefusedError(111, "Connection refused"))
        == "ConnectionRefusedError: Connection refused"
    )
    told = describe(RedisConnectionError("Error 111 connecting to host:6379."))
    assert told.endswith("ConnectionError: Error 111 connecting to host:6379.")
    assert describe(UpstreamRejected(TEXT, status=400, code="invalid_value")).endswith(": invalid_value")


def test_a_chain_is_told_from_its_origin_on() -> None:
    try:
        _chained()
    except RuntimeError as error:
        told = tell_traceback(error)
    assert told.index("ValueError") < told.index("RuntimeError")
    assert "in _chained" in told


async def test_asyncios_report_of_a_lost_error_does_not_quote_it() -> None:
    lines: list[str] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(JsonFormatter().format(record))

    logger, handler = logging.getLogger("asyncio"), Keeping()
    logger.addHandler(handler)
    try:
        loop = asyncio.get_running_loop()
        error = ValueError(TEXT)
        loop.default_exception_handler({"message": "lost", "exception": error, "future": error})
    finally:
        logger.removeHandler(handler)
    assert json.loads(lines[0])["event"] == "lost"
    assert SECRET not in lines[0]


@pytest.mark.parametrize("value", ["\ud800", 10**40, float("nan")])
def test_a_line_is_not_lost_for_what_json_cannot_carry(value: object) -> None:
    record = logging.LogRecord("a", logging.INFO, "", 0, "event", (), None)
    record.ng_fields = {"value": value}
    assert json.loads(JsonFormatter().format(record))["event"] == "event"
