"""Token bytes and steerable tokens, for the real tokenizer and for the other families of tokenizers."""

from __future__ import annotations

from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from worker.decode.vocabulary import Vocabulary

TEXTS = (
    "Binary search: O(log n).",
    " leading and trailing ",
    "naïve café, Zürich — 東京と日本語",
    "🙂👩‍👩‍👧 family\n\n\tindented\r\n",
    "a\u2028b\u0085c\x00d",
)


@pytest.mark.parametrize("text", TEXTS)
def test_the_bytes_of_the_tokens_are_the_bytes_of_the_text(vocabulary: Vocabulary, text: str) -> None:
    ids = vocabulary.encode(text)
    assert b"".join(vocabulary.token_bytes[id_] for id_ in ids) == text.encode()


def test_every_token_reads_as_the_tokenizer_decodes_it(vocabulary: Vocabulary, tokenizer: Any) -> None:
    for id_ in range(0, vocabulary.size, 7):
        if id_ not in vocabulary.special_ids:
            assert vocabulary.token_bytes[id_].decode(errors="replace") == tokenizer.decode([id_])


def test_special_tokens_have_a_name_and_no_text(vocabulary: Vocabulary, tokenizer: Any) -> None:
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    start = tokenizer.convert_tokens_to_ids("<|im_start|>")
    assert vocabulary.eos_ids == {end}
    assert {start, end, tokenizer.convert_tokens_to_ids("<|endoftext|>")} <= vocabulary.special_ids
    assert vocabulary.token_bytes[start] == b""
    assert vocabulary.text(start) == "<|im_start|>"
    assert vocabulary.text(vocabulary.encode(" search")[0]) == " search"


def test_a_generation_config_may_add_ends(tokenizer: Any) -> None:
    other_end = tokenizer.convert_tokens_to_ids("<|endoftext|>")
    vocabulary = Vocabulary.from_tokenizer(tokenizer, len(tokenizer), eos_ids=[other_end])
    assert vocabulary.eos_ids == {tokenizer.eos_token_id, other_end}


@pytest.mark.parametrize("word", [" the", "The", " and", "of", " ", "\n", "\n\n", "    "])
def test_gravity_leaves_function_words_and_whitespace_alone(vocabulary: Vocabulary, word: str) -> None:
    (id_,) = vocabulary.encode(word)
    assert not vocabulary.is_steerable[id_]


@pytest.mark.parametrize("word", [" algorithm", "Search", " restaurant", "(", "7"])
def test_gravity_may_touch_words(vocabulary: Vocabulary, word: str) -> None:
    (id_,) = vocabulary.encode(word)
    assert vocabulary.is_steerable[id_]


def test_gravity_leaves_special_tokens_and_lone_bytes_alone(vocabulary: Vocabulary) -> None:
    assert not any(vocabulary.is_steerable[id_] for id_ in vocabulary.special_ids)
    broken = vocabulary.encode("🙂")
    assert len(broken) > 1
    assert not any(vocabulary.is_steerable[id_] for id_ in broken)


def test_rows_that_no_token_uses_are_empty_and_never_touched(tokenizer: Any) -> None:
    padded = Vocabulary.from_tokenizer(tokenizer, len(tokenizer) + 64)
    assert padded.size == len(padded.token_bytes) == len(padded.is_steerable) == len(tokenizer) + 64
    assert padded.token_bytes[-1] == b""
    assert not padded.is_steerable[-64:].any()


def test_a_sentencepiece_tokenizer_is_read_as_spaces_and_bytes() -> None:
    pieces = ["<unk>", "</s>", "▁search", "ing", "▁", "▁the", "<0xF0>", "<0x9F>", "<0x99>", "<0x82>"]
    backend = Tokenizer(
        models.BPE(
            {piece: id_ for id_, piece in enumerate(pieces)}, [], unk_token="<unk>", byte_fallback=True
        )
    )
    backend.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>", unk_token="<unk>")
    vocabulary = Vocabulary.from_tokenizer(tokenizer, len(pieces))
    assert b"".join(vocabulary.token_bytes[2:4]) == b" searching"
    assert b"".join(vocabulary.token_bytes[6:]).decode() == "🙂"
    assert [bool(flag) for flag in vocabulary.is_steerable] == [False, False, True, True] + [False] * 6


def test_a_wordpiece_tokenizer_is_read_with_its_joints() -> None:
    pieces = ["[UNK]", "[SEP]", "search", "##ing"]
    backend = Tokenizer(models.WordPiece({piece: id_ for id_, piece in enumerate(pieces)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.decoder = decoders.WordPiece()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="[SEP]", unk_token="[UNK]")
    vocabulary = Vocabulary.from_tokenizer(tokenizer, len(pieces))
    assert vocabulary.token_bytes == (b"", b"", b" search", b"ing")
