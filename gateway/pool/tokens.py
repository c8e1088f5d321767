"""Token counts of texts: the worker's own where it has a tokenizer to ask, a marked estimate elsewhere."""

from __future__ import annotations

import logging
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import blake2b
from typing import TypeAlias

from gateway.errors import RequestError
from gateway.pool.worker import Worker
from gateway.telemetry.logs import log

TokenCounter: TypeAlias = Callable[[Sequence[str]], Awaitable[tuple[list[int], bool]]]
"""Texts to (counts, are_estimated)."""

BYTES_A_TOKEN = 4
"""English text has 4 to 5 characters a token; Chinese about 3 bytes a character and a token or less."""
TIMEOUT_S = 2.0

logger = logging.getLogger(__name__)


def estimated_tokens(text: str) -> int:
    """A guess from the number of UTF-8 bytes."""
    return math.ceil(len(text.encode("utf-8", "replace")) / BYTES_A_TOKEN)


class TokenCounts:
    """Counts by hash of model and text, the most recently used ``max_entries`` of them."""

    def __init__(self, max_entries: int = 50_000) -> None:
        self._counts: OrderedDict[bytes, int] = OrderedDict()
        self._max_entries = max_entries

    async def count(self, worker: Worker | None, model: str, texts: Sequence[str]) -> tuple[list[int], bool]:
        """Return the counts of ``texts`` and whether they are estimates, which all are as soon as one is."""
        keys = [_key(model, text) for text in texts]
        known = {key: self._counts[key] for key in keys if key in self._counts}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        if missing:
            if worker is None or worker.level != "native":
                return [estimated_tokens(text) for text in texts], True
            try:
                counts = await worker.client.count_tokens(model, list(missing.values()), timeout_s=TIMEOUT_S)
            except RequestError as error:
                log(logger, logging.WARNING, "tokens_estimated", worker=worker.name, reason=error.code)
                return [estimated_tokens(text) for text in texts], True
            known.update(zip(missing, counts, strict=True))
        self._remember(known)
        return [known[key] for key in keys], False

    def _remember(self, counts: Mapping[bytes, int]) -> None:
        for key, count in counts.items():
            self._counts[key] = count
            self._counts.move_to_end(key)
        while len(self._counts) > self._max_entries:
            self._counts.popitem(last=False)


def _key(model: str, text: str) -> bytes:
    return blake2b(f"{model}\0{text}".encode("utf-8", "replace"), digest_size=16).digest()
