"""The order of all documents by what was weighed."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from gateway.context.decide import PruneQuery, Weighed
from gateway.context.embed import EncoderSettings
from gateway.context.judge import Judgement, Sorting
from gateway.context.pruner import Pruner
from gateway.context.rank import Ranked, ranking
from gateway.context.report import Document
from gateway.errors import EncoderError
from tests.passages import FOUND, QUESTION, WANTED

DOCUMENTS = tuple(Document(title, text, title) for title, text in FOUND)


def weighed(sorting: Sorting, *probabilities: float) -> Weighed:
    judgement = cast(Judgement, SimpleNamespace(probability=np.array(probabilities)))
    return Weighed(sorting, judgement if probabilities else None)


def test_the_best_is_first_and_equals_stay_as_sent() -> None:
    sorting = Sorting(frozenset(), {}, frozenset(), (0, 1, 2, 3))
    ranked = ranking(4, weighed(sorting, 0.1, 0.7, 0.1, 0.9))
    assert [each.index for each in ranked] == [3, 1, 0, 2]
    assert [each.score for each in ranked] == [0.9, 0.7, 0.1, 0.1]


def test_copies_empty_and_unreadable_ones_have_their_places() -> None:
    sorting = Sorting(empty=frozenset({0}), copies={3: 1, 5: 4}, unjudged=frozenset({4}), judged=(1, 2))
    assert ranking(6, weighed(sorting, 0.8, 0.0)) == (
        Ranked(1, 0.8, True),
        Ranked(3, 0.8, True),
        Ranked(4, 0.5, False),
        Ranked(5, 0.5, False),
        Ranked(2, 0.0, True),
        Ranked(0, 0.0, True),
    )


def test_where_nothing_can_be_judged_all_are_equal() -> None:
    sorting = Sorting(frozenset(), {}, frozenset({0, 1}), ())
    assert ranking(2, weighed(sorting)) == (Ranked(0, 0.5, False), Ranked(1, 0.5, False))


async def test_a_real_encoder_puts_the_answers_first(pruner: Pruner) -> None:
    ranked = await pruner.rank(PruneQuery(QUESTION, DOCUMENTS))
    assert {each.index for each in ranked[:2]} == set(WANTED)
    assert all(each.is_judged for each in ranked)


async def test_without_an_encoder_there_is_no_order(tmp_path: Path) -> None:
    broken = Pruner.open(EncoderSettings(model=str(tmp_path)))
    try:
        with pytest.raises(EncoderError):
            await broken.rank(PruneQuery(QUESTION, DOCUMENTS))
    finally:
        broken.close()
