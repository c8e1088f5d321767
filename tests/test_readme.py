"""The README's examples work as typed against ``make serve``."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
ADDRESS = "127.0.0.1:8080"


def example(name: str, address: str) -> str:
    """The block of the README under this mark, with the test's address in the place of the default one."""
    found = re.search(
        rf"<!-- example: {name} -->\n```\w+\n(.+?)```", (ROOT / "README.md").read_text(), re.DOTALL
    )
    assert found is not None
    assert ADDRESS in found[1]
    return found[1].replace(ADDRESS, address)


@pytest.fixture(scope="module")
def address(served: Any) -> str:
    return str(served.gateway_url).removeprefix("http://")


def run(command: list[str], code: str) -> str:
    finished = subprocess.run(
        [*command, code], capture_output=True, text=True, cwd=ROOT, env=os.environ, timeout=120
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_the_curl_example_answers_with_a_gravity_report(address: str) -> None:
    answer = json.loads(run(["bash", "-c"], example("curl", address)))
    assert answer["choices"][0]["message"]["content"].strip()
    kept = {document["id"]: document["kept"] for document in answer["gravity"]["documents"]}
    assert kept == {"ship": True, "bread": False}
    assert answer["gravity"]["task"] == "rag_qa"


def test_the_openai_sdk_example_streams_report_and_text(address: str) -> None:
    printed = run([sys.executable, "-W", "error", "-c"], example("python", address))
    reports = [line for line in printed.splitlines() if line.startswith("{")]
    opening = ast.literal_eval(reports[0])
    assert opening["lane"] == "treatment"
    assert [document["kept"] for document in opening["documents"]] == [True, False]
    text = printed.replace(reports[0], "").strip()
    assert len(text) > 20


def test_the_commands_of_the_readme_exist() -> None:
    named = set(re.findall(r"`gravity ([a-z]+)", (ROOT / "README.md").read_text()))
    assert {"up", "demo", "replay", "example", "bench", "config", "trace", "gateway", "worker"} <= named
    listed = run([sys.executable, "-m", "gateway.cli"], "--help")
    assert all(re.search(rf"^  {name}\b", listed, re.MULTILINE) for name in named)


def test_the_make_targets_of_the_readme_exist() -> None:
    named = set(re.findall(r"(?:^|`)make ([a-z]+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"demo", "test", "serve"} <= named <= targets
