"""Repetition in a text: n-grams that occurred before in it (seq-rep-n of Welleck et al. 2019)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def rep_n(words: Sequence[str], n: int) -> float:
    """Return the share of n-grams that are repetitions: 1 - distinct / all; 0 for a text without one."""
    grams = Counter(tuple(words[start : start + n]) for start in range(len(words) - n + 1))
    return 1 - len(grams) / grams.total() if grams else 0.0
