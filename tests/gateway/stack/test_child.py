"""A child process as the stack runs it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator

import pytest

from gateway.errors import StackError
from gateway.stack.child import Child, Command
from gateway.stack.leash import Leash

READY = "import json, time; print(json.dumps({'event': 'ready', 'url': 'http://127.0.0.1:1'}), flush=True); "


def python(name: str, code: str, **environment: str) -> Command:
    return Command(name, (sys.executable, "-c", code), environment)


def ignore(name: str, line: str) -> None:
    """Nothing listens."""


@pytest.fixture
def leash() -> Iterator[Leash]:
    with Leash() as leash:
        yield leash


async def test_a_child_is_ready_once_it_prints_its_ready_line(leash: Leash) -> None:
    lines: list[tuple[str, str]] = []
    child = await Child.start(
        python("server", READY + "time.sleep(60)"), leash, lambda *line: lines.append(line)
    )
    ready = await child.wait_ready(10.0)
    assert ready["url"] == "http://127.0.0.1:1"
    await child.stop(10.0)
    assert await child.wait() == -signal.SIGTERM
    assert [(name, json.loads(line)["event"]) for name, line in lines] == [("server", "ready")]


async def test_a_child_that_ends_before_it_is_ready_is_an_error_with_its_last_words(leash: Leash) -> None:
    code = "import sys; print('no such model', file=sys.stderr); sys.exit(3)"
    child = await Child.start(python("worker", code), leash, ignore)
    with pytest.raises(StackError, match=r"worker ended with status 3:\nno such model"):
        await child.wait_ready(10.0)


async def test_a_child_that_stays_silent_is_an_error_after_the_time(leash: Leash) -> None:
    child = await Child.start(python("worker", "import time; time.sleep(60)"), leash, ignore)
    with pytest.raises(StackError, match="worker was not ready within 0 s"):
        await child.wait_ready(0.2)
    await child.stop(10.0)


async def test_a_program_that_does_not_exist_is_an_error(leash: Leash) -> None:
    with pytest.raises(StackError, match="cannot run /no/such/program: No such file"):
        await Child.start(Command("valkey", ("/no/such/program",)), leash, ignore)


async def test_a_child_that_ignores_sigterm_is_killed_after_the_grace(leash: Leash) -> None:
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + READY + "time.sleep(60)"
    child = await Child.start(python("worker", code), leash, ignore)
    await child.wait_ready(10.0)
    await child.stop(0.2)
    assert await child.wait() == -signal.SIGKILL


async def test_what_a_child_left_behind_ends_with_it(leash: Leash) -> None:
    code = (
        "import subprocess, sys; "
        "left = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "
        "print(left.pid, flush=True)"
    )
    lines: list[str] = []
    child = await Child.start(python("worker", code), leash, lambda name, line: lines.append(line))
    # The grandchild holds the pipes open: wait() returning at all shows that it is gone.
    assert await asyncio.wait_for(child.wait(), 10.0) == 0
    assert len(lines) == 1


async def test_the_environment_is_added_to_the_parents_own(leash: Leash) -> None:
    lines: list[str] = []
    command = python("worker", "import os; print(os.environ['NG_PORT'], 'PATH' in os.environ)", NG_PORT="7")
    child = await Child.start(command, leash, lambda name, line: lines.append(line))
    await child.wait()
    assert lines == ["7 True"]


async def test_a_line_beyond_all_bounds_does_not_end_the_reading(leash: Leash) -> None:
    lines: list[str] = []
    code = "print('x' * (3 << 20)); print('after')"
    child = await Child.start(python("worker", code), leash, lambda name, line: lines.append(line))
    await child.wait()
    assert lines[-1] == "after"
    assert max(map(len, lines)) <= 1 << 20


async def test_a_child_leads_a_process_group_of_its_own(leash: Leash) -> None:
    child = await Child.start(python("worker", READY + "time.sleep(60)"), leash, ignore)
    await child.wait_ready(10.0)
    assert os.getpgid(child.pid) == child.pid != os.getpgrp()
    await child.stop(10.0)
