from __future__ import annotations

from collections import Counter

from gateway.lab.labelled import LabelledDocument, LabelledRequest
from gateway.training.variations import Variation, variations


def requests(num_requests: int = 12, num_documents: int = 10) -> list[LabelledRequest]:
    return [
        LabelledRequest(
            id=f"r{number}",
            set="mine",
            question=f"Question {number}?",
            documents=tuple(
                LabelledDocument(f"d{place}", f"Text {number}.{place}", f"Title {place}", place < 2)
                for place in range(num_documents)
            ),
        )
        for number in range(num_requests)
    ]


def of_kind(drawn: list[Variation], kind: str) -> list[Variation]:
    return [each for each in drawn if each.kind == kind]


def test_every_request_comes_in_every_shape_and_every_other_one_padded() -> None:
    drawn = list(variations(requests(), 0))
    counts = Counter(each.kind for each in drawn)
    assert counts.pop("padded") == 6
    assert set(counts.values()) == {12}
    assert set(counts) == {"as_sent", "untitled", "half_titled", "few", "few_untitled", "snippets", "foreign"}


def test_the_same_seed_draws_the_same() -> None:
    assert list(variations(requests(), 3)) == list(variations(requests(), 3))
    assert list(variations(requests(), 3)) != list(variations(requests(), 4))


def test_what_is_relevant_stays_so_whatever_the_shape() -> None:
    drawn = list(variations(requests(), 0))
    for each in drawn:
        relevant = {document.text for document in each.documents if document.is_relevant}
        own = {f"Text {each.source}.{place}" for place in (0, 1)}
        if each.kind == "foreign":
            assert not relevant
        elif each.kind in ("few", "few_untitled"):
            assert relevant <= own
            assert relevant
        else:
            assert relevant == own


def test_titles_go_where_the_shape_says_so() -> None:
    drawn = list(variations(requests(), 0))
    assert all(not document.title for each in of_kind(drawn, "untitled") for document in each.documents)
    assert all(document.title for each in of_kind(drawn, "as_sent") for document in each.documents)
    halves = [bool(document.title) for each in of_kind(drawn, "half_titled") for document in each.documents]
    assert 0.35 < sum(halves) / len(halves) < 0.65


def test_few_are_three_to_eight() -> None:
    drawn = list(variations(requests(), 0))
    sizes = {len(each.documents) for each in drawn if each.kind in ("few", "few_untitled")}
    assert sizes <= set(range(3, 9))
    assert len(sizes) > 2


def test_padding_fills_up_to_a_hundred_with_others_texts() -> None:
    (first, *_) = of_kind(list(variations(requests(), 0)), "padded")
    texts = [document.text for document in first.documents]
    assert len(texts) == len(set(texts)) == 100
    assert {f"Text {first.source}.{place}" for place in range(10)} <= set(texts)


def test_a_foreign_question_is_never_the_requests_own() -> None:
    for each in of_kind(list(variations(requests(), 0)), "foreign"):
        assert each.question != f"Question {each.source}?"


def test_one_request_alone_has_no_foreign_question() -> None:
    assert not of_kind(list(variations(requests(1), 0)), "foreign")
