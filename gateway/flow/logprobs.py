"""Log-probabilities as foreign servers send them: read for the estimate, cut to what the client asked for.

Chat completions have ``{"content": [{"logprob", "top_logprobs": [{"logprob"}]}]}``, text completions
``{"tokens", "token_logprobs", "top_logprobs": [{text: logprob}], "text_offset"}``; some servers write the
first for both, so the shape decides and not the endpoint. What has neither shape is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from gateway.lab.entropy_bounds import UNKNOWN
from worker.protocol import NO_TOKEN

SILENT = -1
"""Stands for a client that asked for no log-probabilities."""


class Seen(NamedTuple):
    """What a server shows of one token's distribution. No token that is not shown is above the bound."""

    logprob: float
    shown: list[float]
    """The likeliest tokens' log-probabilities, at least one."""
    largest_hidden: float
    token_id: int = NO_TOKEN
    """Where the server tells (llama.cpp does)."""


def seen_tokens(logprobs: object, num_asked: int) -> Iterator[Seen]:
    """Give the tokens of one choice or chunk, of which ``num_asked`` likeliest were asked for each."""
    if not isinstance(logprobs, dict):
        return
    content, tops = logprobs.get("content"), logprobs.get("top_logprobs")
    if isinstance(content, list):
        for entry in content:
            if isinstance(entry, dict) and (seen := _listed(entry, num_asked)) is not None:
                yield seen
    elif isinstance(tops, list):
        chosen = logprobs.get("token_logprobs")
        for position, top in enumerate(tops):
            own = chosen[position] if isinstance(chosen, list) and position < len(chosen) else None
            if isinstance(top, dict) and (seen := _by_text(own, top, num_asked)) is not None:
                yield seen


def cut(logprobs: object, num_top: int) -> object:
    """Return what a client gets that asked for ``num_top`` likeliest tokens; None for SILENT."""
    if num_top == SILENT or not isinstance(logprobs, dict):
        return None
    if isinstance(logprobs.get("content"), list):
        for entry in logprobs["content"]:
            if isinstance(entry, dict) and isinstance(entry.get("top_logprobs"), list):
                entry["top_logprobs"] = entry["top_logprobs"][:num_top]
    elif isinstance(logprobs.get("top_logprobs"), list):
        names = logprobs.get("tokens")
        logprobs["top_logprobs"] = (
            [
                _likeliest(top, names, position, num_top)
                for position, top in enumerate(logprobs["top_logprobs"])
            ]
            if num_top
            else None
        )
    return logprobs


def _listed(entry: dict[str, Any], num_asked: int) -> Seen | None:
    own, tops = entry.get("logprob"), entry.get("top_logprobs")
    if not isinstance(own, int | float) or not isinstance(tops, list):
        return None
    try:
        shown = [float(top["logprob"]) for top in tops]
    except (KeyError, TypeError, ValueError):
        return None
    if len(shown) > num_asked:  # the chosen token was put beside the likeliest
        shown.remove(min(shown))
    token_id = entry.get("id")
    return (
        Seen(float(own), shown, min(shown), token_id if type(token_id) is int else NO_TOKEN)
        if shown
        else None
    )


def _by_text(own: object, top: dict[str, Any], num_asked: int) -> Seen | None:
    if not isinstance(own, int | float) or not all(isinstance(each, int | float) for each in top.values()):
        return None
    shown = [float(value) for value in top.values()]
    if not shown:
        return None
    if len(shown) < num_asked:  # tokens of equal text have become one: which ones lack cannot be said
        return Seen(float(own), shown, UNKNOWN)
    # The chosen token is always among them, also where it is none of the likeliest.
    lowest = min(shown)
    if len(shown) > 1 and own <= lowest:
        shown.remove(lowest)
    return Seen(float(own), shown, min(shown))


def _likeliest(top: object, names: object, position: int, num_top: int) -> object:
    """Return the first ``num_top`` of a position and, as OpenAI has it, the chosen token."""
    if not isinstance(top, dict):
        return top
    ranked = sorted(top, key=lambda name: -top[name] if isinstance(top[name], int | float) else 0.0)
    kept = set(ranked[:num_top])
    if isinstance(names, list) and position < len(names):
        kept.add(names[position])
    return {name: value for name, value in top.items() if name in kept}
