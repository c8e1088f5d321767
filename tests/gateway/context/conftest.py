"""Small sets of chunks, written for these tests, with what a person would keep of them."""

from __future__ import annotations

import pytest

from gateway.context.report import Document

QUESTION = "Which metal coats the mirror of the telescope at Vessel Point?"


@pytest.fixture
def question() -> str:
    return QUESTION


@pytest.fixture
def observatory() -> tuple[Document, ...]:
    """Two chunks that the question needs together, one near its subject, five off it."""
    return (
        Document("soup", "Simmer the leeks in butter until soft, then add stock and cream.", "Leek soup"),
        Document(
            "point",
            "The observatory at Vessel Point houses a single telescope, the Amberley Reflector, which "
            "students may use on clear nights in winter.",
            "Vessel Point",
        ),
        Document("tyre", "Check the tyre pressure when the tyres are cold, twice a month.", "Tyre care"),
        Document(
            "reflector",
            "The Amberley Reflector was finished in 1931. Its disc of two metres is coated with silver, "
            "renewed every fourth spring by hand.",
            "Amberley Reflector",
        ),
        Document("tax", "Send the form before the end of May; late forms cost a fee.", "Tax forms"),
        Document("choir", "The choir rehearses on Tuesdays in the old chapel.", "Parish choir"),
        Document("knots", "A bowline does not slip and is easy to untie after a load.", "Knots"),
        Document("frogs", "Tree frogs change colour with the temperature of the leaf.", "Tree frogs"),
    )
