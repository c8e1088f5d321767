"""The examples of docs/pruning-api.md work as typed."""

from __future__ import annotations

import ast
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gateway.api.prune import PruneRequest
from tests.servers.gateway import Scripted

PAGE = Path(__file__).resolve().parent.parent / "docs" / "pruning-api.md"
ADDRESS = "http://127.0.0.1:8080"


def example(name: str, url: str) -> str:
    """The block under this mark, with the test's address in the place of the default one."""
    found = re.search(rf"<!-- example: {name} -->\n```\w+\n(.+?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    assert ADDRESS in found[1]
    return found[1].replace(ADDRESS, url)


def curled(name: str, url: str) -> dict[str, Any]:
    finished = subprocess.run(
        ["bash", "-c", example(name, url)], capture_output=True, text=True, timeout=90, check=True
    )
    answer: dict[str, Any] = json.loads(finished.stdout)
    return answer


def test_pruning_answers_with_the_fields_of_the_table(scripted: Scripted) -> None:
    answer = curled("prune", scripted.gateway.url)
    (kept,) = answer["documents"]
    assert (kept["id"], kept["metadata"]) == ("ferry", {"page": 7})
    table = PAGE.read_text().partition("| field of the answer |")[2].partition("## ")[0]
    cells = re.findall(r"^\| (.+?) \|", table, re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert named == answer.keys()
    told = dict(re.findall(r"^\| `(documents|verdicts)` \| (.+) \|$", table, re.MULTILINE))
    assert set(re.findall(r"`(\w+)`", told["documents"])) == kept.keys()
    assert set(re.findall(r"`(\w+)`", told["verdicts"])) == answer["verdicts"][0].keys()


def test_the_fields_of_a_request_are_those_of_the_table() -> None:
    table = PAGE.read_text().partition("| field of the request |")[2].partition("\n\n")[0]
    cells = re.findall(r"^\| (`.+?) \|", table, re.MULTILINE)
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert named == PruneRequest.model_fields.keys()


def test_reranking_puts_the_answer_first(scripted: Scripted) -> None:
    answer = curled("rerank", scripted.gateway.url)
    assert [result["index"] for result in answer["results"]] == [1]
    assert answer["model"] == "any"


@pytest.mark.parametrize("name", ["langchain", "llama_index"])
def test_an_adapters_example_keeps_the_ferry(
    scripted: Scripted, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    exec(compile(example(name, scripted.gateway.url), f"{PAGE.name}:{name}", "exec"), {})
    ((title, score, *_),) = ast.literal_eval(capsys.readouterr().out)
    assert title == "Solveig"
    assert 0.0 < score <= 1.0
