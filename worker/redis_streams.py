"""Pipelined XADDs to Redis, where sending an entry twice writes it once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError
from redis.retry import Retry

from worker.spill import TraceEntry

_ID_NOT_NEW = "equal or smaller than the target stream top item"
_WRONG_TYPE = "WRONGTYPE"


class StoreAwayError(Exception):
    """Redis is unreachable, slow, or refuses writes for now; the batch may or may not have been written."""


class RedisStreams:
    """One connection, used by one thread. Every call ends within about ``timeout_s``."""

    def __init__(self, url: str, *, timeout_s: float, max_entries: int, ttl_s: float) -> None:
        self._client: Redis = Redis.from_url(
            url, socket_timeout=timeout_s, socket_connect_timeout=timeout_s, retry=Retry(NoBackoff(), 0)
        )
        self._max_entries = max_entries
        self._ttl_ms = int(ttl_s * 1000)

    def send(self, entries: Sequence[TraceEntry], *, is_repeat: bool) -> int:
        """Write the entries in order and return the number of steps that can never be written.

        ``is_repeat`` says that an earlier attempt may have written some: these are recognised by their id.
        Raises StoreAwayError, after which the same entries may be sent again.
        """
        try:
            results = self._execute(entries, with_ids=True)
            refused = [entry for entry, result in zip(entries, results, strict=True) if _is_not_new(result)]
            if refused and not is_repeat:
                # A worker whose clock runs ahead wrote to this turn before (a retry): let Redis choose ids.
                self._execute(refused, with_ids=False)
        except (RedisError, OSError) as error:
            self._client.connection_pool.disconnect()
            raise StoreAwayError(str(error)) from error
        return sum(
            entry.num_steps for entry, result in zip(entries, results, strict=True) if _is_hopeless(result)
        )

    def close(self) -> None:
        self._client.close()

    def _execute(self, entries: Sequence[TraceEntry], *, with_ids: bool) -> list[Any]:
        pipeline = self._client.pipeline(transaction=False)
        for entry in entries:
            pipeline.xadd(
                entry.key,
                cast(dict[Any, Any], entry.fields),
                id=entry.id if with_ids else "*",
                maxlen=self._max_entries,
                approximate=False,
            )
        for key in dict.fromkeys(entry.key for entry in entries):
            pipeline.pexpire(key, self._ttl_ms)
        results: list[Any] = pipeline.execute(raise_on_error=False)[: len(entries)]
        for result in results:
            if isinstance(result, Exception) and not (_is_not_new(result) or _is_hopeless(result)):
                raise result
        return results


def _is_not_new(result: Any) -> bool:
    return isinstance(result, ResponseError) and _ID_NOT_NEW in str(result)


def _is_hopeless(result: Any) -> bool:
    return isinstance(result, ResponseError) and str(result).startswith(_WRONG_TYPE)
