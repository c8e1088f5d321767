"""How much a question leaves to the conversation: "and the second one?" nearly all, a full question nothing."""

from __future__ import annotations

from gateway.context.words import STOP_WORDS, cased_words, is_number

ENOUGH_VAGUE = 2
"""Words that name something, with which a question is complete that has a "the": "Who was the director?" has one."""
ENOUGH_POINTING = 5
"""The same where a word points back or the question opens like a follow-up; "it" may point inside the question."""
ENOUGH_PERSONAL = 8
"""The same for "he" and "she" before any name: nobody else in the question can be meant."""

_PERSONAL = frozenset("he him his she her hers".split())
_POINTERS = frozenset(
    """
    it its they them their theirs this these those one ones former latter both other others another same else
    """.split()
)
_OPENERS = frozenset("and but or so then also ok okay".split())
_OPENINGS = frozenset({("what", "about"), ("how", "about"), ("why", "not"), ("tell", "me"), ("go", "on")})
_LAST = frozenset({"that", "there", "then"})
_WEAK = frozenset(
    """
    thing things something anything part kind sort way time year date day place reason detail details example
    examples point information info continue elaborate expand last next previous again happened happen happens
    hi hello hey really great ok okay mean means work works long big old far yes sorry know thanks thank question answer summarize summary list
    """.split()
)
"""Content words that name nothing on their own, with the numbers: "in 1998" needs something that was then."""


def missing_share(question: str) -> float:
    """Return in [0, 1] the share of what ``question`` means that only the texts before it can tell.

    It is 1 - said / enough: said counts the words that name something, proper names twice, and how many are enough
    depends on whether the question points back. One such word is enough where nothing does. The cues are
    English; a question in another language counts as complete.
    """
    written = cased_words(question)
    if not written:
        return 0.0
    weights = [_weight(word, is_first=not index) for index, word in enumerate(written)]
    return max(0.0, 1.0 - sum(weights) / _enough([word.lower() for word in written], weights))


def _weight(word: str, *, is_first: bool) -> int:
    lowered = word.lower()
    says_nothing = lowered in STOP_WORDS or lowered in _WEAK or lowered in _POINTERS or lowered in _PERSONAL
    if says_nothing or is_number(word):
        return 0
    return 2 if word[0].isupper() and not is_first else 1


def _enough(words: list[str], weights: list[int]) -> int:
    first_name = weights.index(2) if 2 in weights else len(words)
    if any(word in _PERSONAL for word in words[:first_name]):
        return ENOUGH_PERSONAL
    opens_as_more = words[0] in _OPENERS or tuple(words[:2]) in _OPENINGS or (words[0] == "how" and len(words) == 2)
    if opens_as_more or words[-1] in _LAST or any(word in _POINTERS for word in words):
        return ENOUGH_POINTING
    return ENOUGH_VAGUE if "the" in words else 1
