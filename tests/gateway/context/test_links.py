from __future__ import annotations

import math

import numpy as np
import pytest

from gateway.context.links import (
    bare_title,
    build_graph,
    closeness,
    explain_link,
    is_named,
    longer_names,
    pull_of,
    reach,
    subject_of,
)
from gateway.context.report import Document


def test_a_title_named_in_another_text_links_both() -> None:
    graph = build_graph(
        [
            Document("a", "It was built by the Orrin Yard in 1902.", "Sea Thrift"),
            Document("b", "A shipyard on the east coast.", "Orrin Yard (company)"),
            Document("c", "Nothing of the kind.", "Porridge"),
        ]
    )
    assert graph.titles.tolist() == [[False, True, False], [True, False, False], [False, False, False]]


def test_a_title_counts_as_whole_words_and_not_when_it_is_short() -> None:
    assert bare_title("Mercury (planet)") == "mercury"
    assert is_named("mercury", "the planet mercury is hot") is True
    assert is_named("mercury", "mercurybased compounds") is False
    assert is_named("ion", "an ion engine") is False
    assert is_named("with", "with ease") is False


def test_a_name_inside_a_longer_one_is_not_meant() -> None:
    longer = longer_names(["on fire", "comets on fire", "", "on fire"])
    assert longer == {"on fire": ["comets on fire"]}
    assert is_named("on fire", "an album by comets on fire", longer["on fire"]) is False
    assert is_named("on fire", "on fire is by comets on fire", longer["on fire"]) is True


def test_hundreds_of_names_inside_each_other_are_looked_at_in_part() -> None:
    longer = longer_names(["name" + " of" * length for length in range(300)])
    assert max(map(len, longer.values())) == 8
    assert longer["name"] == ["name" + " of" * length for length in range(8, 0, -1)]


def test_names_that_few_chunks_share_link_them_by_their_idf() -> None:
    texts = ["Ask Tamsin Vole.", "Tamsin Vole knows.", "Nobody here.", "Nor here."]
    graph = build_graph([Document(f"d{index}", text) for index, text in enumerate(texts)])
    assert graph.shared[0, 1] == pytest.approx(2 * math.log(4 / 2))
    assert graph.shared[0, 2] == 0.0
    assert np.array_equal(graph.shared, graph.shared.T)


def test_a_name_in_every_chunk_links_none() -> None:
    graph = build_graph([Document(f"d{index}", f"Brightwater item {index}") for index in range(12)])
    assert not graph.edges.any()


def test_strength_reaches_two_steps_and_no_further_chunk_more_than_a_nearer_one() -> None:
    chain = [
        Document("a", "Mentions Bluecap.", "Alderwood"),
        Document("b", "Mentions Coldspring.", "Bluecap"),
        Document("c", "Mentions Dunmore.", "Coldspring"),
        Document("d", "The end.", "Dunmore"),
        Document("e", "Not of this.", "Elsewhere"),
    ]
    strength = np.array([2.0, -0.5, -0.5, -0.5, -0.5])
    pull = reach(build_graph(chain), strength)
    assert pull[1] > pull[2] > 0.0
    assert pull[2] >= pull[3]
    assert pull[4] == 0.0


def test_closeness_is_one_for_the_strongest() -> None:
    near = closeness(np.array([1.0, 0.0]))
    assert near == pytest.approx([1.0, math.exp(-1.5)])


def test_a_link_is_explained_by_its_title_or_its_names() -> None:
    documents = [
        Document("a", "It was built by the Orrin Yard.", "Sea Thrift"),
        Document("b", "A shipyard.", "Orrin Yard"),
        Document("c", "They asked Tamsin Vole."),
        Document("d", "Tamsin Vole knows."),
    ]
    graph = build_graph(documents)
    assert explain_link(graph, documents, 0, [1, 2, 3]) == "It names 'Orrin Yard', the title of b."
    assert explain_link(graph, documents, 1, [0]) == "a names its title, 'Orrin Yard'."
    assert explain_link(graph, documents, 2, [0, 3]) == "It names 'Tamsin Vole', with which d opens."
    assert explain_link(graph, documents, 3, [2]) == "c names 'Tamsin Vole', with which it opens."
    assert explain_link(graph, documents, 2, [0]) == ""
    sharing = [Document("e", "we asked Tamsin."), Document("f", "they met Tamsin."), documents[0]]
    assert explain_link(build_graph(sharing), sharing, 0, [1]) == "It shares 'Tamsin' with f."


@pytest.mark.parametrize(
    ("text", "subject"),
    [
        ("Orrin Yard was founded in 1902.", "orrin yard"),
        ("The Bank of Ostrey closed early.", "bank of ostrey"),
        ("An Alder Reach Mill stood here.", "alder reach mill"),
        ("However, nobody came.", ""),
        ("In 1902 Orrin Yard was founded.", ""),
        ("nobody knows Orrin Yard.", ""),
        ("", ""),
    ],
)
def test_a_text_without_title_is_about_the_name_that_it_opens_with(text: str, subject: str) -> None:
    assert subject_of(Document("a", text)) == subject
    assert subject_of(Document("a", text, "Mercury (planet)")) == "mercury"


def test_what_pulls_is_told_apart_by_its_direction() -> None:
    documents = [
        Document("a", "it mentions Bluecap.", "Alderwood"),
        Document("b", "the end.", "Bluecap"),
        Document("c", "it mentions Alderwood.", "Coldspring"),
    ]
    pull = pull_of(build_graph(documents), np.array([1.0, 0.2, 0.1]))
    assert pull.named_by.tolist() == [0.1, 1.0, 0.0]
    assert pull.names.tolist() == [0.2, 0.0, 1.0]
    rarity = math.log(3 / 2)  # each name stands in two of three
    assert pull.shared == pytest.approx([0.2 * rarity, rarity, rarity])
