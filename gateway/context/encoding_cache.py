"""What has been encoded in this process."""

from __future__ import annotations

from collections import OrderedDict

from gateway.context.encoding import Encoding


class EncodingCache:
    """Least recently used encodings by hash of their text, bounded in bytes."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._entries: OrderedDict[bytes, Encoding] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    def get(self, key: bytes) -> Encoding | None:
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def put(self, key: bytes, encoding: Encoding) -> None:
        """Keep ``encoding``, unless it alone is over the bound; the oldest leave until the bound holds."""
        if key in self._entries or encoding.num_bytes > self._max_bytes:
            return
        self._entries[key] = encoding
        self._num_bytes += encoding.num_bytes
        while self._num_bytes > self._max_bytes:
            _, oldest = self._entries.popitem(last=False)
            self._num_bytes -= oldest.num_bytes
