"""Whether an answer is right: one of the expected strings stands in it, as whole words."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

RULE = (
    "right: the text contains one of the request's answers as whole words; case, a/an/the, white space and "
    "compatibility forms (NFKC) make no difference"
)

_ARTICLE = re.compile(r"\b(?:a|an|the)\b")


def is_answered(text: str, answers: Iterable[str]) -> bool:
    """Tell whether ``text`` contains one of ``answers`` (see RULE); an empty answer is in no text.

    Whole words, since "no" is in "know" and "18" in "1889". Chinese has no spaces between words: only plain
    letters and digits at an answer's ends are held to it.
    """
    found_in = normalised(text)
    return any(_is_in(wanted, found_in) for answer in answers if (wanted := normalised(answer)))


def normalised(text: str) -> str:
    """Return ``text`` in lower case, without articles, with single spaces."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(_ARTICLE.sub(" ", folded).split())


def _is_in(wanted: str, text: str) -> bool:
    before = r"(?<![a-z0-9])" if _is_plain(wanted[0]) else ""
    after = r"(?![a-z0-9])" if _is_plain(wanted[-1]) else ""
    return re.search(before + re.escape(wanted) + after, text) is not None


def _is_plain(character: str) -> bool:
    return character.isascii() and character.isalnum()
