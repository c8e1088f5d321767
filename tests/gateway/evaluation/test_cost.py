"""Which request is timed."""

from __future__ import annotations

from gateway.evaluation.cost import request_of
from gateway.lab.labelled import LabelledDocument, LabelledRequest


def request(name: str, *texts: str) -> LabelledRequest:
    return LabelledRequest(name, "s", f"{name}?", tuple(LabelledDocument(text, text) for text in texts))


SMALL, LARGE = request("small", "a", "b", "c"), request("large", "c", "d", "e", "f", "g")


def test_the_first_request_that_is_large_enough_is_cut() -> None:
    query = request_of([SMALL, LARGE], 4)
    assert query.question == "large?"
    assert [document.text for document in query.documents] == ["c", "d", "e", "f"]


def test_chunks_of_several_requests_make_up_a_large_one_none_of_them_twice() -> None:
    query = request_of([SMALL, LARGE], 6)
    assert query.question == "small?"
    assert [document.text for document in query.documents] == ["a", "b", "c", "d", "e", "f"]
    assert len(request_of([SMALL, LARGE], 100).documents) == 7
