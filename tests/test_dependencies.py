"""The check of dependencies: it passes on what is installed here, and finds what it is there to find."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def dependencies() -> ModuleType:
    return script("dependencies")


def test_what_is_installed_here_is_what_is_pinned() -> None:
    command = [sys.executable, str(ROOT / ".ci" / "dependencies.py")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert re.match(r"dependencies: \d{2,} packages installed, as pinned", ended.stdout)


def test_a_line_that_pins_nothing_or_twice_is_a_problem(dependencies: ModuleType) -> None:
    pins, problems = dependencies.read_pins(["Some_Name==1.0", "other>=2", "some-name==1.1", ""])
    assert pins == {"some-name": "1.0"}
    assert len(problems) == 3


def test_a_dependency_without_its_pin_is_a_problem(dependencies: ModuleType) -> None:
    project = {
        "dependencies": ["a>=2", "b"],
        "optional-dependencies": {"dev": ["c>=1", "narrative-gravity[x]"]},
    }
    found = dependencies.unpinned(project, {"a": "1.0", "c": "1.0"})
    assert found == [
        "a==1.0 is not what pyproject.toml allows: >=2",
        "b is in pyproject.toml and not in constraints.txt",
    ]


def test_what_is_installed_otherwise_or_by_nobody_is_a_problem(dependencies: ModuleType) -> None:
    installed = {"a": "2.0", "b": "1.0", "torch": "2.13.0+cpu", "pip": "25", "nvidia-x": "1"}
    found = dependencies.installed_otherwise(installed, {"a": "1.0", "torch": "2.13.0"}, {"nvidia-x"})
    assert found == [
        "a 2.0 is installed, and 1.0 is pinned",
        "b 1.0 is installed, and constraints.txt does not name it",
    ]


@pytest.mark.parametrize(
    ("names", "is_allowed"),
    [
        (["MIT"], True),
        (["MPL-2.0", "Apache-2.0"], True),
        (["GNU General Public License v3 (GPLv3)"], False),
        (["AGPL-3.0-only"], False),
        (["LGPL-2.1", "MIT"], False),
        (["Other/Proprietary License"], False),
        (["Business Source License 1.1"], False),
        (["something made up"], False),
        ([], False),
    ],
)
def test_a_licence_has_to_be_of_a_known_family(
    dependencies: ModuleType, names: list[str], is_allowed: bool
) -> None:
    assert (dependencies.licence_problem(names) is None) == is_allowed


def test_an_audit_tells_what_is_known_from_what_could_not_be_asked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    audit = script("audit")
    assert audit.judged([{"name": "a", "skip_reason": "not found"}]) == 3
    assert "NOT DONE" in capsys.readouterr().err
    assert audit.judged([{"name": "a", "version": "1", "vulns": []}]) == 0
    vulnerable = {"name": "a", "version": "1", "vulns": [{"id": "CVE-1", "fix_versions": ["2"]}]}
    assert audit.judged([vulnerable]) == 1
    assert "a 1: CVE-1, fixed in 2" in capsys.readouterr().err
