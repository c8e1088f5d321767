"""The index beside ``ng:turns``: entries with the same ids, of what queries filter by and no more.

An entry of ``ng:turns`` has about thirty fields, and Redis can only give it whole: 10,000 of them take a
client 100 ms, and a Lua filter inside the server 85 ms during which it serves nobody. The index has them in
one short field and is read in 20 ms; the few entries that match are then fetched by their ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

from gateway.errors import TraceError
from gateway.trace.keys import TURNS_INDEX_KEY, TURNS_KEY

LINE = b"line"
WRITE = """
-- KEYS: the stream, its index. ARGV: the bound of both, the line of the index, the entry's fields as JSON.
-- The index takes the entry's id. One that is ahead of it (the stream was deleted) is begun again.
local id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', unpack(cjson.decode(ARGV[3])))
local added = redis.pcall('XADD', KEYS[2], 'MAXLEN', '~', ARGV[1], id, 'line', ARGV[2])
if type(added) == 'table' and added.err then
  redis.call('DEL', KEYS[2])
  redis.call('XADD', KEYS[2], id, 'line', ARGV[2])
end
return id
"""


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


def write_arguments(summary: Mapping[Any, Any], max_turns: int) -> tuple[Any, ...]:
    """Return the arguments of EVAL that write an entry and its line, both or neither."""
    # One argument for all fields: redis-py takes 2 µs to pack an argument, and there are forty.
    parts = [part if isinstance(part, str) else repr(part) for field in summary.items() for part in field]
    return (WRITE, 2, TURNS_KEY, TURNS_INDEX_KEY, max_turns, line_of(summary), orjson.dumps(parts))
