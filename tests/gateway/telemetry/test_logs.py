"""Logs are JSON lines that give nothing away."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from gateway.telemetry.logs import JsonFormatter, log, redact, request_id


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
