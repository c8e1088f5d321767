"""Labelled requests: what may be missing, and what is said of a line that cannot be read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from gateway.errors import CommandError
from gateway.lab.labelled import LabelledDocument, numbered_lines, read_labelled

FULL = {
    "id": "tug-1",
    "set": "harbour",
    "question": "Who built the Gannet?",
    "answers": ["Trewin"],
    "documents": [
        {"id": "a", "title": "Gannet", "text": "Trewin built her.", "relevant": True, "kind": "gold"},
        {"id": "b", "text": "Bread rises twice.", "relevant": False, "kind": "off"},
    ],
}


def written(path: Path, *lines: object) -> Path:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines) + "\n")
    return path


def test_every_field_is_read(tmp_path: Path) -> None:
    (request,) = read_labelled([written(tmp_path / "data.jsonl", FULL)])
    assert (request.id, request.set, request.question) == ("tug-1", "harbour", "Who built the Gannet?")
    assert request.answers == ("Trewin",)
    assert request.documents == (
        LabelledDocument("a", "Trewin built her.", "Gannet", True, "gold"),
        LabelledDocument("b", "Bread rises twice.", "", False, "off"),
    )
    assert request.relevant == {0}


def test_what_is_missing_is_filled_in_from_the_file_and_the_place(tmp_path: Path) -> None:
    bare = {"question": "Why?", "documents": [{"text": "So.", "relevant": True}]}
    _, request = read_labelled([written(tmp_path / "mine.v2.jsonl", FULL, "", bare)])
    assert (request.id, request.set, request.answers) == ("mine.v2.jsonl:3", "mine", ())
    assert request.documents == (LabelledDocument("d0", "So.", is_relevant=True),)


def test_packed_files_are_read_after_plain_ones_in_the_order_given(tmp_path: Path) -> None:
    plain = written(tmp_path / "plain.jsonl", FULL)
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(json.dumps({**FULL, "id": "tug-2"}).encode()))
    assert [request.id for request in read_labelled([packed, plain])] == ["tug-2", "tug-1"]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "Expecting"),
        ({"documents": []}, "'question' is missing"),
        ({"question": "Why?"}, "'documents' is missing"),
        ({"question": 7, "documents": []}, "'question' must be a string"),
        ({"question": "Why?", "documents": [{"relevant": True}]}, "'text' is missing"),
        ({"question": "Why?", "documents": [{"text": "So.", "relevant": 1}]}, "true or false"),
        ("[]", "indices"),
    ],
)
def test_a_line_that_cannot_be_used_is_named(tmp_path: Path, line: object, complaint: str) -> None:
    path = written(tmp_path / "data.jsonl", FULL, line)
    with pytest.raises(CommandError, match=complaint) as failure:
        read_labelled([path])
    assert str(failure.value).startswith(f"{path}:2: ")


def test_a_file_that_is_not_there_or_not_packed_or_empty_is_named(tmp_path: Path) -> None:
    missing, damaged = tmp_path / "missing.jsonl", tmp_path / "damaged.jsonl.gz"
    damaged.write_bytes(gzip.compress(json.dumps(FULL).encode())[:-9])
    for path in (missing, damaged, written(tmp_path / "empty.jsonl", "")):
        with pytest.raises(CommandError, match=path.name):
            read_labelled([path])


def test_lines_keep_their_numbers_past_blank_ones(tmp_path: Path) -> None:
    path = written(tmp_path / "lines", "one", "  ", "three")
    assert [(number, line.strip()) for number, line in numbered_lines(path)] == [(1, "one"), (3, "three")]
