"""The commands of docs/configuration.md work as typed, with the status that the page gives them."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import orjson
import pytest
import typer

from gateway.api.config_paths import CONFIG_PATHS
from gateway.api.config_schema import ImportBody, PublishBody, RollbackBody
from gateway.cli import app
from gateway.errors import CommandError
from gateway.settings import GatewaySettings
from tests.servers.gateway import Scripted

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "configuration.md").read_text()


def block(mark: str) -> str:
    """The block under this mark."""
    found = re.search(rf"<!-- {re.escape(mark)} -->\n```\w+\n(.+?)```", PAGE, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, valkey_url: str) -> Path:
    """A folder with ``configs`` and the page's files, as a reader would have it."""
    for name in ("NG_CONFIG_DIR", "NG_CONFIG_STORE", "NG_CONFIG_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NG_REDIS_URL", valkey_url)
    monkeypatch.setenv("NG_CONFIG_NAMESPACE", f"docs-{tmp_path.name}")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "configs", tmp_path / "configs", ignore=shutil.ignore_patterns(".versions"))
    for name in re.findall(r"<!-- file: (\S+) -->", PAGE):
        (tmp_path / name).write_text(block(f"file: {name}"))
    return tmp_path


@pytest.mark.parametrize("name", ["files", "share"])
@pytest.mark.usefixtures("here")
def test_the_commands_work_as_typed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = typer.main.get_command(app)
    for line in block(f"commands: {name}").splitlines():
        typed, _, comment = line.partition("#")
        expected = re.match(r" status (\d)", comment)
        try:
            status = command(shlex.split(typed)[1:], standalone_mode=False)
        except CommandError as error:
            pytest.fail(f"{typed}: {error}")
        assert status == (int(expected[1]) if expected else 0), (typed, capsys.readouterr().out)


def test_the_request_works_as_typed(scripted: Scripted) -> None:
    typed = block("commands: http").replace("http://127.0.0.1:8080", scripted.gateway.url)
    finished = subprocess.run(["bash", "-c", typed], capture_output=True, timeout=60, check=True)
    changed = {change["path"] for change in orjson.loads(finished.stdout)["changes"]}
    assert "tasks.quest.core_semantics" in changed


def test_the_table_of_paths_has_every_path_with_its_fields() -> None:
    rows = dict(re.findall(r"^\| `((?:GET|POST) [^?`]+)(?:\?\S*)?` \| (.+) \|$", PAGE, re.MULTILINE))
    assert rows.keys() == {f"{path.method} {path.template}" for path in CONFIG_PATHS}
    for name, model in (("publish", PublishBody), ("rollback", RollbackBody), ("import", ImportBody)):
        assert set(re.findall(r"`(\w+)`", rows[f"POST /admin/config/{name}"])) == model.model_fields.keys()


def test_the_table_of_guards_has_the_settings_with_their_defaults() -> None:
    rows = re.findall(r"^\| .+ \| (?:a factor of )?([\d.]+) \| `NG_(\w+)` \|$", PAGE, re.MULTILINE)
    shown = {name.lower(): float(value) for value, name in rows}
    fields = GatewaySettings.model_fields
    assert shown == {name: fields[name].default for name in fields if name.startswith("config_jump_")}
