"""The client that makes the load, in a process of its own: a run a line in, its figures a line out.

``python -m gateway.bench.load``. Bytes are made before a run; what comes back is parsed by httptools
and thrown away, so that the client costs a few dozen microseconds a request.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, cast

import httptools
import orjson
import uvloop

CONNECT_S = 10.0
LOOK_S = 1.0


STALLED = "stalled"
"""What a line says instead of figures."""


class Stalled(Exception):
    """A run that cannot come to its end; the message says why."""


@dataclass(frozen=True, slots=True)
class Run:
    """What to send: each of the connections sends its next request when it has its answer.

    A run ends after ``duration_s`` or ``max_requests``, whichever is first, and waits for what is under way.
    Where ``num_models`` is not 0, requests name that many models that do not exist, in turn.
    """

    port: int
    num_connections: int
    num_bytes: int
    duration_s: float
    max_requests: int = 1_000_000
    num_chunks: int = 0
    """0 asks for an answer that is not streamed."""
    num_models: int = 0
    silence_s: float = 30.0
    """A request that gets not one byte for so long is given up, and the run with it."""


@dataclass(slots=True)
class Measured:
    """What came of a run. Times in milliseconds, one a request that was answered as it should be."""

    latencies_ms: list[float] = field(default_factory=list)
    first_ms: list[float] = field(default_factory=list)
    """Until the first byte of the answer's body."""
    elapsed_s: float = 0.0
    num_failed: int = 0


def request_bytes(run: Run, model: str) -> bytes:
    """Return a chat request whose body has about ``num_bytes`` bytes."""
    asked = {"role": "user", "content": "What does the harbour master write down?"}
    body = {"model": model, "messages": [{"role": "system", "content": ""}, asked], "temperature": 0.7}
    if run.num_chunks:
        body |= {"stream": True, "max_tokens": run.num_chunks}
    sentence = 'The harbour master wrote "14 ships" into the book — and the state of their sails.\n'
    missing = max(0, run.num_bytes - len(orjson.dumps(body)))
    text = sentence * (missing // (len(orjson.dumps(sentence)) - 2))
    body["messages"] = [{"role": "system", "content": text}, asked]
    content = orjson.dumps(body)
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{run.port}\r\n"
        "user-agent: bench\r\naccept: */*\r\nauthorization: Bearer sk-bench\r\n"
        f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


class _Load:
    """One run under way."""

    def __init__(self, run: Run) -> None:
        self._run = run
        models = [f"made-up-{number}" for number in range(run.num_models)] or ["bench"]
        self._requests = [request_bytes(run, model) for model in models]
        self.right_status = 404 if run.num_models else 200
        self._num_sent = 0
        self._num_open = run.num_connections
        self._ends_at = 0.0
        self.measured = Measured()
        self._all_done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def carry_out(self) -> Measured:
        """Raises Stalled where it cannot connect, or a request is not answered."""
        connections = await self._connected()
        began = time.perf_counter()
        self._ends_at = began + self._run.duration_s
        for connection in connections:
            connection.next()
        while not (await asyncio.wait([self._all_done], timeout=LOOK_S))[0]:
            self._require_answers(connections)
        self.measured.elapsed_s = time.perf_counter() - began
        return self.measured

    async def _connected(self) -> list[_Connection]:
        loop = asyncio.get_running_loop()
        connections: list[_Connection] = []
        try:
            async with asyncio.timeout(CONNECT_S):
                for _ in range(self._run.num_connections):
                    _, connection = await loop.create_connection(
                        lambda: _Connection(self), "127.0.0.1", self._run.port
                    )
                    connections.append(connection)
        except OSError as error:  # TimeoutError is one
            reason = str(error) or f"not within {CONNECT_S:.0f} s"
            raise Stalled(f"connection {len(connections) + 1} cannot be made: {reason}") from error
        return connections

    def _require_answers(self, connections: Sequence[_Connection]) -> None:
        limit_s, num_answered = self._run.silence_s, len(self.measured.latencies_ms)
        num_silent = sum(connection.silence_s > limit_s for connection in connections)
        if num_silent:
            told = f"{num_silent} of {len(connections)} requests got no byte in {limit_s:g} s"
            raise Stalled(f"{told}, after {num_answered} answers")

    def take(self) -> bytes | None:
        """Return the next request; None where the run is over."""
        if self._num_sent >= self._run.max_requests or time.perf_counter() >= self._ends_at:
            return None
        self._num_sent += 1
        return self._requests[self._num_sent % len(self._requests)]

    def ended(self) -> None:
        """A connection is done."""
        self._num_open -= 1
        if not self._num_open and not self._all_done.done():
            self._all_done.set_result(None)


class _Connection(asyncio.Protocol):
    """Sends a request, waits for its answer, sends the next one."""

    def __init__(self, load: _Load) -> None:
        self._load = load
        self._parser = httptools.HttpResponseParser(self)
        self._is_busy = False
        self._has_ended = False
        self._sent_at = 0.0
        self._first_at = 0.0
        self._heard_at = 0.0

    @property
    def silence_s(self) -> float:
        """How long its request has been without a byte; 0 where it has none."""
        return time.perf_counter() - max(self._sent_at, self._heard_at) if self._is_busy else 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def next(self) -> None:
        request = self._load.take()
        if request is None:
            self._end()
            return
        self._is_busy, self._first_at = True, 0.0
        self._sent_at = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._heard_at = time.perf_counter()
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        if not self._first_at:
            self._first_at = time.perf_counter()

    def on_message_complete(self) -> None:
        now, self._is_busy = time.perf_counter(), False
        measured = self._load.measured
        if self._parser.get_status_code() == self._load.right_status:
            measured.latencies_ms.append(1e3 * (now - self._sent_at))
            measured.first_ms.append(1e3 * (self._first_at - self._sent_at))
        else:
            measured.num_failed += 1
        self.next()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._has_ended:
            self._load.measured.num_failed += self._is_busy
            self._end()

    def _end(self) -> None:
        self._has_ended = True
        self._transport.close()
        self._load.ended()


async def _carry_out(run: Run) -> dict[str, Any]:
    try:
        return asdict(await _Load(run).carry_out())
    except Stalled as stalled:
        return {STALLED: str(stalled)}


def main() -> None:
    """Read runs until the input ends."""
    # A buffer of its own: with PYTHONUNBUFFERED stdout has none, and a long line may then be written in part.
    with open(sys.stdout.fileno(), "wb", closefd=False) as out:
        for line in sys.stdin.buffer:
            told = uvloop.run(_carry_out(Run(**orjson.loads(line))))
            out.write(orjson.dumps(told) + b"\n")
            out.flush()


if __name__ == "__main__":
    main()
