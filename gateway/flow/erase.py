"""Takes turns out of Redis: one, or all that a person has left.

A turn is its record, its steps, its entry in ``ng:turns``, its feedback, its shadows, and the encodings of
what was asked. In the data of experiments a person is a unit, which is a hash, but one that whoever knows the
name can make: so the unit's exposure and outcomes go too. It leaves its arm as a whole, which takes no side.
What another unit (a conversation, a tenant's header) measured in other turns stays; its exposure goes with
its last outcome.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

import orjson
from redis.asyncio import Redis

from gateway.context.embed import encoding_name
from gateway.context.pruner import bounded
from gateway.context.shared_cache import KEY_PREFIX as ENCODINGS_KEY_PREFIX
from gateway.flow.assign import unit_of, user_key
from gateway.outcomes.entry import (
    EXPOSED_KEY_PREFIX,
    OUTCOMES_KEY_PREFIX,
    Entry,
    Exposure,
    Feedback,
    TurnOutcome,
    decode_entry,
    feedback_key,
)
from gateway.trace.keys import TURN_KEY_PREFIX, TURNS_INDEX_KEY, TURNS_KEY, text_hash, turn_key
from gateway.trace.query import TurnQuery, TurnSummaryRow, find_turns, listed_ids
from worker.protocol import trace_key

PAGE = 1_000
RECORDS_PER_READ = 50
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Erased:
    """How many there were of each."""

    turns: int = 0
    """Entries in ng:turns."""
    records: int = 0
    traces: int = 0
    feedback: int = 0
    """Hashes of turns that were reported on."""
    outcomes: int = 0
    """Entries in the streams of experiments, feedback among them."""
    exposures: int = 0
    encodings: int = 0
    """Of what the person wrote, in the cache that the encoder has in Redis."""


@dataclass(frozen=True, slots=True)
class _Gone:
    """Whose data goes: turns by id, and the units that are theirs alone."""

    turns: frozenset[str]
    units: frozenset[str]


async def erase_turn(redis: Redis, turn_id: str) -> Erased:
    """Delete one turn and its shadows; all zero where nothing is left of it."""
    rows = await find_turns(redis, TurnQuery(turn_id=turn_id, limit=None))
    ids = frozenset({turn_id, *(row.id for row in rows)})
    return await _erase(redis, rows, _Gone(ids, ids))


async def erase_user(redis: Redis, user: str) -> Erased:
    """Delete all turns of a user, as the requests name it, and its part in experiments.

    Turns that were recorded under the retention ``none`` have no user any more and are not found.
    """
    rows = await find_turns(redis, TurnQuery(user=user, limit=None))
    ids = frozenset({row.id for row in rows} | {turn_id async for turn_id in _unlisted(redis, user)})
    return await _erase(redis, rows, _Gone(ids, ids | {unit_of(user_key(user))}))


async def _erase(redis: Redis, rows: Sequence[TurnSummaryRow], gone: _Gone) -> Erased:
    outcomes = exposures = 0
    turns = set(gone.turns)
    async for key in redis.scan_iter(match=OUTCOMES_KEY_PREFIX + "*", count=PAGE):
        entries = [entry async for entry in _entries(redis, key)]
        turns |= {e.turn_id for _, e in entries if isinstance(e, TurnOutcome) and e.unit in gone.units}
        going = _going(entries, turns, gone.units)
        outcomes += sum(not isinstance(entry, Exposure) for entry in going.values())
        exposures += await _erase_entries(redis, key, going)
    num_encodings = await _erase_encodings(redis, turns)  # the records say of what
    num_turns = 0
    for page in _paged([row.entry_id for row in rows], PAGE):
        num_turns += await redis.xdel(TURNS_KEY, *page)
        await redis.xdel(TURNS_INDEX_KEY, *page)
    return Erased(
        turns=num_turns,
        records=await _unlink(redis, map(turn_key, turns)),
        traces=await _unlink(redis, map(trace_key, turns)),
        feedback=await _unlink(redis, map(feedback_key, turns)),
        outcomes=outcomes,
        exposures=exposures,
        encodings=num_encodings,
    )


def _going(
    entries: Sequence[tuple[bytes, Entry]], turns: Collection[str], units: Collection[str]
) -> Mapping[bytes, Entry]:
    """Return the entries of a stream that go, by their ids."""
    measured = [entry for _, entry in entries if isinstance(entry, TurnOutcome)]
    left = {entry.unit for entry in measured if entry.turn_id not in turns}
    emptied = {entry.unit for entry in measured if entry.turn_id in turns} - left

    def goes(entry: Entry) -> bool:
        match entry:
            case Exposure(unit=unit):
                return unit in units or unit in emptied
            case TurnOutcome(turn_id=turn_id) | Feedback(turn_id=turn_id):
                return turn_id in turns

    return {entry_id: entry for entry_id, entry in entries if goes(entry)}


async def _erase_entries(redis: Redis, key: bytes, going: Mapping[bytes, Entry]) -> int:
    """Delete the entries and what remembers their units; return the number of exposures."""
    for page in _paged(going, PAGE):
        await redis.xdel(key, *page)
    units = [entry.unit for entry in going.values() if isinstance(entry, Exposure)]
    experiment = key.decode().removeprefix(OUTCOMES_KEY_PREFIX)
    await _unlink(redis, (f"{EXPOSED_KEY_PREFIX}{experiment}:{unit}" for unit in units))
    return len(units)


async def _entries(redis: Redis, key: bytes) -> AsyncIterator[tuple[bytes, Entry]]:
    """Give a stream's entries. One that cannot be read names nobody that could be looked for."""
    start = "-"
    while True:
        page: Any = await redis.xrange(key, min=start, count=PAGE)
        for entry_id, fields in page:
            try:
                yield entry_id, decode_entry(fields)
            except ValueError:
                continue
        if len(page) < PAGE:
            return
        start = f"({page[-1][0].decode()}"


async def _erase_encodings(redis: Redis, turns: Collection[str]) -> int:
    """Delete the encodings of the turns' questions and histories; documents are the application's own."""
    names: set[str] = set()
    for ids in _paged(turns, RECORDS_PER_READ):
        for content in await redis.mget([turn_key(turn_id) for turn_id in ids]):
            record = orjson.loads(content) if content is not None else {}
            texts = [bounded(record.get("question", "")), *record.get("history", ())]
            names |= {encoding_name(text).hex() for text in texts if text}
    if not names:
        return 0
    pattern = ENCODINGS_KEY_PREFIX + "*"
    found = [key.decode() async for key in redis.scan_iter(match=pattern, count=PAGE)]
    return await _unlink(redis, (key for key in found if key.rpartition(":")[2] in names))


async def _unlisted(redis: Redis, user: str) -> AsyncIterator[str]:
    """Give the ids of a user's records whose entries are trimmed from ng:turns already."""
    listed = await listed_ids(redis)
    names = {user, text_hash(user)}
    unlisted = [
        key
        async for key in redis.scan_iter(match=TURN_KEY_PREFIX + "*", count=PAGE)
        if key.decode().removeprefix(TURN_KEY_PREFIX) not in listed
    ]
    for keys in _paged(unlisted, RECORDS_PER_READ):
        for key, content in zip(keys, await redis.mget(keys), strict=True):
            if content is not None and orjson.loads(content).get("user") in names:
                yield key.decode().removeprefix(TURN_KEY_PREFIX)


async def _unlink(redis: Redis, keys: Iterable[str]) -> int:
    number = 0
    for page in _paged(keys, PAGE):
        number += await redis.unlink(*page)
    return number


def _paged(values: Iterable[T], size: int) -> Iterator[list[T]]:
    rest = iter(values)
    while page := list(islice(rest, size)):
        yield page
