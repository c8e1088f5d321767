"""The pull at a step: who gets which bias, and who never."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from worker.decode.controller import Decider, DecodeState
from worker.decode.errors import ControlError
from worker.decode.gravitate import MASKED_NATS, Bias, gravitate
from worker.decode.row import Row
from worker.decode.theme import EmbeddingSpace
from worker.decode.vocabulary import Vocabulary
from worker.engine.request import GenerationRequest
from worker.protocol import DecodeControls, DriftFeedback, GravityControls, GravityStage, ThemeVector

if TYPE_CHECKING:
    from tests.worker.decode.conftest import DecideAlone, MakeRequest


def pull(**gravity: Any) -> DecodeControls:
    return DecodeControls(gravity=GravityControls(**{"strength": 2.0, "plausible": 0.0, **gravity}))


@pytest.fixture(scope="module")
def bias_of(
    decider: Decider, vocabulary: Vocabulary, output_embedding: torch.Tensor, make_request: MakeRequest
) -> Any:
    """The bias of the next step for controls, after some emitted tokens, on given or flat logits."""
    row, space = Row(vocabulary.size), EmbeddingSpace(output_embedding, vocabulary)

    def bias(
        controls: DecodeControls,
        emitted: Sequence[int] = (),
        logits: NDArray[np.float32] | None = None,
        **more: Any,
    ) -> Bias:
        state = decider.open(make_request(controls=controls, **more))
        for id_ in emitted:
            state.advance(id_)
        row.load(np.zeros(vocabulary.size, np.float32) if logits is None else logits)
        return gravitate(row, state, 1.0, space)

    return bias


def test_boost_and_penalty_have_the_seeds_weights(bias_of: Any, vocabulary: Vocabulary) -> None:
    bias = bias_of(pull(strength=1.5, keywords=("algorithm",), penalize=("restaurant",)))
    assert bias.of(vocabulary.encode(" algorithm")[0]) == pytest.approx(0.2 * 1.5)
    assert bias.of(vocabulary.encode(" Algorithms")[0]) == pytest.approx(0.2 * 1.5)
    assert bias.of(vocabulary.encode(" restaurant")[0]) == pytest.approx(-1.5)
    assert bias.of(vocabulary.encode(" movie")[0]) == 0.0


def test_the_next_piece_is_boosted_only_right_after_the_first(bias_of: Any, vocabulary: Vocabulary) -> None:
    rest, aur, ant = vocabulary.encode("restaurant")
    controls = pull(keywords=("restaurant",))
    assert (bias_of(controls).of(rest), bias_of(controls).of(aur)) == (pytest.approx(0.4), 0.0)
    assert bias_of(controls, [rest]).of(aur) == pytest.approx(0.4)
    assert bias_of(controls, [rest]).of(ant) == 0.0
    assert bias_of(controls, [rest, aur]).of(ant) == pytest.approx(0.4)
    assert bias_of(controls, [rest, aur, ant]).of(ant) == 0.0


def test_a_keyword_does_not_suffer_for_being_the_beginning_of_a_penalised_word(
    bias_of: Any, vocabulary: Vocabulary
) -> None:
    rest, aur, _ = vocabulary.encode("restaurant")
    both = pull(keywords=("rest",), penalize=("restaurant",))
    assert bias_of(both).of(rest) == pytest.approx(0.4)
    assert bias_of(both, [rest]).of(aur) == pytest.approx(-2.0)
    assert bias_of(pull(penalize=("restaurant",))).of(rest) == pytest.approx(-2.0)


def test_a_mask_forbids_whole_words_and_the_end_of_longer_ones(bias_of: Any, vocabulary: Vocabulary) -> None:
    rest, aur, ant = vocabulary.encode("restaurant")
    controls = pull(penalize=("restaurant",), mode="mask", plausible=0.05)
    assert bias_of(controls).of(vocabulary.encode(" restaurant")[0]) == MASKED_NATS
    # "rest" begins other words, too.
    assert bias_of(controls).of(rest) == 0.0
    assert bias_of(controls, [rest]).of(aur) == 0.0
    assert bias_of(controls, [rest, aur]).of(ant) == MASKED_NATS


def test_a_masked_word_never_comes_even_where_it_is_the_only_likely_one(
    vocabulary: Vocabulary, make_request: MakeRequest, decide_alone: DecideAlone
) -> None:
    (word,) = vocabulary.encode(" restaurant")
    logits = np.zeros((20, vocabulary.size), np.float32)
    logits[:, word] = 30.0
    decisions = decide_alone(logits, make_request(controls=pull(penalize=("restaurant",), mode="mask")))
    assert all(decision.token_id != word for decision in decisions)
    assert decisions[0].record.entropy_nats == pytest.approx(0.0, abs=1e-4)
    assert decisions[0].record.entropy_after_nats == pytest.approx(np.log(vocabulary.size), abs=0.01)


def test_only_plausible_tokens_are_pulled(bias_of: Any, vocabulary: Vocabulary) -> None:
    (plausible,), (hopeless,) = vocabulary.encode(" algorithm"), vocabulary.encode(" Algorithms")
    logits = np.full(vocabulary.size, -10.0, np.float32)
    logits[[plausible, hopeless, 500]] = [np.log(0.051), np.log(0.049), 0.0]
    bias = bias_of(pull(keywords=("algorithm",), plausible=0.05), logits=logits)
    assert bias.of(plausible) > 0.0
    assert bias.of(hopeless) == 0.0


def test_no_bias_is_larger_than_allowed(bias_of: Any, vocabulary: Vocabulary) -> None:
    bias = bias_of(pull(strength=20.0, keywords=("algorithm",), penalize=("movie",), max_bias_nats=2.5))
    assert np.abs(bias.nats).max() == pytest.approx(2.5)
    assert bias.of(vocabulary.encode(" movie")[0]) == -2.5


def test_what_was_emitted_is_pulled_less(bias_of: Any, vocabulary: Vocabulary) -> None:
    (word,), (other,) = vocabulary.encode(" algorithm"), vocabulary.encode(" target")
    controls = pull(keywords=("algorithm", "target"), penalize=("movie",), repetition_brake=0.5)
    bias = bias_of(controls, [word, word, *vocabulary.encode(" movie")])
    assert bias.of(word) == pytest.approx(0.4 * 0.25)
    assert bias.of(other) == pytest.approx(0.4)
    assert bias.of(vocabulary.encode(" movie")[0]) == pytest.approx(-2.0)


def test_special_tokens_and_whitespace_are_never_pulled(bias_of: Any, vocabulary: Vocabulary) -> None:
    words = ("<|im_end|>", "the", "and", "🙂", "target\n", "lighthouse")
    for controls in (
        pull(keywords=words, vector=ThemeVector(text="<|im_end|> the lighthouse, and\n\n 🙂", threshold=0.0)),
        pull(penalize=words, mode="mask"),
    ):
        for emitted in ([], vocabulary.encode(" target")):
            bias = bias_of(controls, emitted)
            touched = {*bias.ids.tolist(), *bias.masked.tolist()}
            assert touched
            assert not touched & vocabulary.special_ids
            assert all(vocabulary.is_steerable[id_] for id_ in touched)


def test_the_vector_pulls_what_is_like_the_theme(bias_of: Any, vocabulary: Vocabulary) -> None:
    text = "The lighthouse keeper lit the lamp. Ships were guided into the harbour."
    bias = bias_of(pull(strength=1.0, vector=ThemeVector(text=text, weight=2.0, threshold=0.25)))
    assert bias.nats.min() >= 2.0 * 0.25
    assert bias.of(vocabulary.encode(" lighthouse")[0]) > bias.of(vocabulary.encode(" harbor")[0]) > 0.0
    assert bias.of(vocabulary.encode(" restaurant")[0]) == 0.0


def test_without_a_text_the_prompt_is_the_theme(
    bias_of: Any, vocabulary: Vocabulary, make_request: MakeRequest
) -> None:
    prompt = tuple(vocabulary.encode("Plants turn sunlight into energy by photosynthesis."))
    bias = bias_of(pull(vector=ThemeVector()), fields={"prompt_ids": prompt})
    assert bias.of(vocabulary.encode(" sunlight")[0]) > 0.0
    assert bias.of(vocabulary.encode(" restaurant")[0]) == 0.0


def test_a_theme_without_words_pulls_nothing(bias_of: Any) -> None:
    assert not len(bias_of(pull(vector=ThemeVector(text="and the , ."))).ids)


def test_the_farther_the_text_drifts_the_stronger_the_pull(bias_of: Any, vocabulary: Vocabulary) -> None:
    text = "The lighthouse keeper lit the lamp. Ships were guided into the harbour."
    controls = pull(
        keywords=("harbour",),
        vector=ThemeVector(text=text, weight=0.0),
        drift=DriftFeedback(gain=1.0, target=0.5),
    )
    (word,) = vocabulary.encode(" harbour")
    on_theme = bias_of(controls, vocabulary.encode(" the lighthouse lamp guided the ships")).of(word)
    off_theme = bias_of(controls, vocabulary.encode(" a restaurant with pasta and movies")).of(word)
    unmoved = bias_of(controls).of(word)
    assert on_theme < unmoved < off_theme
    assert unmoved == pytest.approx(0.4)
    assert off_theme <= 0.2 * 3.0 + 1e-9


def test_a_stage_by_share_begins_at_that_share_of_max_tokens(bias_of: Any, vocabulary: Vocabulary) -> None:
    stages = (GravityStage(from_step=0, factor=0.0), GravityStage(from_share=0.5, factor=0.25))
    controls = pull(strength=2.0, keywords=("target",), boost_weight=1.0, stages=stages, decay="none")
    (word,) = vocabulary.encode(" target")
    assert bias_of(controls, [500] * 9, max_tokens=20).of(word) == 0.0
    assert bias_of(controls, [500] * 10, max_tokens=20).of(word) == pytest.approx(0.5)


def test_a_strength_of_zero_is_no_gravity_at_all(
    decider: Decider,
    make_request: MakeRequest,
    recorded_logits: NDArray[np.float32],
    decide_alone: DecideAlone,
) -> None:
    off = decide_alone(
        recorded_logits, make_request(controls=pull(strength=0.0, penalize=("a",), mode="mask"))
    )
    assert off == decide_alone(recorded_logits, make_request())


def test_a_model_without_an_output_embedding_refuses_the_vector(
    vocabulary: Vocabulary, make_request: MakeRequest
) -> None:
    blind = Decider(vocabulary, None)
    request: GenerationRequest = make_request(controls=pull(vector=ThemeVector(text="lighthouse")))
    with pytest.raises(ControlError, match="output embedding") as refused:
        blind.open(request)
    assert refused.value.param == "vllm_xargs"
    assert isinstance(blind.open(make_request(controls=pull(keywords=("lighthouse",)))), DecodeState)
