"""Text that no benchmark has generated: the documents of a file of requests."""

from __future__ import annotations

import gzip
from pathlib import Path

import orjson

from worker.engine.loading import LoadedModel


def read_passages(loaded: LoadedModel, data: Path, count: int, num_tokens: int) -> list[tuple[int, ...]]:
    """Return ``count`` passages of exactly ``num_tokens`` tokens, spread evenly over the requests of a file.

    A passage is the beginning of a request's documents, one after the other. The file is that of
    ``gravity eval context``: JSON lines, gzipped. Fewer are returned where there is less text.
    Raises OSError, ValueError, KeyError.
    """
    with gzip.open(data) as lines:
        requests = [orjson.loads(line) for line in lines]
    texts = ["\n\n".join(f"{each['title']}\n{each['text']}" for each in r["documents"]) for r in requests]
    long_enough = [ids for ids in map(loaded.vocabulary.encode, texts) if len(ids) >= num_tokens]
    stride = max(1, len(long_enough) // count)
    return [tuple(ids[:num_tokens]) for ids in long_enough[::stride][:count]]
