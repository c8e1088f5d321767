"""The file that a run goes on from."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from gateway.errors import CommandError
from gateway.evaluation.answer_results import AnswerRecord, Header, Key, Results

HEADER = Header("model", "fp32", 1024, 32, "{question}", "Answer.", "{text}", "abc")
RECORD = AnswerRecord("r1", "all", "Blue.", 3, 1, 90, 4, 0.2, 0.5, 0.4, 0.0)
OURS = AnswerRecord("r1", "ours", "Blue.", 1, 0, 40, 4, 0.1, 0.3, 0.2, 0.05, "selector-1")


def test_what_was_added_is_there_in_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    first = Results(path, HEADER)
    first.add(RECORD)
    first.add(OURS)
    again = Results(path, HEADER)
    assert len(again) == 2
    assert again.get(Key("r1", "all")) == RECORD
    assert again.get(Key("r1", "ours", "selector-1")) == OURS
    assert again.get(Key("r2", "all")) is None
    assert len(path.read_text().splitlines()) == 3


def test_an_answer_costs_the_worker_and_the_choosing() -> None:
    assert OURS.cpu_s == pytest.approx(0.25)


def test_another_selectors_answers_do_not_count_and_are_told_of(tmp_path: Path) -> None:
    results = Results(None, HEADER)
    results.add(RECORD)
    results.add(OURS)
    assert results.get(Key("r1", "ours", "selector-2")) is None
    assert results.num_outdated("selector-2") == 1
    assert results.num_outdated("selector-1") == 0


def test_a_line_that_an_interruption_cut_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    results = Results(path, HEADER)
    results.add(RECORD)
    whole = path.read_bytes()
    results.add(OURS)
    path.write_bytes(path.read_bytes()[:-7])
    again = Results(path, HEADER)
    assert len(again) == 1
    assert path.read_bytes() == whole
    again.add(OURS)
    assert len(Results(path, HEADER)) == 2


@pytest.mark.parametrize("field", [field.name for field in dataclasses.fields(Header)])
def test_answers_under_other_conditions_are_refused_by_name(tmp_path: Path, field: str) -> None:
    path = tmp_path / "results.jsonl"
    Results(path, HEADER).add(RECORD)
    fields = dataclasses.asdict(HEADER)
    was = fields[field]
    other = Header(**{**fields, field: was + 1 if isinstance(was, int) else was + "x"})
    with pytest.raises(CommandError, match=rf"results\.jsonl holds answers with {field} = .*--results"):
        Results(path, other)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("not json", "JSON"),
        (json.dumps({"request_id": "r2"}), "arm"),
        (json.dumps({**dataclasses.asdict(RECORD), "arm": "best"}), "arm"),
        (json.dumps({**dataclasses.asdict(RECORD), "colour": "red"}), "colour"),
    ],
)
def test_what_is_no_result_is_named_with_its_line(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "results.jsonl"
    Results(path, HEADER).add(RECORD)
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(CommandError, match=rf"results\.jsonl:3 .*{problem}"):
        Results(path, HEADER)


def test_a_file_of_something_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "data.jsonl"
    path.write_text('{"question": "a labelled request"}\n')
    with pytest.raises(CommandError, match=r"data\.jsonl:1 is no line of results"):
        Results(path, HEADER)
    assert path.read_text() == '{"question": "a labelled request"}\n'


def test_a_folder_and_a_missing_folder_are_errors_of_the_command(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot be read"):
        Results(tmp_path, HEADER)
    with pytest.raises(CommandError, match="cannot be written"):
        Results(tmp_path / "missing" / "results.jsonl", HEADER)
