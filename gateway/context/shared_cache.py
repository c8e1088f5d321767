"""Encodings in Redis, so that one gateway encodes for all. No request waits for it longer than a moment.

Reading is bounded in time, writing happens in the background out of a bounded queue, and after a failure
Redis is left alone for a while; one that is full is still read. Whatever goes wrong is a miss, never an
error.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.context.cooldown import Cooldown
from gateway.context.encoding import Encoding
from gateway.context.packing import FORMAT, pack, packed_bytes, unpack
from gateway.telemetry.logs import log
from gateway.telemetry.metrics import Metrics

KEY_PREFIX = "ng:embedding:"
MAX_VALUE_BYTES = 2**20
"""An encoding above this (a text of about 2,600 tokens) is not shared."""
MAX_WAITING_BYTES = 64 * 2**20
MAX_READERS = 16
"""Connections at a time, of those that the gateway has for all that it does with Redis."""
_KEYS_PER_READ = 64
_ENCODINGS_PER_WRITE = 32
_PAUSE_S = 5.0
_WRITE_S = 2.0

logger = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SharedSettings:
    """How long an encoding is kept, and how long a request waits for those of others."""

    ttl_s: int = 7 * 86_400
    timeout_s: float = 0.05
    """For connecting and reading together, for each 64 texts."""


class SharedCache:
    """The encodings that all gateways at one Redis have made."""

    def __init__(
        self,
        redis: Redis,
        settings: SharedSettings,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._redis = redis
        self._settings = settings
        self._metrics = metrics
        self._reading = Cooldown(_PAUSE_S, clock)
        self._writing = Cooldown(_PAUSE_S, clock)
        self._readers = asyncio.Semaphore(MAX_READERS)
        self._waiting: deque[tuple[str, Encoding]] = deque()
        self._num_waiting_bytes = 0
        self._writer: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="encodings", initializer=_compute_alone)

    @property
    def num_waiting(self) -> int:
        """Encodings that are still to be written, without those that are being written."""
        return len(self._waiting)

    @property
    def is_writing(self) -> bool:
        """Whether some are."""
        return self._writer is not None and not self._writer.done()

    async def get(self, keys: Sequence[str], dimension: int) -> dict[str, Encoding]:
        """Return those of ``keys`` that are there and of ``dimension``; none while Redis is away or slow."""
        found: dict[str, Encoding] = {}
        for start in range(0, len(keys), _KEYS_PER_READ):
            if self._reading.reason:
                break
            some = keys[start : start + _KEYS_PER_READ]
            values = await self._read(some)
            found |= await self._on_thread(_unpacked, dict(zip(some, values, strict=False)), dimension)
        return found

    def put(self, key: str, encoding: Encoding) -> None:
        """Have ``encoding`` written soon. It is left out where it is too large, or the queue is full."""
        num_bytes = packed_bytes(encoding)
        if num_bytes > MAX_VALUE_BYTES:
            return
        is_away = bool(self._reading.reason or self._writing.reason)
        if is_away or self._num_waiting_bytes + encoding.num_bytes > MAX_WAITING_BYTES:
            self._metrics.encodings_not_shared.inc()
            return
        self._waiting.append((key, encoding))
        self._num_waiting_bytes += encoding.num_bytes
        if not self.is_writing:
            self._writer = asyncio.create_task(self._write_all(), name="share encodings")

    async def aclose(self) -> None:
        """Stop writing; what was not written is encoded again by whoever needs it."""
        if self._writer is not None:
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _read(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        async with self._readers:
            if self._reading.reason:  # another has found out meanwhile
                return ()
            try:
                async with asyncio.timeout(self._settings.timeout_s):
                    values = await self._redis.mget(keys)
            except (RedisError, OSError, TimeoutError) as error:
                self._fail(self._reading, "encodings_not_read", error)
                return ()
        return [value if isinstance(value, bytes) else None for value in values]

    async def _write_all(self) -> None:
        while self._waiting:
            batch = [self._take() for _ in range(min(len(self._waiting), _ENCODINGS_PER_WRITE))]
            values = await self._on_thread(_packed, batch)
            try:
                async with (
                    asyncio.timeout(_WRITE_S),
                    self._redis.pipeline(transaction=False) as pipe,
                ):
                    for key, value in values.items():
                        pipe.set(key, value, ex=self._settings.ttl_s)
                    await pipe.execute()
            except (RedisError, OSError, TimeoutError) as error:
                self._metrics.encodings_not_shared.inc(len(batch) + len(self._waiting))
                self._waiting.clear()
                self._num_waiting_bytes = 0
                self._fail(self._writing, "encodings_not_written", error)

    def _take(self) -> tuple[str, Encoding]:
        key, encoding = self._waiting.popleft()
        self._num_waiting_bytes -= encoding.num_bytes
        return key, encoding

    def _fail(self, pause: Cooldown, event: str, error: Exception) -> None:
        pause.begin(event)
        self._metrics.encoding_cache_failures.inc()
        log(logger, logging.WARNING, event, reason=str(error) or type(error).__name__)

    async def _on_thread(self, work: Callable[..., dict[str, T]], *arguments: object) -> dict[str, T]:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)


def _compute_alone() -> None:
    import torch

    torch.set_num_threads(1)


def shared_key(fingerprint: str, text_hash: bytes) -> str:
    """Return the key of a text's encoding by the encoder with this fingerprint."""
    return f"{KEY_PREFIX}{fingerprint}-{FORMAT}:{text_hash.hex()}"


def _packed(batch: Sequence[tuple[str, Encoding]]) -> dict[str, bytes]:
    return {key: pack(encoding) for key, encoding in batch}


def _unpacked(values: dict[str, bytes | None], dimension: int) -> dict[str, Encoding]:
    read = {key: unpack(value, dimension) for key, value in values.items() if value is not None}
    return {key: encoding for key, encoding in read.items() if encoding is not None}
