"""A key as its holder has it: ``ng_ID_SECRET``, an id to find it by and 256 random bits.

What is kept of it is the SHA-256 of the whole. A slow hash (argon2, bcrypt) makes guesses dear where there is
something to guess: a person's password. Of 256 random bits nothing can be guessed at any price, so it would
add nothing but milliseconds to every request, and a way to keep a gateway busy with wrong keys.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

ID_BYTES = 6
SECRET_BYTES = 32
_KEY = re.compile(rb"ng_([a-z0-9]{4,32})_[0-9a-f]{64}")


def new_id(random_hex: Callable[[int], str]) -> str:
    """Return the id of a new key. ``random_hex`` is ``secrets.token_hex``."""
    return random_hex(ID_BYTES)


def new_secret(key_id: str, random_hex: Callable[[int], str]) -> str:
    """Return what is given to the holder, once."""
    return f"ng_{key_id}_{random_hex(SECRET_BYTES)}"


def id_of(presented: bytes) -> str:
    """Return the id that a key names; empty where it is no key of ours."""
    match = _KEY.fullmatch(presented)
    return match[1].decode() if match else ""


def digest_of(presented: bytes) -> str:
    """Return the SHA-256, in hexadecimal digits, of whatever was presented."""
    return hashlib.sha256(presented).hexdigest()
