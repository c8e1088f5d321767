"""Turns tokens into text as they come: characters are never broken and stop strings never leak."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass

from worker.decode.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text that may be sent now. ``is_stopped``: a stop string has come, and nothing follows."""

    text: str
    is_stopped: bool


class TextAssembler:
    """The text of one choice.

    Special tokens add nothing. The bytes of an unfinished character wait for the rest of it, and text that
    may be the beginning of a stop string waits until it is known not to be. Bytes that can never become a
    character show as U+FFFD, as the tokenizer itself shows them.
    """

    def __init__(self, vocabulary: Vocabulary, stop: Sequence[str] = ()) -> None:
        self._token_bytes = vocabulary.token_bytes
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stop = tuple(string for string in stop if string)
        self._held = ""
        self._is_stopped = False

    def push(self, token_id: int) -> TextDelta:
        """Take one token; return the text that it sets free. After a stop string nothing is taken."""
        if self._is_stopped:
            return TextDelta("", True)
        text = self._decoder.decode(self._token_bytes[token_id])
        if not self._stop:
            return TextDelta(text, False)
        if not text:
            return TextDelta("", False)
        return self._release(self._held + text)

    def finish(self) -> str:
        """Return the text that was held back for a stop string that never came.

        The bytes of a character that was never finished are dropped: they are no text.
        """
        held, self._held = self._held, ""
        return held

    def _release(self, pending: str) -> TextDelta:
        found = [(at + len(string), at) for string in self._stop if (at := pending.find(string)) >= 0]
        if found:
            # The string that is complete first wins, however the text is cut into tokens.
            _, start = min(found)
            self._held, self._is_stopped = "", True
            return TextDelta(pending[:start], True)
        cut = len(pending) - max(_length_of_begun_stop(pending, string) for string in self._stop)
        self._held = pending[cut:]
        return TextDelta(pending[:cut], False)


def _length_of_begun_stop(text: str, stop: str) -> int:
    """Return the length of the longest end of the text with which the stop string begins."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0
