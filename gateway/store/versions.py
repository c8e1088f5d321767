"""The name of a configuration: the sha256 of its canonical JSON."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def canonical_json(content: Any) -> bytes:
    """Return the one JSON text of ``content``: sorted keys, no spaces, UTF-8.

    Raises ValueError for NaN and infinities, TypeError for what JSON cannot hold.
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def content_sha(content: Any) -> str:
    """Return the sha256 of ``content``'s canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical_json(content)).hexdigest()
