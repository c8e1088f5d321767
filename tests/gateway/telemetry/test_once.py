"""Names that clients choose are logged once each, and not without end."""

from __future__ import annotations

import logging

import pytest

from gateway.telemetry.once import MAX_NAME_CHARS, MAX_NAMES, FieldNotes


def test_a_name_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    notes = FieldNotes(logging.getLogger("gateway.test"))
    with caplog.at_level(logging.INFO):
        notes.note({"top_k", "tools"})
        notes.note({"top_k"})
    assert len(caplog.records) == 2


def test_made_up_names_are_bounded_in_number_and_length(caplog: pytest.LogCaptureFixture) -> None:
    notes = FieldNotes(logging.getLogger("gateway.test"))
    with caplog.at_level(logging.INFO):
        notes.note(f"{number}{'x' * 1000}" for number in range(10 * MAX_NAMES))
    assert len(caplog.records) == MAX_NAMES
    assert all(len(record.__dict__["ng_fields"]["field"]) <= MAX_NAME_CHARS for record in caplog.records)
