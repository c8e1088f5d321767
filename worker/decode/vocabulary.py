"""The tokens of a model as the decoder needs them: their bytes, and which of them gravity may touch."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from worker.decode.function_words import FUNCTION_WORDS

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_METASPACE = "▁"
_WORDPIECE_JOINT = "##"

ByteReader = Callable[[str], bytes]


class Tokenizer(Protocol):
    """The part of a transformers tokenizer that is used here."""

    def encode(self, text: str, *, add_special_tokens: bool) -> list[int]: ...

    def convert_ids_to_tokens(self, ids: list[int]) -> list[str | None]: ...

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """Everything about the tokens that does not depend on a request.

    ``token_bytes[id]`` is what a token adds to the text, ``b""`` for special ids and for rows of the output
    matrix that no token uses. ``is_steerable[id]`` is False for those, for end-of-sequence, chat and added
    tokens, and for whitespace, lone bytes and function words: gravity leaves all of them alone.
    """

    size: int
    token_bytes: tuple[bytes, ...]
    special_ids: frozenset[int]
    eos_ids: frozenset[int]
    is_steerable: NDArray[np.bool_]
    tokenizer: Tokenizer

    @classmethod
    def from_tokenizer(cls, tokenizer: Any, vocab_size: int, eos_ids: Iterable[int] = ()) -> Vocabulary:
        """Read a transformers tokenizer. ``vocab_size`` is the number of logits of the model.

        ``eos_ids`` joins the tokenizer's own end-of-sequence token (a generation config may name several).
        """
        num_tokens = min(len(tokenizer), vocab_size)
        added = {int(id_): token for id_, token in tokenizer.added_tokens_decoder.items()}
        special = {int(id_) for id_ in tokenizer.all_special_ids}
        special |= {id_ for id_, token in added.items() if token.special}
        ends = {int(id_) for id_ in eos_ids}
        if tokenizer.eos_token_id is not None:
            ends.add(int(tokenizer.eos_token_id))
        spellings = tokenizer.convert_ids_to_tokens(list(range(num_tokens)))
        read = _byte_reader(tokenizer, spellings)
        token_bytes = [b""] * vocab_size
        for id_, spelling in enumerate(spellings):
            if spelling is None or id_ in special or id_ in ends:
                continue
            token_bytes[id_] = str(added[id_].content).encode() if id_ in added else read(spelling)
        untouchable = special | ends | set(added)
        return cls(
            size=vocab_size,
            token_bytes=tuple(token_bytes),
            special_ids=frozenset(special | ends),
            eos_ids=frozenset(ends),
            is_steerable=_steerable(token_bytes, untouchable),
            tokenizer=tokenizer,
        )

    def encode(self, text: str) -> list[int]:
        """Return the ids of the text alone: no beginning-of-sequence or other special token is added."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def text(self, token_id: int) -> str:
        """Return one token as text, for logprobs; bytes that are no character of their own show as U+FFFD."""
        if token_id in self.special_ids:
            return self.tokenizer.convert_ids_to_tokens([token_id])[0] or ""
        return self.token_bytes[token_id].decode(errors="replace")


def _steerable(token_bytes: Sequence[bytes], untouchable: set[int]) -> NDArray[np.bool_]:
    steerable = np.zeros(len(token_bytes), np.bool_)
    for id_, raw in enumerate(token_bytes):
        steerable[id_] = id_ not in untouchable and _carries_meaning(raw)
    return steerable


def _carries_meaning(raw: bytes) -> bool:
    try:
        word = raw.decode().strip()
    except UnicodeDecodeError:
        return False
    return bool(word) and word.isprintable() and word.lower() not in FUNCTION_WORDS


def _byte_reader(tokenizer: Any, spellings: Sequence[str | None]) -> ByteReader:
    kinds = _decoder_kinds(tokenizer)
    if "ByteLevel" in kinds:
        return _read_byte_level
    if "WordPiece" in kinds:
        return _read_wordpiece
    if kinds & {"ByteFallback", "Metaspace", "Replace"} or any(_METASPACE in (s or "") for s in spellings):
        return _read_metaspace
    return lambda spelling: spelling.encode(errors="replace")


def _decoder_kinds(tokenizer: Any) -> set[str]:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return set()
    decoder: Mapping[str, Any] = json.loads(backend.to_str()).get("decoder") or {}
    steps = decoder.get("decoders", [decoder])
    return {str(step.get("type")) for step in steps}


def _printable_byte_alphabet() -> dict[str, int]:
    """Return the alphabet of byte-level BPE: printable Latin-1 stands for itself, the rest follows U+0100."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(0x100) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(0x100 + index): byte for index, byte in enumerate(hidden)}


_BYTE_OF = _printable_byte_alphabet()


def _read_byte_level(spelling: str) -> bytes:
    if all(character in _BYTE_OF for character in spelling):
        return bytes(_BYTE_OF[character] for character in spelling)
    return spelling.encode(errors="replace")


def _read_metaspace(spelling: str) -> bytes:
    byte = _BYTE_TOKEN.fullmatch(spelling)
    if byte:
        return bytes([int(byte[1], 16)])
    return spelling.replace(_METASPACE, " ").encode(errors="replace")


def _read_wordpiece(spelling: str) -> bytes:
    if spelling.startswith(_WORDPIECE_JOINT):
        return spelling.removeprefix(_WORDPIECE_JOINT).encode()
    return b" " + spelling.encode()
