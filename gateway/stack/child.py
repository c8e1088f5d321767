"""One child process: its output line by line, its ready line, its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from gateway.errors import StackError
from gateway.stack.leash import Leash

OnLine: TypeAlias = Callable[[str, str], None]
"""Called with a child's name and one line of its output, without the line's end."""

LONGEST_LINE_BYTES = 1 << 20
KEPT_LINES = 30


def keep_quiet(name: str, line: str) -> None:
    """An ``OnLine`` that shows nothing: a child that fails shows its last lines in the error."""


@dataclass(frozen=True, slots=True)
class Command:
    """What to run. ``environment`` is added to this process's own."""

    name: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


class Child:
    """A started command, in a process group of its own and on the leash."""

    def __init__(
        self,
        name: str,
        process: asyncio.subprocess.Process,
        outputs: Sequence[asyncio.StreamReader],
        leash: Leash,
        on_line: OnLine,
    ) -> None:
        self.name = name
        self.pid = process.pid
        self._process = process
        self._outputs = outputs
        self._leash = leash
        self._on_line = on_line
        self._last_lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._ready: asyncio.Future[Mapping[str, Any]] = asyncio.get_running_loop().create_future()
        self._end = asyncio.create_task(self._watch(), name=f"watch {name}")

    @classmethod
    async def start(cls, command: Command, leash: Leash, on_line: OnLine) -> Child:
        """Start the command. Raises StackError where there is no such program."""
        async with _pipe() as (output, output_end), _pipe() as (errors, errors_end):
            try:
                process = await asyncio.create_subprocess_exec(
                    *command.arguments,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output_end,
                    stderr=errors_end,
                    env={**os.environ, "PYTHONUNBUFFERED": "1", **command.environment},
                    process_group=0,  # Ctrl-C in a terminal is for the parent, which ends them in order
                )
            except OSError as error:
                program = command.arguments[0]
                raise StackError(f"{command.name}: cannot run {program}: {error.strerror}") from error
            leash.hold(process.pid)
        return cls(command.name, process, (output, errors), leash, on_line)

    async def wait_ready(self, timeout_s: float) -> Mapping[str, Any]:
        """Return the ready line. Raises StackError with the last output where it ends or stays silent."""
        try:
            async with asyncio.timeout(timeout_s):
                first_of: set[asyncio.Future[Any]] = {self._ready, self._end}
                await asyncio.wait(first_of, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            raise StackError(
                f"{self.name} was not ready within {timeout_s:.0f} s:\n{self.last_output}"
            ) from None
        if not self._ready.done():
            raise StackError(f"{self.name} ended with status {self._end.result()}:\n{self.last_output}")
        return self._ready.result()

    async def wait(self) -> int:
        """Return the exit status once it has ended, negative for a signal."""
        return await asyncio.shield(self._end)

    @property
    def has_ended(self) -> bool:
        return self._end.done()

    @property
    def last_output(self) -> str:
        return "\n".join(self._last_lines)

    async def stop(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL for the whole group after ``grace_s``."""
        if not self.has_ended:
            self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_s):
                await asyncio.shield(self._end)
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await self._end

    def pause(self) -> None:
        """Let the whole group stand still until ``go_on``. Until then ``stop`` can only kill it."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    async def _watch(self) -> int:
        async with asyncio.TaskGroup() as readers:
            for output in self._outputs:
                readers.create_task(self._read(output))
            status = await self._process.wait()
            self._signal(signal.SIGKILL)  # what it left behind, which would hold the pipes open too
            self._leash.release(self.pid)
        return status

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while True:
            try:
                raw = await stream.readline()
            except ValueError:
                raw = b"(a line over 1 MiB, left out)\n"
            if not raw:
                return
            line = raw.decode(errors="replace").rstrip("\r\n")
            self._last_lines.append(line)
            self._notice_ready(line)
            self._on_line(self.name, line)

    def _notice_ready(self, line: str) -> None:
        if self._ready.done() or not line.startswith("{"):
            return
        with contextlib.suppress(ValueError):
            event = json.loads(line)
            if event.get("event") == "ready":
                self._ready.set_result(event)


@asynccontextmanager
async def _pipe() -> AsyncIterator[tuple[asyncio.StreamReader, int]]:
    """A reader, and the descriptor to write to, which is closed on the way out.

    asyncio's own pipes would make wait() last as long as any descendant holds them.
    """
    loop = asyncio.get_running_loop()
    read_end, write_end = os.pipe()
    try:
        reader = asyncio.StreamReader(limit=LONGEST_LINE_BYTES)
        source = os.fdopen(read_end, "rb", buffering=0)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
        yield reader, write_end
    finally:
        os.close(write_end)
