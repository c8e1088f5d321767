from __future__ import annotations

import numpy as np

from gateway.lab.labelled import LabelledDocument, LabelledRequest
from gateway.training.snippets import cut

LONG = "{0} is old. The walls of {0} are of {1}. The roof of {0} is new. {0} burned once. {0} is empty."


def request() -> LabelledRequest:
    relevant = [
        LabelledDocument("a", LONG.format("Orrin Hall", "flint"), "Orrin Hall", True),
        LabelledDocument("b", "Flint is a stone. Orrin Hall is made of it. It is hard.", "Flint", True),
    ]
    others = [LabelledDocument(f"o{n}", LONG.format(f"Place {n}", "oak"), f"Place {n}") for n in range(30)]
    return LabelledRequest("r", "mine", "Of what is Orrin Hall?", (*relevant, *others), ("flint",))


def drawn(seeds: int = 40) -> list[list[LabelledDocument]]:
    return [cut(request(), np.random.default_rng(seed)) for seed in range(seeds)]


def test_snippets_are_about_twenty_of_one_to_three_sentences_and_differ() -> None:
    for snippets in drawn():
        assert 12 <= len(snippets) <= 20
        assert len({snippet.text for snippet in snippets}) == len(snippets)
        assert all(1 <= snippet.text.count(".") <= 3 for snippet in snippets)


def test_a_relevant_snippet_has_what_makes_its_document_relevant() -> None:
    relevant = [snippet for snippets in drawn() for snippet in snippets if snippet.is_relevant]
    assert all("flint" in each.text for each in relevant if each.id == "a")
    assert all("Flint" in each.text or "Orrin Hall" in each.text for each in relevant if each.id == "b")
    assert {each.id for each in relevant} == {"a", "b"}


def test_several_snippets_say_the_same() -> None:
    counts = [sum(snippet.is_relevant for snippet in snippets) for snippets in drawn()]
    assert min(counts) >= 1
    assert max(counts) > 2


def test_most_have_no_titles_and_some_have_all() -> None:
    titled = [all(snippet.title for snippet in snippets) for snippets in drawn(100)]
    assert all(
        any(s.title for s in snippets) == has for snippets, has in zip(drawn(100), titled, strict=True)
    )
    assert 10 <= sum(titled) <= 40


def test_a_request_without_anything_relevant_stays_so() -> None:
    bare = LabelledRequest(
        "r", "mine", "?", (LabelledDocument("a", "One. Two."), LabelledDocument("b", "Three."))
    )
    assert not any(snippet.is_relevant for snippet in cut(bare, np.random.default_rng(0)))
