"""Every command of the page on replay does what it says."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis import Redis
from typer.testing import CliRunner

from gateway.cli import app
from tests.conftest import RunningProcess
from tests.servers.gateway import REPOSITORY, Gateway

PAGE = (REPOSITORY / "docs" / "replay.md").read_text()


def commands(name: str) -> list[str]:
    """The command lines of one block, without what is said of them."""
    block = re.findall(rf"<!-- commands: {name} -->\n```bash\n(.*?)```", PAGE, flags=re.DOTALL)[0]
    return [line.partition("#")[0].strip() for line in block.splitlines()]


@pytest.fixture
def turn_id(real_gateway: Gateway, valkey_url: str, wait_until: Any) -> str:
    """A turn of a user who deletes it in the end."""
    message = {"role": "user", "content": "Name a colour."}
    body = {"model": "SmolLM2-135M-Instruct", "messages": [message], "max_tokens": 2, "user": "ada"}
    answer = httpx.post(real_gateway.url + "/v1/chat/completions", json=body, timeout=60.0)
    turn_id = str(answer.headers["x-gravity-turn-id"])
    with Redis.from_url(valkey_url) as redis:
        wait_until(lambda: redis.exists(f"ng:turn:{turn_id}"))
    return turn_id


@pytest.fixture
def run(
    turn_id: str,
    worker_server: RunningProcess,
    valkey_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., tuple[int, str]]:
    """Run a command of the page, in a folder with the product's configuration; return status and output."""
    shutil.copytree(REPOSITORY / "configs", tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NG_REDIS_URL", valkey_url)
    monkeypatch.setenv("NG_WORKERS", worker_server.url)
    monkeypatch.delenv("NG_CONFIG_DIR", raising=False)

    def command(line: str, stdin: str = "") -> tuple[int, str]:
        gravity, *arguments = shlex.split(line.replace("$ID", turn_id))
        assert gravity == "gravity"
        result = CliRunner().invoke(app, arguments, input=stdin)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.exit_code, result.output

    return command


def test_every_command_of_the_page_works(
    run: Callable[..., tuple[int, str]], turn_id: str, tmp_path: Path
) -> None:
    for line in commands("trace") + commands("replay") + commands("config"):
        status, output = run(line)
        assert status == 0, (line, output)
    assert f'"id":"{turn_id}"' in (tmp_path / "turns.jsonl").read_text()
    assert (tmp_path / "out.json").is_file()
    for line in commands("batch"):
        status, output = run(f"{line} --limit 1".replace("--task rag_qa ", ""))
        assert status == 0, (line, output)
        assert "answers that change: 0 of 1" in output
    ask, user = commands("delete")
    assert run(ask, "n\n")[0] == 1
    assert run(user)[0] == 0
    status, output = run(ask, "y\n")
    assert status == 1, output


def test_the_page_names_every_filter() -> None:
    for name in (
        "task",
        "lane",
        "config",
        "experiment",
        "status",
        "model",
        "user",
        "since",
        "until",
        "limit",
    ):
        assert f"--{name}" in PAGE
