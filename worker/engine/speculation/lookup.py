"""Finds in a request's own text what followed the last time that it read as it does now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LONGEST_GRAM = 4
NUM_PLACES = 8
"""Latest places of an n-gram that are kept."""
LONGEST_MATCH = 16
"""A longer match is counted as one of this length: it would not make anything surer."""


@dataclass(frozen=True, slots=True)
class Match:
    """Where the text's end was seen before."""

    follows: int
    """Index of the token that came next then."""
    num_tokens: int
    """How many tokens before it equal the text's last ones, from 1 to LONGEST_MATCH."""
    num_seen: int = 1
    """How often the n-gram that was found is known, from 1 to NUM_PLACES."""
    num_alike: int = 1
    """How many of these places go on with the same token."""


class LookupIndex:
    """Every n-gram of prompt and completion with its latest places, kept up token by token.

    A look-up is LONGEST_GRAM reads and NUM_PLACES + LONGEST_MATCH comparisons at most, whatever the length.
    """

    def __init__(self, min_match: int) -> None:
        """Matches shorter than ``min_match`` tokens, from 1 to LONGEST_GRAM, are not looked for."""
        self._sizes = range(min_match, LONGEST_GRAM + 1)
        self._places: dict[tuple[int, ...], list[int]] = {}
        self._num_read = 0

    def find(self, token_ids: Sequence[int]) -> Match | None:
        """Return the latest earlier place of the longest n-gram that ends ``token_ids``.

        The text must begin with all that was given before.
        """
        self._read(token_ids)
        for size in reversed(self._sizes):
            places = self._places.get(tuple(token_ids[-size:])) if size <= len(token_ids) else None
            if places:
                latest = places[-1]
                num_alike = sum(token_ids[place] == token_ids[latest] for place in places)
                return Match(latest, _num_equal(token_ids, latest), len(places), num_alike)
        return None

    def _read(self, token_ids: Sequence[int]) -> None:
        # An n-gram is known as soon as a token follows it, so the text's end never finds itself.
        for follows in range(max(self._num_read, 1), len(token_ids)):
            for size in self._sizes:
                if size > follows:
                    break
                places = self._places.setdefault(tuple(token_ids[follows - size : follows]), [])
                places.append(follows)
                del places[:-NUM_PLACES]
        self._num_read = len(token_ids)


def _num_equal(token_ids: Sequence[int], follows: int) -> int:
    longest = min(LONGEST_MATCH, follows)
    end = len(token_ids)
    return next((n for n in range(longest) if token_ids[follows - 1 - n] != token_ids[end - 1 - n]), longest)
