"""The prompt as the worker will read it: how long it is, and how it begins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gateway.flow.turn import Turn


def prompt_chars(body: Mapping[str, Any]) -> int:
    """Return the number of characters of the prompt; a token id counts as one."""
    return sum(map(len, _pieces(body)))


def prompt_beginning(body: Mapping[str, Any], num_chars: int) -> str | None:
    """Return the first ``num_chars`` characters of the prompt; None where it is shorter."""
    parts: list[str] = []
    missing = num_chars
    for piece in _pieces(body):
        if not isinstance(piece, str):
            return None
        parts.append(piece[:missing])
        missing -= len(parts[-1])
        if missing == 0:
            return "".join(parts)
    return None


def affinity_text(turn: Turn, num_chars: int) -> str | None:
    """Return what turns have in common that one worker's cache should serve: their session or beginning.

    The session is what the client says (OpenAI's ``prompt_cache_key``), else, in a conversation, its
    ``user``. A prompt shorter than ``num_chars`` shares too little to matter. None for no preference.
    """
    named = turn.body.get("prompt_cache_key")
    if isinstance(named, str) and named:
        return f"session:{named}"
    if turn.history and turn.user:
        return f"user:{turn.user}"
    return prompt_beginning(turn.upstream_body, num_chars)


def _pieces(body: Mapping[str, Any]) -> Iterator[str | list[int]]:
    """Give the prompt's texts in order. Of several prompts in one request, all of them."""
    messages = body.get("messages")
    if messages is None:
        yield from _prompts(body.get("prompt"))
        return
    for message in messages:
        content = message.get("content")
        yield message["role"]
        if isinstance(content, str):
            yield content
        elif isinstance(content, list):
            yield from (part["text"] for part in content if isinstance(part.get("text"), str))


def _prompts(prompt: object) -> Iterator[str | list[int]]:
    if not isinstance(prompt, list):
        yield from [prompt] if isinstance(prompt, str) else []
    elif prompt and isinstance(prompt[0], int):
        yield prompt
    else:
        yield from prompt
