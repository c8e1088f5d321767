"""Documents in the two shapes that clients send."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.api.documents import normalised
from gateway.context.report import Document
from gateway.errors import InvalidRequest


def test_none_and_nothing_are_no_documents() -> None:
    assert normalised(None) == normalised([]) == ()


def test_vllms_shape_keeps_what_is_not_its_own_as_metadata() -> None:
    sent = [{"text": "a", "title": "A", "source": {"url": "u"}, "score": 0.5}, {"text": "", "title": None}]
    first, second = normalised(sent)
    assert (first.id, first.text, first.title) == ("doc-0", "a", "A")
    assert dict(first.metadata) == {"source": {"url": "u"}, "score": 0.5}
    assert second == Document("doc-1", "", metadata=second.metadata)


def test_coheres_shapes_are_strings_and_data() -> None:
    sent: list[Any] = [
        "plain",
        {"id": "x", "data": {"text": "t", "title": "T", "lang": "en"}},
        {"id": "y", "data": "just text"},
        {"data": {"snippet": "s", "url": "u"}},
    ]
    plain, full, string, fields = normalised(sent)
    assert plain.text == "plain"
    assert (full.id, full.text, full.title, dict(full.metadata)) == ("x", "t", "T", {"lang": "en"})
    assert (string.id, string.text) == ("y", "just text")
    assert fields.text == "snippet: s\nurl: u"


def test_ids_are_invented_only_where_missing_and_never_twice() -> None:
    sent = [{"text": "a"}, {"text": "b", "id": "doc-0"}, {"text": "c", "id": 7}, "d"]
    ids = [document.id for document in normalised(sent)]
    assert ids[1:] == ["doc-0", "7", "doc-3"]
    assert len(set(ids)) == 4


def test_ids_of_the_client_may_repeat() -> None:
    """Retrievers send several chunks of one page under the page's id."""
    assert [document.id for document in normalised([{"text": "a", "id": "p"}, {"text": "b", "id": "p"}])] == [
        "p",
        "p",
    ]


def test_embeddings_come_along() -> None:
    (document,) = normalised([{"text": "a", "embedding": [1, 0.5, -2.0]}])
    assert document.embedding == (1.0, 0.5, -2.0)


@pytest.mark.parametrize(
    ("sent", "param"),
    [
        ("text", "documents"),
        ({"text": "a"}, "documents"),
        (["a", 1], "documents[1]"),
        ([{"text": 1}], "documents[0].text"),
        ([{"title": "a"}], "documents[0].text"),
        ([{"text": "a", "title": 1}], "documents[0].title"),
        ([{"text": "a", "id": True}], "documents[0].id"),
        ([{"text": "a", "embedding": []}], "documents[0].embedding"),
        ([{"text": "a", "embedding": [True]}], "documents[0].embedding"),
        ([{"id": "a", "data": None}], "documents[0].data"),
    ],
)
def test_what_is_no_document_is_named(sent: object, param: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        normalised(sent)
    assert error.value.param == param
