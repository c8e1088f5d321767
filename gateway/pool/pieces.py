"""The token ids that words begin with, by the tokenizer of the model that will read them.

A server's own ``/tokenize`` (vLLM's, llama.cpp's and our workers' form in one request) says it best; else a
tokenizer that a setting names, from this machine alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from gateway.errors import RequestError, Unavailable, UpstreamTimeout
from gateway.pool.worker import Worker
from gateway.telemetry.logs import log

Encode: TypeAlias = Callable[[str, bool], Awaitable[list[int]]]
"""Text and whether special tokens are put around it, to ids. Raises RequestError."""

TIMEOUT_S = 2.0
"""A turn waits so long for words that are new; they are asked for once."""
NUM_AT_ONCE = 16
ASK_AGAIN_S = 600.0
MAX_WORDS = 20_000
TOKENIZER_FILE = "tokenizer.json"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pieces:
    """``whole``: ids that are a form of the word; ``first``: those that longer forms begin with."""

    whole: frozenset[int]
    first: frozenset[int]


@dataclass(frozen=True, slots=True)
class _Untouchable:
    """Ids that no word may stand for: a leading space of its own, and what is put around a text."""

    spaces: frozenset[int]
    special: frozenset[int]


class WordPieces:
    """Spells words, and remembers the most recently used by model."""

    def __init__(self, tokenizers: Mapping[str, str], monotonic: Callable[[], float]) -> None:
        self._tokenizers = tokenizers
        self._monotonic = monotonic
        self._known: OrderedDict[tuple[str, str], Pieces] = OrderedDict()
        self._untouchable: dict[str, _Untouchable] = {}
        self._local: dict[str, Encode] = {}
        self._mute_until_s: dict[str, float] = {}
        """Workers that could not be asked, and when to try again."""

    async def of(self, worker: Worker, model: str, words: Sequence[str]) -> dict[str, Pieces]:
        """Return the pieces of every word. Raises RequestError where nobody can spell them in time."""
        missing = [word for word in dict.fromkeys(words) if (model, word) not in self._known]
        if missing:
            try:
                async with asyncio.timeout(TIMEOUT_S):
                    await self._learn(worker, model, missing)
            except TimeoutError as error:
                raise UpstreamTimeout from error
        spelled = {word: self._known[model, word] for word in words}
        for word in spelled:
            self._known.move_to_end((model, word))
        while len(self._known) > max(MAX_WORDS, len(spelled)):
            self._known.popitem(last=False)
        return spelled

    async def _learn(self, worker: Worker, model: str, words: Sequence[str]) -> None:
        encode = await self._encoder(worker, model)
        slots = asyncio.Semaphore(NUM_AT_ONCE)

        async def spell(text: str) -> list[int]:
            async with slots:
                return await encode(text, False)

        untouchable = self._untouchable[model]
        for word in words:
            self._known[model, word] = await _pieces(word, spell, untouchable)

    async def _encoder(self, worker: Worker, model: str) -> Encode:
        """Return what spells for the model, tried out on the texts that say what to leave alone."""
        if self._mute_until_s.get(worker.name, 0.0) <= self._monotonic():
            encode = _asking(worker, model)
            try:
                await self._try_out(encode, model)
            except UpstreamTimeout:  # busy, which says nothing of the next time
                raise
            except RequestError as error:
                self._mute_until_s[worker.name] = self._monotonic() + ASK_AGAIN_S
                log(logger, logging.INFO, "no_tokenizer", worker=worker.name, reason=error.code)
            else:
                return encode
        if model not in self._tokenizers:
            raise Unavailable
        if model not in self._local:
            self._local[model] = await asyncio.to_thread(_opened, self._tokenizers[model])
        await self._try_out(self._local[model], model)
        return self._local[model]

    async def _try_out(self, encode: Encode, model: str) -> None:
        if model in self._untouchable:
            return
        spaces, special = await encode(" ", False), await encode("", True)
        self._untouchable[model] = _Untouchable(frozenset(spaces), frozenset(special))


def _asking(worker: Worker, model: str) -> Encode:
    async def encode(text: str, has_special: bool) -> list[int]:
        return await worker.client.token_ids(model, text, has_special=has_special, timeout_s=TIMEOUT_S)

    return encode


def _opened(name: str) -> Encode:
    """Open a folder's or a cached repository's tokenizer. Raises Unavailable where it is not on this disk."""
    from huggingface_hub import try_to_load_from_cache
    from tokenizers import Tokenizer

    file = Path(name) / TOKENIZER_FILE
    if not file.is_file():
        cached = try_to_load_from_cache(name, TOKENIZER_FILE)
        if not isinstance(cached, str):
            log(logger, logging.WARNING, "tokenizer_not_found", tokenizer=name)
            raise Unavailable
        file = Path(cached)
    tokenizer = Tokenizer.from_file(str(file))

    async def encode(text: str, has_special: bool) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=has_special).ids)

    return encode


async def _pieces(
    word: str, spell: Callable[[str], Awaitable[list[int]]], untouchable: _Untouchable
) -> Pieces:
    texts = sorted({lead + form for form in forms(word) for lead in ("", " ")})
    letters = sorted({lead + text.strip()[0] for text in texts for lead in ("", " ")})
    spelled = await asyncio.gather(*map(spell, (*texts, *letters)))
    spellings = [_without_leading_space(ids, untouchable.spaces) for ids in spelled]
    # With one letter so many words begin that it says nothing about any.
    lone = {ids[0] for ids in spellings[len(texts) :] if ids}
    whole = {ids[0] for ids in spellings[: len(texts)] if len(ids) == 1}
    first = {ids[0] for ids in spellings[: len(texts)] if len(ids) > 1} - lone
    return Pieces(frozenset(whole - untouchable.special), frozenset(first - whole - untouchable.special))


def _without_leading_space(ids: Sequence[int], spaces: frozenset[int]) -> Sequence[int]:
    start = 0
    while start < len(ids) and ids[start] in spaces:
        start += 1
    return ids[start:]


def forms(word: str) -> Iterator[str]:
    """Give the word as it may stand in a text: itself and its plural, small and with a capital."""
    base = word.strip()
    for form in dict.fromkeys((base, base.replace("_", " ").strip())):
        for inflected in dict.fromkeys((form, _plural(form))) if form else ():
            yield inflected
            yield inflected[0].upper() + inflected[1:]


def _plural(word: str) -> str:
    lower = word.lower()
    if not (lower[-1].isascii() and lower[-1].isalpha()) or (
        lower.endswith("s") and not lower.endswith("ss")
    ):
        return word
    if lower.endswith(("s", "x", "z", "ch", "sh")):
        return word + "es"
    if lower.endswith("y") and len(word) > 1 and lower[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + "s"
