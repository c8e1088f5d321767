"""How much a question leaves to the conversation: "and the second one?" nearly all, a full one nothing."""

from __future__ import annotations

from gateway.context.words import STOP_WORDS, cased_words, is_number

ENOUGH_VAGUE = 2
"""Words that name something, with which a question with a "the" is complete: "Who was the director?" lacks
one."""
ENOUGH_POINTING = 5
"""The same where a word points back or the question opens like a follow-up; "it" may point inside the
question."""
ENOUGH_PERSONAL = 8
"""The same for "he" and "she" before any name: nobody else in the question can be meant."""

_PERSONAL_WORDS = "he him his she her hers"
_PERSONAL = frozenset(_PERSONAL_WORDS.split())
_POINTING_WORDS = """
    it its they them their theirs this these those one ones former latter both other others another same else
"""
_POINTERS = frozenset(_POINTING_WORDS.split())
_OPENING_WORDS = "and but or so then also ok okay"
_OPENERS = frozenset(_OPENING_WORDS.split())
_OPENINGS = frozenset({("what", "about"), ("how", "about"), ("why", "not"), ("tell", "me"), ("go", "on")})
_LAST = frozenset({"that", "there", "then"})
# Content words that name nothing on their own. Numbers name nothing either: "in 1998" needs what was then.
_WEAK_WORDS = """
    thing things something anything part kind sort way time year date day place reason detail details example
    examples point information info continue elaborate expand last next previous again happened happen happens
    hi hello hey really great mean means work works long big old far yes sorry know thanks thank question
    answer summarize summary list
"""
_WEAK = frozenset(_WEAK_WORDS.split())


def missing_share(question: str) -> float:
    """Return in [0, 1] the share of what ``question`` means that only the texts before it can tell.

    It is 1 - said / enough: said counts the words that name something, proper names twice, and how many are
    enough depends on whether the question points back. One such word is enough where nothing does. The cues
    are English; a question in another language counts as complete.
    """
    written = cased_words(question)
    if not written:
        return 0.0
    weights = [_weight(word, index) for index, word in enumerate(written)]
    return max(0.0, 1.0 - sum(weights) / _enough([word.lower() for word in written], weights))


def _weight(word: str, index: int) -> int:
    """Return 2 for a name, 1 for another word that names something; the first word is capitalised anyway."""
    lowered = word.lower()
    says_nothing = lowered in STOP_WORDS or lowered in _WEAK or lowered in _POINTERS or lowered in _PERSONAL
    if says_nothing or is_number(word):
        return 0
    return 2 if word[0].isupper() and index > 0 else 1


def _enough(words: list[str], weights: list[int]) -> int:
    first_name = weights.index(2) if 2 in weights else len(words)
    if any(word in _PERSONAL for word in words[:first_name]):
        return ENOUGH_PERSONAL
    if _opens_as_more(words) or words[-1] in _LAST or any(word in _POINTERS for word in words):
        return ENOUGH_POINTING
    return ENOUGH_VAGUE if "the" in words else 1


def _opens_as_more(words: list[str]) -> bool:
    is_bare_how = words[0] == "how" and len(words) == 2
    return words[0] in _OPENERS or tuple(words[:2]) in _OPENINGS or is_bare_how
