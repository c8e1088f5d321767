"""Ends child processes when their parent is gone, however it went: SIGKILL included.

A guard process holds the read end of a pipe and a list of process groups. The kernel closes the parent's
end when the parent dies; the guard then ends what is still on the list. The file runs by its path, without
site packages, so that the guard costs a few milliseconds and little memory.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from types import TracebackType

GRACE_S = 5.0
"""Between SIGTERM and SIGKILL, once the parent is gone."""


class Leash:
    """The parent's side: ``hold`` a child's process group after its start, ``release`` it after its end."""

    def __init__(self) -> None:
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C in the terminal must not reach it
        )

    def hold(self, group: int) -> None:
        self._tell(f"+{group}\n")

    def release(self, group: int) -> None:
        self._tell(f"-{group}\n")

    def __enter__(self) -> Leash:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait(2 * GRACE_S)

    def _tell(self, line: str) -> None:
        assert self._guard.stdin is not None
        self._guard.stdin.write(line.encode())
        self._guard.stdin.flush()


def guard(lines: Iterable[str]) -> None:
    """Keep the list until the lines end, then end every group that is left on it."""
    groups: set[int] = set()
    for line in lines:
        change = groups.add if line.startswith("+") else groups.discard
        change(int(line[1:]))
    _signal_all(groups, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while groups and time.monotonic() < deadline:
        time.sleep(0.02)
        groups = {group for group in groups if _signal(group, 0)}
    _signal_all(groups, signal.SIGKILL)


def _signal_all(groups: Iterable[int], number: int) -> None:
    for group in groups:
        _signal(group, number)


def _signal(group: int, number: int) -> bool:
    """Return whether the group was there."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


if __name__ == "__main__":
    guard(sys.stdin)
