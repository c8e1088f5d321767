"""``gravity config validate``."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from gateway.configure.validate import run_validate
from gateway.stack.target import Target
from gateway.store.watch import ConfigStore

CONFIGS = Path(__file__).resolve().parents[3] / "configs"


def test_the_shipped_documents_are_valid(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_validate([CONFIGS], Target()) == 0
    printed = capsys.readouterr().out
    for task in (
        "default",
        "rag_qa",
        "code_generation",
        "structured_output",
        "open_writing",
        "summarisation",
    ):
        assert task in printed
    assert f"sha {ConfigStore.open(CONFIGS).snapshot.sha}" in printed


def test_a_typo_is_named_with_file_and_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = shutil.copytree(CONFIGS, tmp_path / "configs")
    document = folder / "tasks" / "rag_qa.yaml"
    document.write_text(document.read_text() + "\ngravity_strenght: 1.2\n")
    line = len(document.read_text().splitlines())
    assert run_validate([folder], Target()) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("invalid: ")
    assert f"rag_qa.yaml:{line}: " in printed
    assert "gravity_strenght" in printed


def test_a_folder_that_is_not_there_is_invalid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_validate([tmp_path / "nowhere"], Target()) == 1
    assert "nowhere" in capsys.readouterr().out


def test_a_single_file_is_checked_with_what_is_in_force(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.json"
    good.write_text("task_type: story\ngravity_strength: 1.5\n")
    assert run_validate([good], Target(config=CONFIGS)) == 0
    assert "story" in capsys.readouterr().out
    bad.write_text('{"task_type": "poem",\n "gravity_strength": 99}')
    assert run_validate([good, bad], Target(config=CONFIGS)) == 1
    assert f"invalid: {bad}:2: gravity_strength: " in capsys.readouterr().out
