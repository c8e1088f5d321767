"""The index beside ``ng:turns``: entries with the same ids, of what queries filter by and no more.

An entry of ``ng:turns`` has about thirty fields, and Redis can only give it whole: 10,000 of them take a
client 100 ms, and a Lua filter inside the server 85 ms during which it serves nobody. The index has them in
one short field and is read in 20 ms; the few entries that match are then fetched by their ids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from gateway.errors import TraceError
from gateway.trace.keys import TURNS_INDEX_KEY, TURNS_KEY, turn_key

LINE = b"line"
WRITE = """
-- KEYS: the stream, its index, then each turn's record. ARGV: the bound of both, a record's lifetime in
-- seconds, then of each turn its record, its line of the index, and its entry's fields as JSON.
-- The index takes the entry's id. One that is ahead of it (the stream was deleted) is begun again.
for n = 3, #KEYS do
  local record, line, fields = ARGV[3 * n - 6], ARGV[3 * n - 5], ARGV[3 * n - 4]
  redis.call('SET', KEYS[n], record, 'EX', ARGV[2])
  local id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', unpack(cjson.decode(fields)))
  local added = redis.pcall('XADD', KEYS[2], 'MAXLEN', '~', ARGV[1], id, 'line', line)
  if type(added) == 'table' and added.err then
    redis.call('DEL', KEYS[2])
    redis.call('XADD', KEYS[2], id, 'line', line)
  end
end
"""


class Written(NamedTuple):
    """A finished turn as Redis gets it: its record, and the fields of its entry in ``ng:turns``."""

    id: str
    record: bytes
    summary: Mapping[Any, Any]

    @property
    def num_bytes(self) -> int:
        return len(self.record)


class IndexLine(NamedTuple):
    """What a query can ask of a turn. ``received_at`` is Unix time, seconds; ``user`` is a hash."""

    id: str
    received_at: float
    task: str
    lane: str
    config_sha: str
    experiment: str
    status: str
    model: str
    user: str
    shadow_of: str = ""


def line_of(summary: Mapping[Any, Any]) -> bytes:
    """Return the index's line for the fields of an entry of ``ng:turns``."""
    return orjson.dumps([summary.get(name, "") for name in IndexLine._fields])


def parse_line(line: bytes) -> IndexLine:
    """Raise TraceError where it is no line; columns that a later version added are ignored."""
    try:
        return IndexLine(*orjson.loads(line)[: len(IndexLine._fields)])
    except (TypeError, ValueError) as error:
        raise TraceError(f"{TURNS_INDEX_KEY} holds a damaged entry: {error}") from error


def write_arguments(turns: Sequence[Written], max_turns: int, record_ttl_s: int) -> tuple[Any, ...]:
    """Return the arguments of EVAL that write turns: of each its record, its entry and its line, or none."""
    keys = [turn_key(turn.id) for turn in turns]
    values = [part for turn in turns for part in (turn.record, line_of(turn.summary), _fields(turn.summary))]
    return (WRITE, 2 + len(keys), TURNS_KEY, TURNS_INDEX_KEY, *keys, max_turns, record_ttl_s, *values)


def _fields(summary: Mapping[Any, Any]) -> bytes:
    # One argument for all fields: redis-py takes 2 µs to pack an argument, and there are forty.
    return orjson.dumps(
        [part if isinstance(part, str) else repr(part) for item in summary.items() for part in item]
    )
