"""The file of prompts: lines of text, lines of JSON, and what is neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.calibrate.prompts import endpoint_of, read_prompts
from gateway.errors import CalibrationError


def test_a_line_is_a_question_or_a_request_body(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(
        "What is a leek?\n\n"
        '{"messages": [{"role": "user", "content": "é"}], "documents": ["d"], "task": "x"}\n'
        '{"prompt": "Once", "max_tokens": 5, "temperature": 2, "stream": true}\n'
    )
    bodies = read_prompts(file)
    assert bodies == (
        {"messages": [{"role": "user", "content": "What is a leek?"}]},
        {"messages": [{"role": "user", "content": "é"}], "documents": ["d"]},
        {"prompt": "Once", "max_tokens": 5},
    )
    assert [endpoint_of(body) for body in bodies] == [
        *("/v1/chat/completions", "/v1/chat/completions", "/v1/completions"),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\n \n", "holds no prompt"),
        (b"fine\n{broken\n", r"prompts:2: no JSON"),
        (b'{"question": "?"}\n', r"prompts:1: neither messages nor prompt"),
        (b"\xff\xfe", "cannot be read"),
    ],
)
def test_what_is_no_prompt_is_said_with_its_line(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "prompts"
    file.write_bytes(content)
    with pytest.raises(CalibrationError, match=message):
        read_prompts(file)


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(CalibrationError, match="cannot be read"):
        read_prompts(tmp_path / "nothing")
