"""The heads of requests to a worker: what is the same in all of them is written once."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit


class Heads:
    """Of POSTs with JSON to paths below one URL."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        """``url`` is one that check_url lets pass; ``headers`` are in every request."""
        parts = urlsplit(url)
        self._base = parts.path.rstrip("/")
        named = {
            "Host": parts.netloc,
            "Accept": "*/*",
            "User-Agent": "narrative-gravity",
            "Content-Type": "application/json",
            **headers,
        }
        self._common = b"".join(_line(name, value) for name, value in named.items())

    def of(self, path: str, num_bytes: int, headers: Mapping[str, str]) -> bytes:
        """Return the head of a request, its body has so many bytes. Raises ValueError for a broken header."""
        own = b"".join(_line(name, value) for name, value in headers.items()) if headers else b""
        opening = f"POST {self._base}{path} HTTP/1.1\r\n".encode("ascii")
        return b"%b%b%bContent-Length: %d\r\n\r\n" % (opening, self._common, own, num_bytes)


def _line(name: str, value: str) -> bytes:
    line = f"{name}: {value}".encode("latin-1")
    if b"\r" in line or b"\n" in line or b"\0" in line:
        raise ValueError(f"the header {name} has a line break")
    return line + b"\r\n"
