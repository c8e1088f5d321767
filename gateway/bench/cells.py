"""What is asked of every target in every round: sizes of bodies, numbers of connections, streams."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
FEW_CHUNKS, MANY_CHUNKS = 10, 110


@dataclass(frozen=True, slots=True)
class Cell:
    """One kind of load. ``num_chunks`` 0 is an answer that is not streamed."""

    name: str
    num_bytes: int
    num_connections: int
    num_chunks: int = 0


PLAIN = tuple(
    Cell(f"{size} KB, {connections}", size * KIB, connections)
    for size in (1, 60)
    for connections in (1, 16, 64)
)
FIRST_CHUNK = Cell("stream, 1", KIB, 1, FEW_CHUNKS)
SHORT_STREAM = Cell("short stream, 4", KIB, 4, FEW_CHUNKS)
LONG_STREAM = Cell("long stream, 4", KIB, 4, MANY_CHUNKS)
CELLS = (*PLAIN, FIRST_CHUNK, SHORT_STREAM, LONG_STREAM)


@dataclass(frozen=True, slots=True)
class Plan:
    """How long it goes on."""

    num_rounds: int = 8
    duration_s: float = 0.35
    """Of one cell on one target in one round."""
    begin_within_s: float = 150.0
    """No round but the first two is begun later: on a busy machine there are fewer."""
    cells: tuple[Cell, ...] = CELLS
    num_requests_for_memory: int = 50_000
    num_models_for_memory: int = 10_000


QUICK = Plan(2, 0.05, 150.0, (PLAIN[0], PLAIN[4], FIRST_CHUNK, SHORT_STREAM, LONG_STREAM), 300, 100)
