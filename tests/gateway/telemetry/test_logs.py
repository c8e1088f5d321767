"""Logs are JSON lines that give nothing away."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
import threading
from io import StringIO
from typing import Any

import pytest

from gateway.telemetry.logs import JsonFormatter, Lines, log, redact, request_id


@pytest.mark.parametrize(
    ("written", "secret"),
    [
        ("Authorization: Bearer abc.def-123", "abc.def-123"),
        ("key sk-proj-0123456789abcdef was wrong", "0123456789abcdef"),
        ("redis://user:hunter22@host:6379/0", "hunter22"),
        ("rediss://:hunter22@host", "hunter22"),
    ],
)
def test_secrets_inside_texts_are_hidden(written: str, secret: str) -> None:
    assert secret not in redact(written)
    assert "[redacted]" in redact(written)


def test_fields_that_hold_secrets_or_prompts_are_hidden_at_any_depth() -> None:
    told = redact({"a": [{"Authorization": "x", "messages": ["hello"], "count": 3}], "prompt": "hello"})
    assert told == {
        "a": [{"Authorization": "[redacted]", "messages": "[redacted]", "count": 3}],
        "prompt": "[redacted]",
    }


def test_what_is_no_secret_stays() -> None:
    for text in ("http://127.0.0.1:8080", "turn-0123456789abcdef", "redis://host:6379/0", "a plain sentence"):
        assert redact(text) == text


def test_a_line_is_json_with_the_event_its_fields_and_the_request(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("gateway.test")
    token = request_id.set("req-1")
    try:
        with caplog.at_level(logging.INFO):
            log(logger, logging.INFO, "turn", lane="control", when=object)
        line = json.loads(JsonFormatter().format(caplog.records[0]))
    finally:
        request_id.reset(token)
    assert (line["event"], line["lane"], line["level"]) == ("turn", "control", "info")
    assert (line["request_id"], line["logger"]) == ("req-1", "gateway.test")


def test_a_traceback_is_in_the_line_and_redacted() -> None:
    try:
        raise ValueError("cannot reach redis://user:hunter22@host")
    except ValueError:
        record = logging.LogRecord("a", logging.ERROR, "", 0, "failed", (), sys.exc_info())
    line = json.loads(JsonFormatter().format(record))
    assert "ValueError" in line["traceback"]
    assert "hunter22" not in line["traceback"]


def lines_to(stream: StringIO) -> logging.Logger:
    """Return a logger that has nothing but our own handler."""
    logger = logging.getLogger("gateway.told")
    logger.handlers[:] = [Lines(stream, JsonFormatter(secrets=["hunter22hunter"]))]
    logger.propagate = False
    logger.setLevel(logging.INFO)
    return logger


def events_in(stream: StringIO) -> list[str]:
    return [json.loads(line)["event"] for line in stream.getvalue().splitlines()]


async def test_the_lines_of_one_turn_of_the_loop_are_written_together_and_in_order() -> None:
    stream = StringIO()
    logger = lines_to(stream)
    log(logger, logging.INFO, "first", n=1)
    logger.info("second")
    log(logger, logging.INFO, "third", n=3)
    assert stream.getvalue() == ""
    await asyncio.sleep(0)
    assert events_in(stream) == [
        "first",
        "second",
        "third",
    ]


async def test_a_warning_is_written_at_once_with_what_came_before_it() -> None:
    stream = StringIO()
    logger = lines_to(stream)
    log(logger, logging.INFO, "before")
    log(logger, logging.WARNING, "warning")
    assert events_in(stream) == ["before", "warning"]


async def test_what_another_thread_says_comes_after_what_was_said_before_it() -> None:
    stream = StringIO()
    logger = lines_to(stream)
    log(logger, logging.INFO, "before")
    thread = threading.Thread(target=lambda: log(logger, logging.INFO, "thread"))
    thread.start()
    thread.join()
    assert events_in(stream) == ["before", "thread"]


def test_outside_of_a_loop_a_line_is_written_at_once() -> None:
    stream = StringIO()
    log(lines_to(stream), logging.INFO, "event")
    assert json.loads(stream.getvalue())["event"] == "event"


def test_a_line_is_the_same_whether_or_not_another_handler_makes_a_record_of_it() -> None:
    stream = StringIO()
    logger = lines_to(stream)
    token = request_id.set("req-1")
    fields: dict[str, Any] = {
        "n": 1,
        "prompt": "hello",
        "key": "hunter22hunter",
        "error": ValueError("hello"),
    }
    log(logger, logging.INFO, "event", **fields)
    logger.addHandler(logging.NullHandler())
    log(logger, logging.INFO, "event", **fields)
    request_id.reset(token)
    alone, beside = (json.loads(line) for line in stream.getvalue().splitlines())
    assert alone.pop("at") <= beside.pop("at")
    assert alone == beside
    assert alone["request_id"] == "req-1"
    assert "hello" not in stream.getvalue()
    assert "hunter22" not in stream.getvalue()


@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "raise RuntimeError"])
def test_nothing_that_was_said_is_lost_at_the_process_s_end(end: str) -> None:
    program = f"""
import asyncio, logging
from gateway.telemetry.logs import configure_logging, log
async def work():
    log(logging.getLogger("gateway"), logging.INFO, "last words")
    {end}
configure_logging()
asyncio.run(work())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert json.loads(done.stdout.splitlines()[-1])["event"] == "last words"
