"""Finds recorded turns: the newest first, in the order in which they ended."""

from __future__ import annotations

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

    def matches(self, line: IndexLine) -> bool:
        """Whether a turn is one of those."""
        wanted = (
            (self.task, line.task),
            (self.lane, line.lane),
            (self.experiment, line.experiment),
            (self.status, line.status),
            (self.model, line.model),
            (None if self.user is None else text_hash(self.user), line.user),
        )
        return (
            all(value is None or value == found for value, found in wanted)
            and (self.config_sha is None or line.config_sha.startswith(self.config_sha))
            and (self.since is None or line.received_at >= self.since)
            and (self.until is None or line.received_at <= self.until)
        )

    def marks(self) -> tuple[bytes, ...]:
        """Return what stands in the line of every turn that matches: looked for before it is parsed."""
        whole = [self.task, self.lane, self.experiment, self.status, self.model]
        if self.user is not None:
            whole.append(text_hash(self.user))
        marks = [orjson.dumps(value) for value in whole if value is not None]
        return (*marks, orjson.dumps(self.config_sha)[:-1]) if self.config_sha is not None else tuple(marks)

    def first_id(self) -> str:
        """Return the stream id before which no turn matches. None such is last: a record may be late."""
        if self.since is None:
            return "-"
        return str(max(0, int((self.since - MAX_CLOCK_SKEW_S) * 1e3)))


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
    status: str = ""
    error_code: str = ""
    finish: str = ""


_KINDS: Mapping[str, type] = {
    name: next(each for each in (int, float, str) if hint in (each, each | None))
    for name, hint in get_type_hints(TurnSummaryRow).items()
}


async def find_turns(redis: Redis, query: TurnQuery) -> tuple[TurnSummaryRow, ...]:
    """Return the turns of ``query``, the newest first. Raises TraceError where an entry is damaged."""
    return tuple([row async for row in iterate_turns(redis, query)])


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
    marks = query.marks()
    oldest = b""
    async for page in _pages(redis, TURNS_INDEX_KEY, "+", query):
        found = [
            entry_id
            for entry_id, entry in page
            if all(mark in entry[LINE] for mark in marks) and query.matches(parse_line(entry[LINE]))
        ]
        for start in range(0, len(found), ROWS_PER_FETCH):
            yield await _rows(redis, found[start : start + ROWS_PER_FETCH])
        oldest = page[-1][0]
    # What was written before there was an index, or is trimmed from it already.
    async for page in _pages(redis, TURNS_KEY, f"({oldest.decode()}" if oldest else "+", query):
        rows = [parse_row(*entry) for entry in page]
        yield [row for row in rows if query.matches(_line(row))]


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


def _line(row: TurnSummaryRow) -> IndexLine:
    return IndexLine(**{name: getattr(row, name) for name in IndexLine.__slots__})
