"""Text as it comes out, with the real tokenizer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.decode.text import TextAssembler
from worker.decode.vocabulary import Vocabulary

SAMPLES = ("Hello 🙂👩‍👩‍👧 wörld", "naïve 日本語 text", "a\u2028b\u0085c", "x = [1, 2]\n\n\tend  ")


def assemble(vocabulary: Vocabulary, ids: Iterable[int], stop: Sequence[str] = ()) -> tuple[list[str], bool]:
    """Return the pieces as a client would get them, and whether a stop string ended them."""
    assembler = TextAssembler(vocabulary, stop)
    pieces = []
    for id_ in ids:
        delta = assembler.push(id_)
        pieces.append(delta.text)
        if delta.is_stopped:
            return pieces, True
    return [*pieces, assembler.finish()], False


@pytest.mark.parametrize("text", SAMPLES)
def test_the_pieces_join_to_what_the_tokenizer_decodes(
    vocabulary: Vocabulary, tokenizer: Any, text: str
) -> None:
    ids = vocabulary.encode(text)
    pieces, is_stopped = assemble(vocabulary, ids)
    assert "".join(pieces) == tokenizer.decode(ids) == text
    assert not is_stopped
    assert not any("�" in piece for piece in pieces)


def test_a_character_waits_for_its_last_byte(vocabulary: Vocabulary) -> None:
    ids = vocabulary.encode("🙂")
    assembler = TextAssembler(vocabulary)
    assert [assembler.push(id_).text for id_ in ids] == [""] * (len(ids) - 1) + ["🙂"]


def test_a_character_that_is_never_finished_is_dropped(vocabulary: Vocabulary) -> None:
    pieces, _ = assemble(vocabulary, [*vocabulary.encode("so "), *vocabulary.encode("🙂")[:-1]])
    assert "".join(pieces) == "so "


def test_bytes_that_are_no_character_show_as_the_tokenizer_shows_them(
    vocabulary: Vocabulary, tokenizer: Any
) -> None:
    ids = [vocabulary.encode("🙂")[0], *vocabulary.encode(" then")]
    pieces, _ = assemble(vocabulary, ids)
    assert "".join(pieces) == tokenizer.decode(ids) == "� then"


def test_special_tokens_add_nothing_even_inside_a_character(vocabulary: Vocabulary) -> None:
    first, last = vocabulary.encode("🙂")
    special = min(vocabulary.special_ids)
    assert "".join(assemble(vocabulary, [special, first, special, last, special])[0]) == "🙂"


def test_vllm_3574_a_stop_string_over_four_tokens_does_not_leak(
    vocabulary: Vocabulary, tokenizer: Any
) -> None:
    ids = tokenizer.convert_tokens_to_ids(["ABC", "DEF", "G", "HI", "J", "K"])
    assert not vocabulary.special_ids & set(ids)
    pieces, is_stopped = assemble(vocabulary, ids, ["DEFGHIJ"])
    assert (pieces, is_stopped) == (["ABC", "", "", "", ""], True)


def test_text_that_only_began_like_a_stop_string_is_released(vocabulary: Vocabulary, tokenizer: Any) -> None:
    ids = tokenizer.convert_tokens_to_ids(["ABC", "DEF", "G", "HI", "K", "DEF"])
    pieces, is_stopped = assemble(vocabulary, ids, ["DEFGHIJ"])
    assert pieces == ["ABC", "", "", "", "DEFGHIK", "", "DEF"]
    assert not is_stopped


def test_nothing_is_taken_after_a_stop(vocabulary: Vocabulary) -> None:
    assembler = TextAssembler(vocabulary, ["stop"])
    for id_ in vocabulary.encode("we stop here"):
        delta = assembler.push(id_)
    assert delta.is_stopped
    assert delta.text == ""
    assert assembler.finish() == ""


def test_a_stop_string_may_begin_inside_a_token(vocabulary: Vocabulary) -> None:
    pieces, is_stopped = assemble(vocabulary, vocabulary.encode("one two three"), ["wo th"])
    assert ("".join(pieces), is_stopped) == ("one t", True)


def test_a_stop_string_may_hold_an_emoji(vocabulary: Vocabulary) -> None:
    pieces, is_stopped = assemble(vocabulary, vocabulary.encode("fine 🙂👧 more"), ["🙂👧"])
    assert ("".join(pieces), is_stopped) == ("fine ", True)


def test_the_stop_string_that_is_complete_first_wins(vocabulary: Vocabulary) -> None:
    ids = vocabulary.encode("abcd")
    assert "".join(assemble(vocabulary, ids, ["bcd", "c"])[0]) == "ab"
    assert "".join(assemble(vocabulary, ids, ["abcdef", "d"])[0]) == "abc"


def test_an_empty_stop_string_stops_nothing(vocabulary: Vocabulary) -> None:
    assert "".join(assemble(vocabulary, vocabulary.encode("all of it"), [""])[0]) == "all of it"


def cut_by_hand(text: str, stops: Sequence[str]) -> str:
    """Read character by character and cut where the first stop string is complete."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return text[: end - max(map(len, found))]
    return text


@given(
    text=st.text("ab🙂é ", max_size=30), stops=st.lists(st.text("ab🙂é ", min_size=1, max_size=4), max_size=4)
)
def test_any_text_is_cut_at_the_stop_that_is_complete_first(
    vocabulary: Vocabulary, text: str, stops: list[str]
) -> None:
    pieces, is_stopped = assemble(vocabulary, vocabulary.encode(text), stops)
    assert "".join(pieces) == cut_by_hand(text, stops)
    assert is_stopped == any(stop in text for stop in stops)


@given(text=st.text("ab🙂é ", max_size=30), stop=st.text("ab🙂é ", min_size=1, max_size=4))
def test_no_more_is_held_back_than_the_beginning_of_a_stop_string(
    vocabulary: Vocabulary, text: str, stop: str
) -> None:
    assembler = TextAssembler(vocabulary, [stop])
    ids = vocabulary.encode(text)
    sent = "".join(assembler.push(id_).text for id_ in ids)
    if stop not in text:
        held = text.removeprefix(sent)
        assert text == sent + held
        assert held == "" or stop.startswith(held)
