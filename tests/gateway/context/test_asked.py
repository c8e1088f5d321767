from __future__ import annotations

import numpy as np
import pytest

from gateway.context.asked import (
    DECAY,
    MAX_CHARS,
    MAX_TEXTS,
    MAX_TOKENS,
    PULL,
    ask,
    needed_history,
    recent,
)
from gateway.context.decide import PruneOptions, PruneQuery
from gateway.context.encoding import Encoding, unit
from gateway.context.pruner import Pruner
from gateway.context.report import Document
from tests.pruning import count_words

FULL = "Which metal coats the mirror of the telescope?"
OTHER = "How do I renew my passport in Lima?"
ELLIPTICAL = "and the second one?"


def axis(number: int, num_tokens: int = 2) -> Encoding:
    """A text that is one axis of the space, and so are its tokens."""
    row = np.eye(8, dtype=np.float32)[number]
    tokens = np.tile(row, (num_tokens, 1)).astype(np.float16)
    return Encoding(row, row[None], row[None], tokens, np.full(num_tokens, number, np.int32))


def test_without_history_a_question_stands_as_it_is() -> None:
    asked = ask(FULL, axis(0))
    assert asked.text == FULL
    assert asked.token_weights.tolist() == [1.0, 1.0]
    assert dict(asked.terms) == dict.fromkeys(("metal", "coats", "mirror", "telescope"), 1.0)


def test_a_complete_question_is_not_drawn_back_to_the_old_subject() -> None:
    question = axis(0)
    asked = ask(FULL, question, [(OTHER, axis(1)), ("At the embassy in Lima.", axis(2))])
    assert asked.encoding is question
    assert asked.terms == ask(FULL, question).terms
    assert needed_history(FULL, (OTHER, "At the embassy in Lima.")) == ()


def test_an_elliptical_question_is_the_question_and_the_summary() -> None:
    asked = ask(ELLIPTICAL, axis(0), [(FULL, axis(1))])
    # e = 1, so lambda = PULL, and the summary of one text is the text.
    expected = np.array([1.0, PULL, 0, 0, 0, 0, 0, 0]) / np.hypot(1.0, PULL)
    assert asked.encoding.vector == pytest.approx(expected, abs=1e-6)
    assert asked.token_weights.tolist() == [1.0, 1.0, PULL, PULL]
    assert asked.encoding.token_ids.tolist() == [0, 0, 1, 1]
    assert dict(asked.terms) == {
        "second": 1.0,
        **dict.fromkeys(("metal", "coats", "mirror", "telescope"), PULL),
    }
    assert asked.text == f"{FULL} {ELLIPTICAL}"


def test_older_texts_count_less_and_those_that_say_nothing_do_not_count() -> None:
    earlier = [(OTHER, axis(1)), (FULL, axis(2)), ("I do not know.", axis(3)), ("Why?", axis(4))]
    asked = ask(ELLIPTICAL, axis(0), earlier)
    vector = asked.encoding.vector
    # s = DECAY v_1 + (1 - DECAY) v_2, by the recursion, worked out by hand.
    assert vector[1] / vector[2] == pytest.approx(DECAY / (1.0 - DECAY), rel=1e-5)
    assert vector[3] == vector[4] == 0.0
    assert asked.terms["passport"] == pytest.approx(PULL * DECAY / (1.0 - DECAY))
    assert asked.terms["mirror"] == PULL
    assert asked.encoding.token_ids.tolist() == [0, 0, 1, 1, 2, 2]


def test_a_question_that_leaves_out_a_little_is_drawn_a_little() -> None:
    slightly, fully = (ask(text, axis(0), [(FULL, axis(1))]) for text in ("And Lamlash?", ELLIPTICAL))
    assert 0.0 < slightly.encoding.vector[1] < fully.encoding.vector[1]
    # It names one thing, two of the five words that are enough: lambda = PULL (1 - 2/5)^2.
    ratio = slightly.encoding.vector[1] / slightly.encoding.vector[0]
    assert ratio == pytest.approx(PULL * 0.36, rel=1e-5)


def test_vectors_alone_carry_the_theme_too() -> None:
    earlier = [(FULL, Encoding.of_vector([0.0, 1.0]))]
    asked = ask(ELLIPTICAL, Encoding.of_vector([1.0, 0.0]), earlier)
    assert asked.encoding.vector == pytest.approx(unit(np.array([1.0, PULL], np.float32)))
    assert asked.encoding.tokens.shape == (0, 2)
    assert asked.token_weights.shape == (0,)


def test_a_conversation_is_read_to_a_bound() -> None:
    texts = [f"{number} " + "x" * 5_000 for number in range(20)]
    assert [text.partition(" ")[0] for text in recent([*texts, " "])] == [str(n) for n in range(12, 20)]
    assert {len(text) for text in recent(texts)} == {MAX_CHARS}
    assert len(needed_history(ELLIPTICAL, texts)) == MAX_TEXTS
    asked = ask(ELLIPTICAL, axis(0), [(FULL, axis(1, 500))])
    assert len(asked.encoding.tokens) == len(asked.token_weights) == 2 + MAX_TOKENS


async def test_a_follow_up_keeps_the_chunks_of_its_conversation(
    pruner: Pruner, observatory: tuple[Document, ...], question: str
) -> None:
    async def kept(asked: str, *history: str) -> set[str]:
        query = PruneQuery(asked, observatory, history)
        report = await pruner.prune(query, PruneOptions(), count_words)
        return {verdict.document_id for verdict in report.verdicts if verdict.is_kept}

    whole = await kept(question)
    assert {"point", "reflector"} <= whole
    assert await kept("and when was that?", question, "I do not know.") >= {"point", "reflector"}
    assert not await kept("and when was that?") >= {"point", "reflector"}
    switched = await kept(question, "How do I cook leek soup with cream?", "Simmer the leeks in butter.")
    assert switched == whole
