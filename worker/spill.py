"""A bounded file of trace entries that Redis could not take, kept in order across restarts.

Format: frames of ``length, crc32`` (little-endian uint32) and a payload. The payload is the number of steps
(uint32) and then strings with a uint32 length each: the stream's key, the entry's id, and its fields as
name, value, name, value. A torn last frame, as a crash leaves it, is cut off on opening.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

_HEADER = struct.Struct("<II")
_LENGTH = struct.Struct("<I")
_MAX_FILES = 64


@dataclass(frozen=True, slots=True)
class TraceEntry:
    """One entry of a turn's stream. The id is set by the writer, so sending it twice writes it once."""

    key: str
    id: str
    fields: Mapping[str, bytes]
    num_steps: int


class SpillFile:
    """First in, first out, on disk. Not thread-safe: it belongs to the writer's thread."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        # Unbuffered: what is appended outlives the process, whatever ends it.
        self._file: BinaryIO = path.open("r+b", buffering=0)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise
        self._head = 0
        self._end = sum(size for size, _ in self._frames(0))
        self._file.truncate(self._end)

    @classmethod
    def claim(cls, folder: Path, max_bytes: int) -> SpillFile:
        """Open a file of the folder that no running process holds, one with left-over entries first.

        Raises OSError where the folder cannot be written or every file is held.
        """
        paths = [folder / f"trace-{number}.spill" for number in range(_MAX_FILES)]
        for path in sorted(paths, key=lambda path: not (path.is_file() and path.stat().st_size)):
            try:
                return cls(path, max_bytes)
            except BlockingIOError:
                continue
        raise OSError(f"all {_MAX_FILES} spill files in {folder} are in use")

    @property
    def num_bytes(self) -> int:
        """Bytes of the entries that wait."""
        return self._end - self._head

    def append(self, entry: TraceEntry) -> bool:
        """Keep the entry; False where it does not fit or the disk refuses it."""
        frame = _encode(entry)
        if self.num_bytes + len(frame) > self._max_bytes:
            return False
        try:
            if self._end + len(frame) > self._max_bytes:
                self._drop_consumed()
            written = os.pwrite(self._file.fileno(), frame, self._end)
        except OSError:
            return False
        if written != len(frame):
            self._file.truncate(self._end)
            return False
        self._end += len(frame)
        return True

    def peek(self, max_entries: int) -> list[tuple[int, TraceEntry]]:
        """Return the oldest entries, each with the bytes that it takes."""
        found: list[tuple[int, TraceEntry]] = []
        for frame in self._frames(self._head):
            found.append(frame)
            if len(found) == max_entries:
                break
        return found

    def advance(self, num_bytes: int) -> None:
        """Forget the oldest entries, as many as fill ``num_bytes``."""
        self._head += num_bytes
        if self._head >= self._end:
            self._file.truncate(0)
            self._head = self._end = 0

    def close(self) -> None:
        """Close the file, without the entries that were sent already."""
        try:
            self._drop_consumed()
        finally:
            self._file.close()

    def _drop_consumed(self) -> None:
        if self._head == 0:
            return
        rest = os.pread(self._file.fileno(), self.num_bytes, self._head)
        os.pwrite(self._file.fileno(), rest, 0)
        self._file.truncate(len(rest))
        self._head, self._end = 0, len(rest)

    def _frames(self, offset: int) -> Iterator[tuple[int, TraceEntry]]:
        while True:
            header = os.pread(self._file.fileno(), _HEADER.size, offset)
            if len(header) < _HEADER.size:
                return
            length, checksum = _HEADER.unpack(header)
            if length > self._max_bytes:
                return
            payload = os.pread(self._file.fileno(), length, offset + _HEADER.size)
            if len(payload) < length or zlib.crc32(payload) != checksum:
                return
            size = _HEADER.size + length
            yield size, _decode(payload)
            offset += size


def _encode(entry: TraceEntry) -> bytes:
    strings = [entry.key.encode(), entry.id.encode()]
    for name, value in entry.fields.items():
        strings += [name.encode(), value]
    payload = _LENGTH.pack(entry.num_steps) + b"".join(_LENGTH.pack(len(text)) + text for text in strings)
    return _HEADER.pack(len(payload), zlib.crc32(payload)) + payload


def _decode(payload: bytes) -> TraceEntry:
    (num_steps,) = _LENGTH.unpack_from(payload)
    strings: list[bytes] = []
    offset = _LENGTH.size
    while offset < len(payload):
        (length,) = _LENGTH.unpack_from(payload, offset)
        offset += _LENGTH.size
        strings.append(payload[offset : offset + length])
        offset += length
    key, entry_id, *rest = strings
    fields = {name.decode(): value for name, value in zip(rest[::2], rest[1::2], strict=True)}
    return TraceEntry(key.decode(), entry_id.decode(), fields, num_steps)
