"""The command ``gravity config`` in this process, on a folder or in a namespace of its own."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from gateway.cli import app
from gateway.errors import CommandError

DEFAULT = "task_type: default\nsampling:\n  temperature: 0.7\n"
STORY = "task_type: story  # a comment\ngravity_strength: 1.2\nadaptive: {k_min: 2, k_max: 20}\n"
GAIN = """\
id: gain
tasks: [default]
enrol_seed: a
arm_seed: b
arms: [{name: treatment, start: 0}, {name: control, start: 0.5, pruning: false}]
"""


@dataclass(frozen=True, slots=True)
class Ran:
    status: int
    printed: str

    @property
    def lines(self) -> list[str]:
        return self.printed.splitlines()

    def json(self) -> Any:
        return json.loads(self.printed)


Gravity = Callable[..., Ran]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two tasks and an experiment, never published to."""
    path = tmp_path / "configs"
    for name, text in (
        ("tasks/default.yaml", DEFAULT),
        ("tasks/story.yaml", STORY),
        ("experiments/gain.yaml", GAIN),
    ):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(text)
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Gravity:
    """Run ``gravity config …`` without settings from outside; a CommandError is status 2, as in main."""
    for name in ("NG_CONFIG_DIR", "NG_CONFIG_STORE", "NG_CONFIG_NAMESPACE", "NG_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str | Path) -> Ran:
        capsys.readouterr()
        command = typer.main.get_command(app)
        try:
            status = command(["config", *map(str, arguments)], standalone_mode=False)
        except CommandError as error:
            print(error)
            status = 2
        return Ran(status, capsys.readouterr().out)

    return run


@pytest.fixture
def gravity(run: Gravity, folder: Path) -> Gravity:
    """``gravity config … --store files --config FOLDER``."""
    return lambda *arguments: run(*arguments, "--store", "files", "--config", folder)


@pytest.fixture
def fleet(run: Gravity, folder: Path, valkey_url: str) -> Gravity:
    """``gravity config … --store redis`` in a new namespace."""
    namespace = f"test-{uuid.uuid4().hex}"
    options = ("--store", "redis", "--redis", valkey_url, "--namespace", namespace, "--config", folder)
    return lambda *arguments: run(*arguments, *options)
