from __future__ import annotations

import pytest

from gateway.context.ellipsis import missing_share


@pytest.mark.parametrize(
    "question",
    [
        "Why?",
        "and the second one?",
        "And when was that?",
        "what about in 1998?",
        "Who was it?",
        "Tell me more about the second one.",
        "How old is he?",
        "Can you explain that in more detail?",
    ],
)
def test_a_question_that_names_nothing_leaves_all_to_the_conversation(question: str) -> None:
    assert missing_share(question) == 1.0


@pytest.mark.parametrize(
    "question", ["Where was she born?", "What about his wife?", "And Lamlash?", "How many people live there?"]
)
def test_a_question_that_points_back_leaves_much(question: str) -> None:
    assert 0.5 < missing_share(question) < 1.0


@pytest.mark.parametrize(
    "question",
    [
        "Which metal coats the mirror of the telescope at Vessel Point?",
        "What is photosynthesis?",
        "mercury boiling point",
        "How do I renew my passport?",
        "Which film did Ida Penhallow direct before her first novel was printed?",
        "Wer baute die Fähre?",
        "",
        "?",
    ],
)
def test_a_complete_question_leaves_nothing(question: str) -> None:
    assert missing_share(question) == 0.0
