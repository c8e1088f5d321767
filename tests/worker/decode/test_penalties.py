"""The client's own changes to the logits, by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pytest
from numpy.typing import NDArray

from worker.decode.controller import Decider
from worker.decode.penalties import penalise
from worker.decode.row import Row
from worker.decode.vocabulary import Vocabulary

if TYPE_CHECKING:
    from tests.worker.decode.conftest import MakeRequest


class Penalised(Protocol):
    def __call__(self, emitted: list[int], **sampling: Any) -> NDArray[np.float32]: ...


@pytest.fixture
def penalised(decider: Decider, vocabulary: Vocabulary, make_request: MakeRequest) -> Penalised:
    """The logits after penalties, for sampling parameters and emitted tokens; the prompt is (10, 11, 11)."""

    def logits(emitted: list[int], **sampling: Any) -> NDArray[np.float32]:
        state = decider.open(make_request(fields={"prompt_ids": (10, 11, 11)}, **sampling))
        for id_ in emitted:
            state.advance(id_)
        row = Row(vocabulary.size)
        before = np.ones(vocabulary.size, np.float32)
        before[[11, 21]] = -2.0
        row.load(before)
        penalise(row, state)
        return row.logits.copy()

    return logits


def test_the_repetition_penalty_divides_what_is_positive_and_multiplies_what_is_not(
    penalised: Penalised,
) -> None:
    logits = penalised([20, 21, 20], repetition_penalty=2.0)
    assert logits[[10, 11, 20, 21, 30]].tolist() == [0.5, -4.0, 0.5, -4.0, 1.0]


def test_the_repetition_penalty_does_not_compound(penalised: Penalised) -> None:
    once, often = (penalised([20] * times, repetition_penalty=1.3) for times in (1, 50))
    assert once.tolist() == often.tolist()


def test_presence_counts_once_and_frequency_every_time_and_only_in_the_text(penalised: Penalised) -> None:
    logits = penalised([20, 20, 20, 21], presence_penalty=0.5, frequency_penalty=0.25)
    assert logits[[10, 11, 20, 21, 30]].tolist() == [1.0, -2.0, 1.0 - 0.5 - 0.75, -2.0 - 0.5 - 0.25, 1.0]


def test_the_logit_bias_comes_after_the_penalties(penalised: Penalised) -> None:
    logits = penalised([20], repetition_penalty=2.0, presence_penalty=1.0, logit_bias={20: 3.0, 30: -100.0})
    assert logits[[20, 30]].tolist() == [1.0 / 2 - 1.0 + 3.0, -99.0]


def test_nothing_asked_for_is_nothing_done(penalised: Penalised) -> None:
    logits = penalised([20, 21])
    assert np.delete(logits, [11, 21]).tolist() == [1.0] * (len(logits) - 2)
    assert logits[[11, 21]].tolist() == [-2.0, -2.0]
