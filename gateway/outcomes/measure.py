"""What is measured of a turn that has ended: numbers by the names of ``gateway/lab/metrics.py``.

What is not known is left out, never zero. How long an answer took, how it ended and what it is like is known
of whole answers alone: a quick failure must not make an arm look fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gateway.context.words import words
from gateway.lab.repetition import rep_n


class Ended(Protocol):
    """The end of a turn."""

    @property
    def status(self) -> str: ...
    @property
    def finish_reasons(self) -> Sequence[str]: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def completion_tokens(self) -> int: ...
    @property
    def latency_s(self) -> float: ...
    @property
    def time_to_first_token_s(self) -> float | None: ...
    @property
    def mean_entropy_nats(self) -> float | None: ...
    @property
    def entropic_time_nats(self) -> float | None: ...


def measured(ended: Ended) -> dict[str, float]:
    """Return all that needs no look at the text."""
    is_whole = ended.status == "ok"
    is_counted = is_whole and ended.prompt_tokens > 0  # else the worker told no usage
    values: dict[str, float | None] = {
        "error": float(ended.status == "error"),
        "cancelled": float(ended.status == "cancelled"),
        "latency_s": ended.latency_s if is_whole else None,
        "time_to_first_token_s": ended.time_to_first_token_s,
        "prompt_tokens": float(ended.prompt_tokens) if is_counted else None,
        "completion_tokens": float(ended.completion_tokens) if is_counted else None,
        "cut_off": float("length" in ended.finish_reasons) if is_whole else None,
        "mean_entropy_nats": ended.mean_entropy_nats,
        "entropic_time_nats": ended.entropic_time_nats,
    }
    return {name: value for name, value in values.items() if value is not None}


def measured_text(text: str) -> dict[str, float]:
    """Return what the words of a whole answer say; in scripts without spaces every character is a word."""
    found = words(text)
    return {"answer_words": float(len(found)), "rep_4": rep_n(found, 4)}
