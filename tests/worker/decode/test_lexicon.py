"""Words to token ids, with the real tokenizer."""

from __future__ import annotations

import pytest

from worker.decode.lexicon import Lexicon
from worker.decode.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def lexicon(vocabulary: Vocabulary) -> Lexicon:
    return Lexicon(vocabulary)


def whole_words(lexicon: Lexicon, *words: str) -> set[str]:
    return {lexicon.vocabulary.text(id_) for id_ in lexicon.look_up(words).whole}


def test_a_word_comes_with_and_without_space_capitalised_and_plural(lexicon: Lexicon) -> None:
    expected = {" array", "array", " Array", "Array", " arrays", "arrays"}
    assert expected <= whole_words(lexicon, "array")


@pytest.mark.parametrize(
    ("word", "plural"),
    [("city", " cities"), ("search", " searches"), ("day", " days"), ("process", " processes")],
)
def test_plurals_are_spelled_as_english_spells_them(lexicon: Lexicon, word: str, plural: str) -> None:
    assert plural in whole_words(lexicon, word)


def test_a_plural_has_no_plural(lexicon: Lexicon) -> None:
    assert lexicon.look_up(["movies"]).whole == lexicon.look_up(["movies"]).whole
    spelled = {"".join(lexicon.vocabulary.text(id_) for id_ in ids) for ids in lexicon.spellings("movies")}
    assert spelled == {"movies", " movies", "Movies", " Movies"}


def test_of_a_longer_word_the_first_piece_counts_and_the_next_only_right_after_it(lexicon: Lexicon) -> None:
    vocabulary = lexicon.vocabulary
    rest, aur, ant = vocabulary.encode("restaurant")
    ids = lexicon.look_up(["restaurant"])
    assert rest in ids.first
    assert not {aur, ant} & (ids.whole | ids.first)
    assert aur in ids.following[(rest,)]
    assert ant in ids.following[(rest, aur)]
    assert ant in ids.last[(rest, aur)]
    assert (rest,) not in ids.last
    (joined,) = vocabulary.encode(" restaurant")
    assert joined in ids.whole


def test_an_underscore_also_reads_as_a_space(lexicon: Lexicon) -> None:
    vocabulary = lexicon.vocabulary
    binary, search = vocabulary.encode(" binary search")
    assert search in lexicon.look_up(["binary_search"]).following[(binary,)]


@pytest.mark.parametrize("word", ["the", "The", " and ", "because", "", "  "])
def test_function_words_and_blanks_come_down_to_nothing(lexicon: Lexicon, word: str) -> None:
    ids = lexicon.look_up([word])
    assert not ids.whole | ids.first
    assert not ids.following


def test_nothing_that_gravity_must_leave_alone_is_ever_returned(lexicon: Lexicon) -> None:
    words = ["<|im_end|>", "<|im_start|>user", "🙂", "日本語", "the end", "in\n", "a b", "O(n)"]
    ids = lexicon.look_up(words)
    touched = ids.whole | ids.first
    touched = touched.union(*ids.following.values(), *ids.last.values())
    assert touched
    assert all(lexicon.vocabulary.is_steerable[id_] for id_ in touched)


def test_a_single_letter_is_no_first_piece(lexicon: Lexicon) -> None:
    vocabulary = lexicon.vocabulary
    pieces = vocabulary.encode("movies")
    assert vocabulary.text(pieces[0]) == "m"
    assert pieces[0] not in lexicon.look_up(["movies"]).first
