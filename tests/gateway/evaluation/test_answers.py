"""``gravity eval answers``: the real worker, model and encoder on requests of a few short chunks."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.errors import CommandError
from gateway.evaluation.answering import AnsweringWorker
from gateway.evaluation.answers import AnswersOptions, answerable, drawn, evaluate_answers
from gateway.evaluation.arms import ARMS, Chooser
from gateway.lab.labelled import LabelledRequest, read_labelled

REQUESTS: list[dict[str, Any]] = [
    {
        "id": "boat",
        "set": "colours",
        "question": "Which colour is the boat?",
        "answers": ["green"],
        "documents": [
            {"title": "Boat", "text": "The boat is green.", "relevant": True},
            {"title": "Bread", "text": "Rye bread is baked overnight.", "relevant": False},
            {"title": "Chess", "text": "A knight moves in the shape of an L.", "relevant": False},
        ],
    },
    {
        "id": "house",
        "set": "houses",
        "question": "Which colour is the house?",
        "answers": ["yellow"],
        "documents": [
            {"title": "Bees", "text": "A hive has one queen.", "relevant": False},
            {"title": "House", "text": "The house is yellow.", "relevant": True},
            {"title": "Piano", "text": "A piano has eighty-eight keys.", "relevant": False},
        ],
    },
]


def write(path: Path, requests: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(request) + "\n" for request in requests))
    return path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write(tmp_path / "data.jsonl", REQUESTS)


async def test_a_run_goes_on_from_what_was_measured_and_answers_nothing_twice(
    answering: AnsweringWorker, chooser: Chooser, data: Path, tmp_path: Path, capfd: Any
) -> None:
    requests = drawn(read_labelled([data]), 0)
    results, written = tmp_path / "results.jsonl", tmp_path / "figures.json"
    options = AnswersOptions((data,), written, results, limit=1)
    await evaluate_answers(options, requests, [answering], chooser)
    first, lines = json.loads(written.read_bytes()), results.read_bytes().splitlines(keepends=True)
    assert len(lines) == 1 + len(ARMS)
    answers = {answer["arm"]: answer for answer in map(json.loads, lines[1:])}
    colour = {"boat": "green", "house": "yellow"}[requests[0].id]
    for arm in ARMS:
        assert first["arms"][arm]["answer_rate"] == (colour in answers[arm]["text"])
    assert first["arms"]["all"]["answer_rate"] > first["arms"]["none"]["answer_rate"]
    assert first["arms"]["ours"]["prompt_tokens"] < first["arms"]["all"]["prompt_tokens"]
    assert first["arms"]["ours"]["choose_cpu_s"] > 0.0
    assert first["arms"]["all"]["cpu_s"] > 0.0

    cpu_s = answering.cpu_s()
    await evaluate_answers(options, requests, [answering], chooser)
    assert answering.cpu_s() - cpu_s < 0.02  # nothing was asked
    assert json.loads(written.read_bytes()) == first

    results.write_bytes(b"".join(lines[:-2]) + lines[-2][:10])  # killed while it wrote
    every = dataclasses.replace(options, limit=None)
    await evaluate_answers(every, requests, [answering, answering], chooser)  # shared by two
    again = results.read_bytes().splitlines(keepends=True)
    assert again[: len(lines) - 2] == lines[:-2]
    found = {(answer["request_id"], answer["arm"]): answer for answer in map(json.loads, again[1:])}
    assert len(again) - 1 == len(found) == 2 * len(ARMS)
    measured = dict.fromkeys(("ttft_s", "total_s", "worker_cpu_s", "choose_cpu_s"))
    for arm, answer in answers.items():
        assert found[requests[0].id, arm] | measured == answer | measured
    assert "10/10" in capfd.readouterr().err


def test_the_command_starts_a_worker_and_says_where_not_all_chunks_fit_its_context(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NG_WORKER_MAX_CONTEXT", "136")
    boat = dict(REQUESTS[0])
    boat["documents"] = [*boat["documents"], {"text": "A long walk by the sea. " * 10, "relevant": False}]
    write(data, [boat])
    written = tmp_path / "figures.json"
    ended = CliRunner().invoke(app, ["eval", "answers", "--data", str(data), "--json", str(written)])
    assert ended.exit_code == 0, ended.output
    assert "in 1 requests not all chunks fit the context of 136 tokens" in ended.output.replace("\n", " ")
    figures = json.loads(written.read_bytes())
    assert figures["num_requests"] == figures["num_truncated"] == 1
    assert figures["arms"]["all"]["num_documents"] == 3.0
    assert figures["arms"]["all"]["prompt_tokens"] + 32 <= 136
    assert figures["arms"]["ours"]["num_truncated"] == 0
    assert figures["max_context"] == 136
    assert figures["model"] == "SmolLM2-135M-Instruct"


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"answers": []}, "no request names answers"),
        ({"answers": [" "]}, "no request names answers"),
        ({"documents": []}, "no request names answers"),
    ],
)
def test_requests_that_cannot_be_scored_are_no_evaluation(
    data: Path, change: dict[str, Any], problem: str
) -> None:
    write(data, [REQUESTS[0] | change])
    with pytest.raises(CommandError, match=problem):
        answerable(read_labelled([data]))


def test_some_requests_without_answers_are_left_out_and_told_of(data: Path, capsys: Any) -> None:
    write(data, [REQUESTS[0], REQUESTS[1] | {"answers": []}])
    assert [request.id for request in answerable(read_labelled([data]))] == ["boat"]
    assert capsys.readouterr().err == "1 requests name no answer and are left out\n"


def test_ids_that_repeat_are_refused(data: Path) -> None:
    write(data, [REQUESTS[0], REQUESTS[0]])
    with pytest.raises(CommandError, match="2 requests have the id 'boat'"):
        answerable(read_labelled([data]))


def test_a_seed_draws_the_same_requests_and_fewer_are_the_first_of_more() -> None:
    requests = [LabelledRequest(f"r{n}", "", "q", ()) for n in range(30)]
    assert drawn(requests, 1) == drawn(requests, 1) != drawn(requests, 2)
    assert sorted(drawn(requests, 1), key=requests.index) == requests


@pytest.mark.parametrize(
    ("content", "problem"),
    [(None, "cannot be read"), ("{", "data.jsonl:1"), ('{"question": "q"}', "'documents' is missing")],
)
def test_bad_input_is_an_error_of_the_command(tmp_path: Path, content: str | None, problem: str) -> None:
    data = tmp_path / "data.jsonl"
    if content is not None:
        data.write_text(content)
    with pytest.raises(CommandError, match=problem):
        CliRunner().invoke(app, ["eval", "answers", "--data", str(data)], catch_exceptions=False)


@pytest.mark.parametrize(
    "arguments", [[], ["--data", "x", "--limit", "0"], ["--data", "x", "--workers", "0"]]
)
def test_bad_options_end_with_status_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["eval", "answers", *arguments]).exit_code == 2
