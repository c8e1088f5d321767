"""How long a prompt is about, before anybody has counted it."""

from __future__ import annotations

from typing import Any

from gateway.flow.turn import Turn
from gateway.pool.tokens import estimated_tokens


def estimated_prompt_tokens(turn: Turn) -> int:
    """Guess the tokens of messages or prompt and of the documents as they were sent, from their bytes."""
    sent = turn.body.get("messages", turn.body.get("prompt"))
    num_tokens = _estimated(sent) + sum(estimated_tokens(document.text) for document in turn.documents)
    return max(1, num_tokens)


def _estimated(sent: Any) -> int:
    match sent:
        case str():
            return estimated_tokens(sent)
        case bool() | None:
            return 0
        case int():  # a prompt of token ids
            return 1
        case list():
            return sum(map(_estimated, sent))
        case dict():
            return sum(_estimated(value) for name, value in sent.items() if name in ("content", "text"))
    return 0
