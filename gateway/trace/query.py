"""Finds recorded turns: the newest first, in the order in which they ended."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

import orjson
from redis.asyncio import Redis

from gateway.errors import TraceError
from gateway.trace.index import LINE, IndexLine, parse_line
from gateway.trace.keys import TURNS_INDEX_KEY, TURNS_KEY, text_hash

DEFAULT_LIMIT = 50
PAGE = 2_000
ROWS_PER_FETCH = 500
MAX_CLOCK_SKEW_S = 300.0
"""An entry's id is the time of Redis when the turn was written, ``received_at`` the gateway's when it came:
later by as long as the turn took, unless Redis's clock is behind; by no more than this, we trust."""


@dataclass(frozen=True, slots=True)
class TurnQuery:
    """Which turns. What is None is not asked for; ``since`` and ``until`` bound ``received_at``, Unix time.

    ``config_sha`` is the beginning of one; ``user`` is what the request said, not its hash; without ``limit``
    all are found.
    """

    task: str | None = None
    lane: str | None = None
    config_sha: str | None = None
    experiment: str | None = None
    status: str | None = None
    since: float | None = None
    until: float | None = None
    user: str | None = None
    limit: int | None = DEFAULT_LIMIT
    model: str | None = None
    turn_id: str | None = None
    """One turn, and its shadows."""

    def first_id(self) -> str:
        """Return the stream id before which no turn matches. None such is last: a record may be late."""
        if self.since is None:
            return "-"
        return str(max(0, int((self.since - MAX_CLOCK_SKEW_S) * 1e3)))


EVERY = TurnQuery(limit=None)


@dataclass(frozen=True, slots=True)
class TurnSummaryRow:
    """A turn's entry in ``ng:turns``. Times in seconds, entropies in nats; None and "" where not known."""

    entry_id: str
    """Of the stream."""
    id: str
    received_at: float = 0.0
    """Unix time, seconds."""
    endpoint: str = ""
    lane: str = ""
    lane_reason: str = ""
    experiment: str = ""
    experiment_version: int = 0
    unit: str = ""
    user: str = ""
    """A hash; empty where the request named nobody, and under the retention ``none``."""
    shadow_of: str = ""
    """The turn that this one repeats in the control's way."""
    task: str = ""
    config_sha: str = ""
    model: str = ""
    worker: str = ""
    seed: int | None = None
    bucket: int = 0
    expected_s: float | None = None
    bucket_pool: str = ""
    documents_kept: int = 0
    documents_dropped: int = 0
    tokens_before: int = 0
    tokens_after: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    time_to_first_token_s: float | None = None
    latency_s: float = 0.0
    mean_entropy_nats: float | None = None
    mean_gravity: float | None = None
    entropic_time_nats: float | None = None
    """tau."""
    net_drop_nats: float | None = None
    envelope_nats: float | None = None
    cost_gmac: float | None = None
    nats_per_gmac: float | None = None
    cached_prompt_tokens: int | None = None
    status: str = ""
    error_code: str = ""
    finish: str = ""


class TurnFilter:
    """A query made ready for many lines."""

    def __init__(self, query: TurnQuery) -> None:
        wanted = {
            "task": query.task,
            "lane": query.lane,
            "experiment": query.experiment,
            "status": query.status,
            "model": query.model,
            "user": None if query.user is None else text_hash(query.user),
        }
        self._wanted = {name: value for name, value in wanted.items() if value is not None}
        self._sha = query.config_sha or ""
        self._since = -math.inf if query.since is None else query.since
        self._until = math.inf if query.until is None else query.until
        self._id = query.turn_id
        self._marks = [*map(orjson.dumps, self._wanted.values()), orjson.dumps(self._sha)[:-1]]
        self._marks += [] if self._id is None else [orjson.dumps(self._id)]
        """What stands in every line that is admitted: looked for before it is parsed."""

    def admits_line(self, line: bytes) -> bool:
        return all(mark in line for mark in self._marks) and self.admits(parse_line(line))

    def admits(self, turn: IndexLine | TurnSummaryRow) -> bool:
        return (
            self._since <= turn.received_at <= self._until
            and turn.config_sha.startswith(self._sha)
            and (self._id is None or self._id in (turn.id, turn.shadow_of))
            and all(getattr(turn, name) == value for name, value in self._wanted.items())
        )


_KINDS: Mapping[str, type] = {
    name: next(each for each in (int, float, str) if hint in (each, each | None))
    for name, hint in get_type_hints(TurnSummaryRow).items()
}


async def find_turns(redis: Redis, query: TurnQuery) -> tuple[TurnSummaryRow, ...]:
    """Return the turns of ``query``, the newest first. Raises TraceError where an entry is damaged."""
    return tuple([row async for row in iterate_turns(redis, query)])


async def listed_ids(redis: Redis) -> set[str]:
    """Return the ids of all turns that have an entry."""
    ids = set()
    oldest = "+"
    async for page in _pages(redis, TURNS_INDEX_KEY, "+", EVERY):
        ids |= {parse_line(entry[LINE]).id for _, entry in page}
        oldest = f"({page[-1][0].decode()}"
    async for page in _pages(redis, TURNS_KEY, oldest, EVERY):
        ids |= {parse_row(*entry).id for entry in page}
    return ids


async def iterate_turns(redis: Redis, query: TurnQuery) -> AsyncIterator[TurnSummaryRow]:
    """Give the turns of ``query`` as they are found, the newest first; what is trimmed meanwhile lacks."""
    num_left = query.limit
    async for page in _matching(redis, query):
        for row in page:
            if num_left is not None:
                if num_left <= 0:
                    return
                num_left -= 1
            yield row
        if num_left == 0:
            return


def parse_row(entry_id: bytes, entry: Mapping[bytes, bytes]) -> TurnSummaryRow:
    """Return an entry of ``ng:turns``; unknown fields are ignored. Raises TraceError where it is damaged."""
    values: dict[str, Any] = {"entry_id": entry_id.decode()}
    try:
        for name, kind in _KINDS.items():
            if (value := entry.get(name.encode())) is not None:
                values[name] = kind(value.decode())
        return TurnSummaryRow(**values)
    except (TypeError, ValueError) as error:
        raise TraceError(f"{TURNS_KEY} holds a damaged entry, {values['entry_id']}: {error}") from error


async def _matching(redis: Redis, query: TurnQuery) -> AsyncIterator[Sequence[TurnSummaryRow]]:
    wanted = TurnFilter(query)
    oldest = b""
    async for page in _pages(redis, TURNS_INDEX_KEY, "+", query):
        found = [entry_id for entry_id, entry in page if wanted.admits_line(entry[LINE])]
        for start in range(0, len(found), ROWS_PER_FETCH):
            yield await _rows(redis, found[start : start + ROWS_PER_FETCH])
        oldest = page[-1][0]
    # What was written before there was an index, or is trimmed from it already.
    async for page in _pages(redis, TURNS_KEY, f"({oldest.decode()}" if oldest else "+", query):
        rows = [parse_row(*entry) for entry in page]
        yield [row for row in rows if wanted.admits(row)]


async def _rows(redis: Redis, entry_ids: Sequence[bytes]) -> Sequence[TurnSummaryRow]:
    async with redis.pipeline(transaction=False) as pipe:
        for entry_id in entry_ids:
            pipe.xrange(TURNS_KEY, min=entry_id, max=entry_id)
        found: list[Any] = await pipe.execute()
    return [parse_row(*entry) for entries in found for entry in entries]


async def _pages(redis: Redis, key: str, last_id: str, query: TurnQuery) -> AsyncIterator[Sequence[Any]]:
    """Give (id, fields) from ``last_id`` down, in pages; a small first one where that is likely enough."""
    count = min(PAGE, max(1, query.limit if query.limit is not None else PAGE))
    while True:
        # A client without decode_responses, so bytes: redis-py's own type covers both.
        page: Any = await redis.xrevrange(key, max=last_id, min=query.first_id(), count=count)
        if page:
            yield page
        if len(page) < count:
            return
        last_id = f"({page[-1][0].decode()}"
        count = PAGE
