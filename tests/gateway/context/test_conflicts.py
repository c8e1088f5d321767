from __future__ import annotations

import time

import pytest

from gateway.context.conflicts import find_conflicts
from gateway.context.report import Conflict, Document

FERRY = (
    "The harbour ferry leaves Ness at 07:10 on weekdays. It takes forty minutes to Brodick. "
    "Bicycles travel free of charge. Dogs are welcome on the upper deck."
)
OTHER = "Knead the dough for ten minutes and let it rise until it has doubled in size."


def documents(*texts: str) -> list[Document]:
    return [Document(f"d{index}", text) for index, text in enumerate(texts)]


def test_a_conflict_names_both_documents_and_what_each_says() -> None:
    sent = documents(FERRY, OTHER, FERRY.replace("forty minutes", "fifty minutes"))
    (found,) = find_conflicts(sent)
    assert (found.first, found.second, found.spans) == (0, 2, ("forty", "fifty"))
    assert found.between(sent) == Conflict(("d0", "d2"), ("forty", "fifty"), found.detail)
    assert found.detail == "d0 says 'forty', d2 says 'fifty' after 'on weekdays. It takes'."


@pytest.mark.parametrize(
    ("old", "new"), [("07:10", "08:25"), ("Brodick", "Lamlash"), ("Dogs are", "Dogs are not")]
)
def test_times_names_and_denials_conflict(old: str, new: str) -> None:
    assert len(find_conflicts(documents(FERRY, FERRY.replace(old, new)))) == 1


@pytest.mark.parametrize(
    "copy",
    [
        FERRY,
        "From the archive of Monday: " + FERRY,
        FERRY.replace("Bicycles travel free of charge. ", ""),
        FERRY.replace("07:10", "7:10 a.m.").replace("forty", "40"),
        FERRY.upper(),
        FERRY[: len(FERRY) * 3 // 4],
    ],
)
def test_near_copies_do_not(copy: str) -> None:
    assert find_conflicts(documents(FERRY, copy)) == []


def test_three_versions_conflict_pair_by_pair() -> None:
    versions = documents(*(FERRY.replace("07:10", time) for time in ("07:10", "07:40", "08:05")))
    assert [(found.first, found.second) for found in find_conflicts(versions)] == [(0, 1), (0, 2), (1, 2)]


def test_one_pattern_about_two_things_is_no_conflict() -> None:
    pattern = (
        "{} is a village in the Bar District of Ostrey. At the last census it had {} people in {} houses."
    )
    villages = pattern.format("Arrud", 50, 12), pattern.format("Barin", 70, 19)
    assert find_conflicts(documents(*villages)) == []
    titled = [Document("a", villages[0], "Arrud"), Document("b", villages[1], "Barin")]
    assert find_conflicts(titled) == []
    years = [
        Document("a", FERRY, "Winter 2024"),
        Document("b", FERRY.replace("07:10", "08:25"), "Winter 2025"),
    ]
    assert find_conflicts(years) == []


def test_another_subject_throughout_is_one_conflict() -> None:
    text = (
        "Spar won the regatta of 1931 in light winds. Nobody had thought that Spar's crew could row so well."
    )
    (found,) = find_conflicts(documents(text, text.replace("Spar", "Kestrel")))
    assert found.spans == ("Spar", "Kestrel")


def test_titles_of_two_sites_do_not_hide_a_conflict() -> None:
    other = FERRY.replace("forty", "fifty")
    pair = [Document("a", FERRY, "Ness ferry - Wikipedia"), Document("b", other, "Ness ferry | Tripadvisor")]
    assert len(find_conflicts(pair)) == 1


def test_few_or_no_documents_have_no_conflict() -> None:
    assert find_conflicts([]) == find_conflicts(documents(FERRY)) == find_conflicts(documents("", "")) == []


def test_a_hundred_filled_in_forms_are_bounded_in_cost() -> None:
    """This thread's processor time, widely bounded; 4,950 pairs of them are alike."""
    forms = documents(*(FERRY.replace("07:10", f"{n // 60 + 5}:{n % 60:02}") for n in range(100)))
    started = time.thread_time()
    assert 0 < len(find_conflicts(forms)) <= 64
    assert time.thread_time() - started < 2.0
