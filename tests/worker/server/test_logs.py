"""What the worker prints."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

import httpx
import orjson

from worker.logs import JsonFormatter
from worker.redaction import secrets_in

if TYPE_CHECKING:
    from tests.conftest import RunningProcess


def unknown_fields(worker: RunningProcess) -> list[Any]:
    return [event["field"] for event in worker.events() if event["event"].startswith("unknown request field")]


def test_an_unknown_field_is_logged_once_by_name_and_within_bounds(
    client: httpx.Client, worker_server: RunningProcess, model_name: str
) -> None:
    request = {"model": model_name, "prompt": "Hi", "max_tokens": 1}
    for _ in range(3):
        assert client.post("/v1/completions", json=request | {"flux_capacitor": 1}).status_code == 200
    assert unknown_fields(worker_server).count("flux_capacitor") == 1
    client.post("/v1/completions", json=request | {f"made_up_{n}": n for n in range(1000)})
    client.post("/v1/completions", json=request | {"x" * 10_000: 1})
    assert len(unknown_fields(worker_server)) <= 100
    assert all(len(name) <= 64 for name in unknown_fields(worker_server))


def test_no_prompt_and_no_answer_is_ever_printed(
    client: httpx.Client, worker_server: RunningProcess, model_name: str
) -> None:
    secret = "the-password-is-swordfish"
    request = {"model": model_name, "prompt": secret, "max_tokens": 4, "temperature": 0}
    text = client.post("/v1/completions", json=request).json()["choices"][0]["text"]
    client.post("/v1/completions", json=request | {"temperature": secret, "user": secret})
    client.post("/v1/chat/completions", json={"model": model_name, "messages": [{"role": secret}]})
    assert secret not in worker_server.output
    assert text.strip() not in worker_server.output


def test_an_error_tells_where_it_was_raised_and_nothing_of_what_it_quotes() -> None:
    quoted = "the-password-is-swordfish"
    try:
        orjson.loads(f"[{quoted}")
        raise AssertionError
    except ValueError:
        record = logging.getLogger("worker").makeRecord(
            "worker", logging.ERROR, __file__, 1, "a choice failed", (), sys.exc_info()
        )
    line = JsonFormatter().format(record)
    assert "JSONDecodeError" in line
    assert "test_logs.py" in line
    assert quoted not in line


def test_secrets_and_texts_among_the_fields_are_hidden() -> None:
    (password,) = secrets_in(["redis://:hunter%2F2hunter@localhost:6379/0"])[1:]
    fields = {
        "url": "redis://:hunter%2F2hunter@localhost",
        "prompt": "swordfish",
        "note": f"it is {password}",
    }
    record = logging.makeLogRecord({"name": "worker", "msg": "key sk-%s", "args": ("a" * 20,), **fields})
    line = JsonFormatter(secrets_in(["redis://:hunter%2F2hunter@localhost:6379/0"])).format(record)
    assert not any(word in line for word in ("hunter", "swordfish", "a" * 20))
