"""The limits of keys: in Redis, so that they hold over all gateways; in memory where it is away or slow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from redis.asyncio import Redis
from redis.exceptions import RedisError

from gateway.keys.key import Key, Limits
from gateway.keys.limit_script import SETTLE, TAKE
from gateway.keys.memory import Remembered, Wanted
from gateway.keys.names import LimitNames
from gateway.keys.standing import Short, Standing
from gateway.telemetry.logs import log
from gateway.telemetry.metrics import Metrics

FLUSH_S = 0.1
"""Tokens of running answers are told to Redis this often."""
PAUSE_S = 1.0
"""Redis is not asked for so long after it did not answer in time."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LimiterSettings:
    """Of all keys of a namespace."""

    namespace: str
    timeout_s: float
    """How long a request waits for Redis."""
    lease_s: float
    """How long the turns of a gateway that died count as open."""


@dataclass(frozen=True, slots=True)
class Taken:
    """``short`` is empty where all that was wanted has been taken; else nothing has."""

    short: Short
    standing: Standing


@dataclass(frozen=True, slots=True)
class _Word:
    """What Redis is told of a key: tokens to take, and leases that go on for ``lease_s``; 0 ends them."""

    key_id: str
    limits: Limits
    num_tokens: int = 0
    leases: tuple[str, ...] = ()
    lease_s: float = 0.0


class Limiter:
    """Knows keys by id. Of a key without limits nobody asks it."""

    def __init__(
        self, redis: Redis, settings: LimiterSettings, metrics: Metrics, clock: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self._clock = clock
        self._take = redis.register_script(TAKE)
        self._settle = redis.register_script(SETTLE)
        self._remembered: dict[str, Remembered] = {}
        self._owed: dict[str, _Word] = {}
        self._owing = asyncio.Event()
        self._telling: set[asyncio.Task[None]] = set()
        self._is_answering = True
        self._asks_again_at_s = clock()

    async def take(self, key: Key, wanted: Wanted) -> Taken:
        """Take what is wanted of the key's limits, all of it or nothing."""
        known = self._known(key)
        if wanted.lease and not known.has_room():
            # Here alone there are too many. What is left of the rest is as it was heard of last.
            return Taken("turns", known.standing)
        short = await self._taken_in_redis(key, known, wanted)
        if short is None:
            self._metrics.limits_from_memory.inc()
            short = known.take(wanted, self._clock())
            if short and wanted.lease:
                self._tell(_Word(key.id, key.limits, 0, (wanted.lease,)))  # Redis may have heard the question
        if wanted.lease and not short:
            known.leases.add(wanted.lease)
        return Taken(short, known.standing)

    def owe(self, key: Key, num_tokens: int) -> None:
        """Tokens of a running answer came; Redis is told soon."""
        if key.limits.tokens_per_minute is None:
            return
        self._known(key).charge(num_tokens, self._clock())
        num_before = self._num_owed(key.id)
        self._owed[key.id] = _Word(key.id, key.limits, num_before + num_tokens)
        self._owing.set()

    def end(self, key: Key, lease: str, num_tokens: int) -> None:
        """The turn is over, and these tokens are still to be taken, or given back. Redis is told at once."""
        known = self._known(key)
        known.leases.discard(lease)
        known.charge(num_tokens, self._clock())
        num_tokens += self._no_longer_owed(key.id)
        self._tell(_Word(key.id, key.limits, num_tokens, (lease,)))

    def watches(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        """Return what is to run by name: tells Redis what is owed, and that the open turns are still open."""
        return {"charge tokens": self._flush, "renew leases": self._renew}

    async def close(self) -> None:
        """Wait for what is on its way to Redis; each waits no longer than the client's own timeout."""
        await asyncio.gather(*self._telling, return_exceptions=True)

    async def _flush(self) -> None:
        while True:
            await self._owing.wait()
            await asyncio.sleep(FLUSH_S)
            self._owing.clear()
            owed, self._owed = self._owed, {}
            for word in owed.values():
                await self._told(word)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._settings.lease_s / 3)
            for key_id, known in tuple(self._remembered.items()):
                if known.leases:
                    leases = tuple(known.leases)
                    await self._told(_Word(key_id, known.limits, 0, leases, self._settings.lease_s))

    async def _taken_in_redis(self, key: Key, known: Remembered, wanted: Wanted) -> Short | None:
        """Return what is short; None where Redis did not say in time."""
        if self._clock() < self._asks_again_at_s:
            return None
        most, lease_s = key.limits.concurrent_turns or 0, self._settings.lease_s
        taken: tuple[str | float, ...] = (wanted.num_requests, wanted.num_tokens, wanted.lease, lease_s)
        asked = (*_rates(key.limits), most, *taken, self._no_longer_owed(key.id))
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                short, requests, tokens = await self._take(keys=self._names(key.id), args=asked)
        except (RedisError, OSError) as error:  # a TimeoutError is an OSError
            self._is_away(error)
            return None
        self._is_answering = True
        known.is_told(float(requests), float(tokens) - self._num_owed(key.id), self._clock())
        return _SHORT[short.decode()]

    def _tell(self, word: _Word) -> None:
        task = asyncio.create_task(self._told(word), name="tell limits")
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _told(self, word: _Word) -> None:
        """Tell Redis; what it does not hear holds here alone, and a lease ends by itself."""
        told: tuple[str | float, ...] = (word.num_tokens, word.lease_s, *word.leases)
        try:
            await self._settle(keys=self._names(word.key_id), args=[*_rates(word.limits), *told])
        except (RedisError, OSError) as error:
            self._is_away(error)

    def _names(self, key_id: str) -> tuple[str, str]:
        names = LimitNames(self._settings.namespace, key_id)
        return names.buckets, names.turns

    def _num_owed(self, key_id: str) -> int:
        word = self._owed.get(key_id)
        return 0 if word is None else word.num_tokens

    def _no_longer_owed(self, key_id: str) -> int:
        """Return what was owed; from now on it is what Redis is told of right now."""
        word = self._owed.pop(key_id, None)
        return 0 if word is None else word.num_tokens

    def _known(self, key: Key) -> Remembered:
        known = self._remembered.get(key.id)
        if known is None:
            known = self._remembered[key.id] = Remembered.fresh(key.limits, self._clock())
        elif known.limits != key.limits:
            known.becomes(key.limits, self._clock())
        return known

    def _is_away(self, error: Exception) -> None:
        if self._is_answering:
            log(logger, logging.WARNING, "limits_from_memory", reason=str(error) or type(error).__name__)
        self._is_answering = False
        self._asks_again_at_s = self._clock() + PAUSE_S


def _rates(limits: Limits) -> tuple[int, int]:
    return limits.requests_per_minute or 0, limits.tokens_per_minute or 0


_SHORT: dict[str, Short] = {"": "", "requests": "requests", "tokens": "tokens", "turns": "turns"}
