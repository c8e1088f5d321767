"""From the words of a theme to token ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from worker.decode.function_words import FUNCTION_WORDS
from worker.decode.vocabulary import Vocabulary

Spelling = tuple[int, ...]
_SIBILANT_ENDINGS = ("s", "x", "z", "ch", "sh")
_VOWELS = "aeiou"
_CACHED_WORDS = 8192


@dataclass(slots=True)
class WordIds:
    """The ids that a list of words comes down to.

    ``whole``: tokens that are a word by themselves. ``first``: the first pieces of longer spellings.
    ``following``: pieces that count only right after the pieces of their key.
    ``last``: the same, for the piece that completes a word.
    """

    whole: set[int] = field(default_factory=set)
    first: set[int] = field(default_factory=set)
    following: dict[Spelling, set[int]] = field(default_factory=dict)
    last: dict[Spelling, set[int]] = field(default_factory=dict)


class Lexicon:
    """Spells words in a model's tokens; the words of a task come again and again, so it remembers."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.spellings = lru_cache(_CACHED_WORDS)(self._spellings)

    def look_up(self, words: Sequence[str]) -> WordIds:
        """Return the ids of the words, without those that gravity must leave alone."""
        ids = WordIds()
        for word in words:
            for spelling in self.spellings(word):
                self._enter(spelling, ids)
        return ids

    def _enter(self, spelling: Spelling, ids: WordIds) -> None:
        is_steerable = self.vocabulary.is_steerable
        if len(spelling) == 1 and is_steerable[spelling[0]]:
            ids.whole.add(spelling[0])
        if len(spelling) > 1 and is_steerable[spelling[0]] and not self._is_letter(spelling[0]):
            ids.first.add(spelling[0])
        for length in range(1, len(spelling)):
            if is_steerable[spelling[length]]:
                ids.following.setdefault(spelling[:length], set()).add(spelling[length])
        if len(spelling) > 1 and is_steerable[spelling[-1]]:
            ids.last.setdefault(spelling[:-1], set()).add(spelling[-1])

    def _is_letter(self, token_id: int) -> bool:
        """True for one Latin letter, with which so many words begin that it says nothing about any."""
        raw = self.vocabulary.token_bytes[token_id].strip()
        return len(raw) == 1 and raw.isalpha()

    def _spellings(self, word: str) -> frozenset[Spelling]:
        if word.strip().lower() in FUNCTION_WORDS:
            return frozenset()
        texts = {lead + form for form in _forms(word) for lead in ("", " ")}
        spellings = {self._without_leading_space(self.vocabulary.encode(text)) for text in texts}
        return frozenset(spelling for spelling in spellings if spelling)

    def _without_leading_space(self, ids: list[int]) -> Spelling:
        # Some tokenizers put the space before a word into a token of its own.
        start = 0
        while start < len(ids) and not self.vocabulary.token_bytes[ids[start]].strip():
            start += 1
        return tuple(ids[start:])


def _forms(word: str) -> Iterator[str]:
    base = word.strip()
    if not base:
        return
    for form in {base, base.replace("_", " ")}:
        for inflected in {form, _plural(form)}:
            yield inflected
            yield inflected[0].upper() + inflected[1:]


def _plural(word: str) -> str:
    if not (word[-1].isascii() and word[-1].isalpha()):
        return word
    lower = word.lower()
    if lower.endswith("s") and not lower.endswith("ss"):
        return word
    if lower.endswith(_SIBILANT_ENDINGS):
        return word + "es"
    if lower.endswith("y") and len(word) > 1 and lower[-2] not in _VOWELS:
        return word[:-1] + "ies"
    return word + "s"
