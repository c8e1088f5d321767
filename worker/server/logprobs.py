"""Log-probabilities in OpenAI's two shapes.

All are ln softmax of the model's own distribution: T = 1, without bias, nothing cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from worker.decode.vocabulary import Vocabulary
from worker.server.choice import TokenLogprob

_LOWEST = -9999.0
"""JSON has no minus infinity; this is what OpenAI and vLLM send for it."""


def chat_logprobs(vocabulary: Vocabulary, tokens: Sequence[TokenLogprob]) -> dict[str, Any]:
    """``{"content": [{token, logprob, bytes, top_logprobs}], "refusal": null}``."""
    content = [
        {
            **_entry(vocabulary, token.token_id, token.logprob),
            "top_logprobs": [_entry(vocabulary, token_id, logprob) for token_id, logprob in token.top],
        }
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(
    vocabulary: Vocabulary, tokens: Sequence[TokenLogprob], *, num_top: int
) -> dict[str, Any]:
    """``{tokens, token_logprobs, top_logprobs, text_offset}``; the chosen token is always among the top."""
    return {
        "tokens": [_name(vocabulary, token.token_id) for token in tokens],
        "token_logprobs": [finite(token.logprob) for token in tokens],
        "top_logprobs": [_top(vocabulary, token) for token in tokens] if num_top else None,
        "text_offset": [token.text_offset for token in tokens],
    }


def _entry(vocabulary: Vocabulary, token_id: int, logprob: float) -> dict[str, Any]:
    raw = vocabulary.token_bytes[token_id]
    return {
        "token": vocabulary.text(token_id),
        "logprob": finite(logprob),
        "bytes": list(raw) if raw else list(vocabulary.text(token_id).encode()),
    }


def _top(vocabulary: Vocabulary, token: TokenLogprob) -> dict[str, float]:
    top = {_name(vocabulary, token_id): finite(logprob) for token_id, logprob in token.top}
    top.setdefault(_name(vocabulary, token.token_id), finite(token.logprob))
    return top


def _name(vocabulary: Vocabulary, token_id: int) -> str:
    """The token as text; one that is no whole characters as ``bytes:\\xe2\\x82``, as OpenAI writes it."""
    raw = vocabulary.token_bytes[token_id]
    try:
        return raw.decode() or vocabulary.text(token_id)
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def finite(logprob: float) -> float:
    """Return what JSON can carry."""
    return max(logprob, _LOWEST)
