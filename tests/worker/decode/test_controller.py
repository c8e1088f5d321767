"""States and batches: a request is decided the same alone and in company, and its state is its own."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from worker.decode.controller import Decider, Decision, DecodeState, RowFailure, StepContext
from worker.decode.errors import ControlError
from worker.decode.vocabulary import Vocabulary
from worker.protocol import (
    AdaptiveControls,
    DecodeControls,
    DriftFeedback,
    GravityControls,
    TemperatureControls,
    ThemeVector,
)

if TYPE_CHECKING:
    from tests.worker.decode.conftest import DecideAlone, MakeRequest

Logits = NDArray[np.float32]

EVERYTHING = DecodeControls(
    adaptive=AdaptiveControls(
        k_min=4, k_max=64, s_low=0.03, s_high=0.35, curve="geometric", smoothing=0.6, spike_window=8
    ),
    gravity=GravityControls(
        strength=2.0,
        keywords=("target", "search", "lamp"),
        penalize=("array",),
        vector=ThemeVector(text="The lighthouse keeper lit the lamp."),
        decay_after_steps=20,
        drift=DriftFeedback(),
        repetition_brake=0.7,
    ),
    temperature=TemperatureControls(mode="feedback", target_nats=1.5),
    bucket=2,
)
DRIFTING = DecodeControls(
    gravity=GravityControls(
        strength=3.0,
        keywords=("target", "search", "lamp", "restaurant"),
        boost_weight=1.0,
        plausible=0.0,
        vector=ThemeVector(text="The lighthouse keeper lit the lamp.", weight=3.0, threshold=0.1),
        drift=DriftFeedback(gain=1.0, window=8, max_strength=20.0),
    )
)
REQUESTS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.0},
    {"temperature": 0.7, "top_k": 20, "seed": 5},
    {"seed": 7, "controls": EVERYTHING},
    {"top_p": 0.9, "min_p": 0.02, "num_top_logprobs": 5},
    {"repetition_penalty": 1.2, "logit_bias": {11: -100.0}, "frequency_penalty": 0.3},
    {"seed": 7, "controls": DecodeControls(adaptive=AdaptiveControls())},
    {"temperature": 1e-5},
]


def without_batch(decision: Decision) -> tuple[Any, ...]:
    record = decision.record
    names = record.__dataclass_fields__.keys() - {"engine_step", "batch_size"}
    return decision.token_id, decision.top_logprobs, *(getattr(record, name) for name in sorted(names))


def test_a_row_does_not_depend_on_its_batch(
    decider: Decider, make_request: MakeRequest, recorded_logits: Logits, decide_alone: DecideAlone
) -> None:
    """Requests of all kinds join, leave and change places between the steps."""
    windows = [recorded_logits[start : start + 12] for start in range(0, 96, 12)]
    states: list[DecodeState] = [decider.open(make_request(**fields)) for fields in REQUESTS]
    together: list[list[Decision]] = [[] for _ in REQUESTS]
    for step in range(14):
        present = [row for row in range(len(REQUESTS)) if row % 3 <= step < 12 + row % 3]
        present = present[step % len(present) :] + present[: step % len(present)]
        rows = np.stack([windows[row][step - row % 3] for row in present])
        outcomes = decider.decide(
            torch.tensor(rows), [states[row] for row in present], StepContext(step, len(present))
        )
        for row, outcome in zip(present, outcomes, strict=True):
            assert isinstance(outcome, Decision)
            assert outcome.record.batch_size == len(present)
            assert outcome.record.engine_step == step
            together[row].append(outcome)
    for fields, window, decisions in zip(REQUESTS, windows, together, strict=True):
        alone = decide_alone(window, make_request(**fields))
        assert [without_batch(d) for d in decisions] == [without_batch(d) for d in alone]


@pytest.mark.parametrize("controls", [EVERYTHING, DRIFTING], ids=["everything", "drifting"])
def test_a_copy_rolls_forward_on_its_own(
    decider: Decider,
    make_request: MakeRequest,
    recorded_logits: Logits,
    decide_alone: DecideAlone,
    controls: DecodeControls,
) -> None:
    request = make_request(seed=3, controls=controls, repetition_penalty=1.1)
    state = decider.open(request)

    def decide(at: DecodeState, index: int) -> Any:
        return decider.decide(torch.tensor(recorded_logits[index : index + 1]), [at], StepContext(index, 1))[
            0
        ]

    accepted = [decide(state, index) for index in range(30)]
    draft = state.copy()
    for index in range(60, 90):
        decide(draft, index)
    accepted += [decide(state, index) for index in range(30, 60)]
    assert accepted == decide_alone(recorded_logits[:60], request)
    assert draft.position == 60


def test_deciding_twice_gives_the_same(
    make_request: MakeRequest, recorded_logits: Logits, decide_alone: DecideAlone
) -> None:
    request = make_request(seed=1, controls=EVERYTHING)
    assert decide_alone(recorded_logits, request) == decide_alone(recorded_logits, request)


def test_another_seed_draws_other_tokens(
    make_request: MakeRequest, recorded_logits: Logits, decide_alone: DecideAlone
) -> None:
    one, other = (decide_alone(recorded_logits, make_request(seed=seed)) for seed in (1, 2))
    assert [d.token_id for d in one] != [d.token_id for d in other]
    assert [d.record.entropy_nats for d in one] == [d.record.entropy_nats for d in other]


def test_a_replay_emits_the_recorded_tokens_under_the_same_controls(
    make_request: MakeRequest, recorded_logits: Logits, decide_alone: DecideAlone
) -> None:
    recorded = decide_alone(recorded_logits, make_request(seed=4, controls=EVERYTHING))
    tokens = tuple(decision.token_id for decision in recorded)
    replayed = decide_alone(
        recorded_logits, make_request(seed=99, controls=EVERYTHING, fields={"forced_ids": tokens})
    )
    assert replayed == recorded


def test_after_the_forced_tokens_sampling_goes_on(
    make_request: MakeRequest, recorded_logits: Logits, decide_alone: DecideAlone
) -> None:
    decisions = decide_alone(
        recorded_logits[:5], make_request(temperature=0.0, fields={"forced_ids": (7, 8)})
    )
    greedy = [int(row.argmax()) for row in recorded_logits[:5]]
    assert [d.token_id for d in decisions] == [7, 8, *greedy[2:]]


def test_a_forced_token_that_was_impossible_has_a_finite_logprob(
    vocabulary: Vocabulary, make_request: MakeRequest, decide_alone: DecideAlone
) -> None:
    logits = np.zeros((1, vocabulary.size), np.float32)
    logits[0, 7] = -np.inf
    (decision,) = decide_alone(logits, make_request(fields={"forced_ids": (7,)}))
    assert decision.record.logprob == -9999.0


def test_logprobs_are_the_models_own(
    make_request: MakeRequest, recorded_logits: Logits, decide_alone: DecideAlone
) -> None:
    request = make_request(
        temperature=0.5, top_k=3, logit_bias={100: 50.0}, num_top_logprobs=20, controls=EVERYTHING
    )
    own = torch.log_softmax(torch.tensor(recorded_logits).double(), -1)
    for row, decision in zip(own, decide_alone(recorded_logits, request), strict=True):
        assert decision.record.logprob == pytest.approx(float(row[decision.token_id]), abs=1e-4)
        values, ids = row.topk(20)
        assert [id_ for id_, _ in decision.top_logprobs] == ids.tolist()
        assert [value for _, value in decision.top_logprobs] == pytest.approx(values.tolist(), abs=1e-4)


def test_the_entropy_of_the_draw_is_that_of_the_penalised_logits(
    make_request: MakeRequest, recorded_logits: Logits, decide_alone: DecideAlone
) -> None:
    best = [int(id_) for id_ in recorded_logits[:8].argmax(axis=1)]
    request = make_request(
        repetition_penalty=1.4,
        presence_penalty=0.5,
        logit_bias={best[0]: -3.0},
        fields={"prompt_ids": tuple(best[:4]), "forced_ids": tuple(best)},
    )
    for step, decision in enumerate(decide_alone(recorded_logits[:8], request)):
        z = recorded_logits[step].astype(np.float64)
        seen = list({*best[:4], *best[:step]})
        z[seen] = np.where(z[seen] > 0, z[seen] / 1.4, z[seen] * 1.4)
        z[list(set(best[:step]))] -= 0.5
        z[best[0]] -= 3.0
        log_p = z - z.max() - np.log(np.exp(z - z.max()).sum())
        entropy = -(np.exp(log_p) * log_p).sum()
        assert decision.record.entropy_after_nats == pytest.approx(entropy, abs=1e-4)


def test_the_record_says_what_was_in_force(
    make_request: MakeRequest, recorded_logits: Logits, vocabulary: Vocabulary, decide_alone: DecideAlone
) -> None:
    plain = decide_alone(recorded_logits[:1], make_request(temperature=0.7))[0].record
    assert (plain.k, plain.p, plain.temperature, plain.bucket) == (vocabulary.size, 1.0, 0.7, -1)
    assert plain.entropy_after_nats == pytest.approx(plain.entropy_nats)
    greedy = decide_alone(recorded_logits[:1], make_request(temperature=0.0, top_k=40, top_p=0.5))[0].record
    assert (greedy.k, greedy.p, greedy.temperature) == (40, 0.5, 0.0)
    assert greedy.entropy_after_nats == 0.0
    assert greedy.entropy_nats > 0.0
    steered = decide_alone(recorded_logits[:1], make_request(controls=EVERYTHING))[0].record
    assert steered.bucket == 2


def test_greedy_stays_greedy_under_adaptive_and_temperature_controls(
    make_request: MakeRequest, recorded_logits: Logits, decide_alone: DecideAlone
) -> None:
    controls = DecodeControls(adaptive=EVERYTHING.adaptive, temperature=EVERYTHING.temperature)
    decisions = decide_alone(recorded_logits, make_request(temperature=0.0, controls=controls))
    assert [d.token_id for d in decisions] == recorded_logits.argmax(axis=1).tolist()
    assert {d.record.temperature for d in decisions} == {0.0}


def test_a_failed_row_says_why_and_leaves_the_others_alone(
    decider: Decider, make_request: MakeRequest, recorded_logits: Logits, decide_alone: DecideAlone
) -> None:
    rows = recorded_logits[:4].copy()
    rows[0], rows[2, 100], rows[3, 5] = -np.inf, np.nan, np.inf
    states = [decider.open(make_request(seed=seed)) for seed in range(4)]
    outcomes = decider.decide(torch.tensor(rows), states, StepContext(0, 4))
    assert [type(outcome) for outcome in outcomes] == [RowFailure, Decision, RowFailure, RowFailure]
    reasons = [outcome.message for outcome in outcomes if isinstance(outcome, RowFailure)]
    assert [
        word in reason for word, reason in zip(("no token", "NaN", "infinity"), reasons, strict=True)
    ] == [True] * 3
    alone = decide_alone(rows[1:2], make_request(seed=1))[0]
    survivor = outcomes[1]
    assert isinstance(survivor, Decision)
    assert without_batch(survivor) == without_batch(alone)


def test_float16_logits_are_taken(
    decider: Decider, make_request: MakeRequest, recorded_logits: Logits
) -> None:
    half = torch.tensor(recorded_logits[:1]).half()
    outcome = decider.decide(half, [decider.open(make_request(temperature=0.0))], StepContext(0, 1))[0]
    assert isinstance(outcome, Decision)
    assert outcome.token_id == int(half.float().argmax())


def test_the_logits_stay_as_they_are(
    decider: Decider, make_request: MakeRequest, recorded_logits: Logits
) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        logits = torch.tensor(recorded_logits[:2]).to(dtype)
        before = logits.clone()
        request = make_request(controls=EVERYTHING, logit_bias={5: 9.0})
        decider.decide(logits, [decider.open(request) for _ in range(2)], StepContext(0, 2))
        assert torch.equal(logits, before)


def bad_requests() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "temperature", {"temperature": -0.1}
    yield "temperature", {"temperature": math.nan}
    yield "temperature", {"temperature": math.inf}
    yield "top_k", {"top_k": -2}
    yield "top_p", {"top_p": 0.0}
    yield "top_p", {"top_p": 1.1}
    yield "min_p", {"min_p": 1.5}
    yield "repetition_penalty", {"repetition_penalty": 0.0}
    yield "presence_penalty", {"presence_penalty": 2.1}
    yield "frequency_penalty", {"frequency_penalty": -2.1}
    yield "logit_bias", {"logit_bias": {49_152: 1.0}}
    yield "logit_bias", {"logit_bias": {-1: 1.0}}
    yield "logit_bias", {"logit_bias": {5: 101.0}}
    yield "logit_bias", {"logit_bias": {5: math.nan}}
    yield "top_logprobs", {"num_top_logprobs": 1_000_000}
    yield "top_logprobs", {"num_top_logprobs": -1}
    yield "tokens", {"fields": {"forced_ids": (5, 49_152)}}
    yield "prompt", {"fields": {"prompt_ids": (5, -1)}}


@pytest.mark.parametrize(("param", "request_fields"), bad_requests(), ids=str)
def test_what_cannot_be_decoded_is_the_clients_error_and_names_the_field(
    decider: Decider, make_request: MakeRequest, param: str, request_fields: dict[str, Any]
) -> None:
    with pytest.raises(ControlError) as refused:
        decider.open(make_request(**request_fields))
    assert refused.value.param == param
    assert refused.value.status == 400
