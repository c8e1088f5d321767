"""No child outlives its parent, whatever ends the parent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

PARENT = """
import json, os, signal, subprocess, sys, time
from gateway.stack.leash import Leash

leash = Leash()
quiet = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], process_group=0)
deaf = subprocess.Popen(
    [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"],
    process_group=0,
)
released = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], process_group=0)
for child in (quiet, deaf, released):
    leash.hold(child.pid)
leash.release(released.pid)
print(json.dumps([quiet.pid, deaf.pid, released.pid]), flush=True)
time.sleep(60)
"""


def test_children_end_when_the_parent_is_killed(
    wait_until: Callable[..., Any], is_running: Callable[[int], bool]
) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    quiet, deaf, released = json.loads(parent.stdout.readline())
    try:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
        parent.stdout.close()
        wait_until(lambda: not is_running(quiet), timeout_s=10.0)
        wait_until(lambda: not is_running(deaf), timeout_s=15.0)
        assert is_running(released)
    finally:
        os.killpg(released, signal.SIGKILL)
