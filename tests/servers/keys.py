"""Keys for tests, made without the code under test: the hash is hashlib's, of what a client sends."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class MadeKey:
    """``secret`` is what the client sends, ``entry`` what the file of keys has of it."""

    id: str
    secret: str
    entry: dict[str, Any]

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.secret}"}


def made_key(*scopes: str, **fields: Any) -> MadeKey:
    """Return a new key; without scopes it may infer."""
    key_id = secrets.token_hex(5)
    secret = f"ng_{key_id}_{secrets.token_hex(32)}"
    entry = {
        "id": key_id,
        "name": f"test {key_id}",
        "sha256": sha256_of(secret),
        "scopes": list(scopes or ("infer",)),
        **fields,
    }
    return MadeKey(key_id, secret, entry)


def sha256_of(secret: str) -> str:
    return hashlib.sha256(secret.encode("ascii")).hexdigest()
