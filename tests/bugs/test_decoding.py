"""Public bug reports about sampling, as inputs to the decider. What is right is in docs/decoding.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from worker.decode.controller import Decider, Decision, DecodeState, RowFailure, StepContext
from worker.decode.errors import ControlError
from worker.decode.vocabulary import Vocabulary
from worker.engine.request import GenerationRequest, SamplingParams
from worker.protocol import AdaptiveControls, DecodeControls, GravityControls, StepRecord, TemperatureControls

Logits = NDArray[np.float32]

CONTROLS = DecodeControls(
    adaptive=AdaptiveControls(k_min=2, k_max=30, s_low=0.1, s_high=0.9, smoothing=0.5, spike_window=4),
    gravity=GravityControls(
        strength=3.0, keywords=("lighthouse",), penalize=("restaurant",), plausible=0.0, decay_after_steps=4
    ),
    temperature=TemperatureControls(mode="feedback", target_nats=2.0),
)


@pytest.fixture(scope="module")
def vocabulary(tokenizer: Any) -> Vocabulary:
    return Vocabulary.from_tokenizer(tokenizer, len(tokenizer))


@pytest.fixture(scope="module")
def decider(vocabulary: Vocabulary) -> Decider:
    return Decider(vocabulary)


@pytest.fixture(scope="module")
def rows(vocabulary: Vocabulary) -> Logits:
    """Eight steps of logits with a head of likely tokens over a long tail, as a language model gives them."""
    generator = np.random.default_rng(0)
    tail = generator.normal(0.0, 2.0, (8, vocabulary.size))
    tail[:, generator.permutation(vocabulary.size)[:30]] += generator.normal(9.0, 2.0, (8, 30))
    logits: Logits = tail.astype(np.float32)
    return logits


def request(*, controls: DecodeControls | None = None, choice: int = 0, **sampling: Any) -> GenerationRequest:
    return GenerationRequest(
        id="bug",
        prompt_ids=(10, 11, 12),
        sampling=SamplingParams(**{"max_tokens": 50, **sampling}),
        controls=controls or DecodeControls(),
        choice=choice,
    )


def run(decider: Decider, rows: Logits, batch: Sequence[GenerationRequest]) -> list[list[Decision]]:
    """Decide every row for every request of a batch, all requests seeing the same logits."""
    states = [decider.open(member) for member in batch]
    decided: list[list[Decision]] = [[] for _ in batch]
    for step, row in enumerate(rows):
        logits = torch.tensor(np.tile(row, (len(batch), 1)))
        for decisions, outcome in zip(
            decided, decider.decide(logits, states, StepContext(step, len(batch))), strict=True
        ):
            assert isinstance(outcome, Decision), outcome
            decisions.append(outcome)
    return decided


def tokens(decisions: Sequence[Decision]) -> list[int]:
    return [decision.token_id for decision in decisions]


def columns(record: StepRecord) -> tuple[float, ...]:
    """All of a record but what says which batch it was in."""
    names = record.__dataclass_fields__.keys() - {"engine_step", "batch_size"}
    return tuple(getattr(record, name) for name in sorted(names))


def test_vllm_51226_a_seed_holds_beside_a_request_with_another(decider: Decider, rows: Logits) -> None:
    seeded = request(seed=1234, temperature=1.2)
    (alone,) = run(decider, rows, [seeded])
    for other in (request(seed=0), request(seed=987, temperature=0.0), request(seed=5, controls=CONTROLS)):
        assert tokens(run(decider, rows, [other, seeded])[1]) == tokens(alone)
        assert tokens(run(decider, rows, [seeded, other, other])[0]) == tokens(alone)


@pytest.mark.parametrize("top_k", [1, 3, 40, 1000])
def test_vllm_pr_50979_tied_logits_leave_the_same_survivors_in_any_batch(
    decider: Decider, vocabulary: Vocabulary, top_k: int
) -> None:
    tied = np.zeros((6, vocabulary.size), np.float32)
    tied[:, 100:120] = 5.0
    tied[:, 30_000:30_300] = 5.0
    members = [request(seed=seed, top_k=top_k) for seed in range(8)]
    together = run(decider, tied, members)
    survivors = [*range(100, 120), *range(30_000, 30_300)]
    survivors += [id_ for id_ in range(vocabulary.size) if id_ not in set(survivors)]
    for member, decisions in zip(members, together, strict=True):
        assert tokens(decisions) == tokens(run(decider, tied, [member])[0])
        assert set(tokens(decisions)) <= set(survivors[:top_k])
        assert {decision.record.k for decision in decisions} == {top_k}


def test_tpu_inference_pr_3590_top_k_of_one_is_greedy(decider: Decider, rows: Logits) -> None:
    for seed in range(5):
        (decisions,) = run(decider, rows, [request(seed=seed, top_k=1, temperature=1.7)])
        assert tokens(decisions) == rows.argmax(axis=1).tolist()
        assert all(decision.record.entropy_after_nats == 0.0 for decision in decisions)


@pytest.mark.parametrize("temperature", [1e-3, 1e-4, 1e-5, 1e-6, 1e-9, 1e-300, 5e-324])
def test_vllm_3063_a_tiny_temperature_is_greedy_and_never_nan(
    decider: Decider, rows: Logits, temperature: float
) -> None:
    members = [request(temperature=temperature, seed=seed, top_k=k) for seed in range(3) for k in (0, 50)]
    for decisions in run(decider, rows, members):
        assert tokens(decisions) == rows.argmax(axis=1).tolist()
        assert all(math.isfinite(value) for d in decisions for value in columns(d.record))


def test_vllm_pr_14234_any_k_works_greedy_and_sampled_in_one_batch(
    decider: Decider, vocabulary: Vocabulary, rows: Logits
) -> None:
    size = vocabulary.size
    ks = [size + 1000, size, size - 1, 0, 1]
    greedy = [request(temperature=0.0, top_k=k) for k in ks]
    sampled = [request(seed=3, top_k=k) for k in ks]
    together = run(decider, rows, [*greedy, *sampled])
    assert [tokens(decisions) for decisions in together[: len(ks)]] == [rows.argmax(axis=1).tolist()] * len(
        ks
    )
    assert tokens(together[5]) == tokens(together[6]) == tokens(together[8])
    assert [decisions[0].record.k for decisions in together[5:]] == [size, size, size - 1, size, 1]
    with pytest.raises(ControlError) as refused:
        decider.open(request(top_k=-5))
    assert (refused.value.status, refused.value.param) == (400, "top_k")


def test_sglang_40076_too_many_top_logprobs_are_refused_and_the_others_go_on(
    decider: Decider, rows: Logits
) -> None:
    others = [decider.open(request(seed=seed)) for seed in range(2)]
    with pytest.raises(ControlError) as refused:
        decider.open(request(num_top_logprobs=1_000_000))
    assert (refused.value.status, refused.value.param) == (400, "top_logprobs")
    outcomes = decider.decide(torch.tensor(rows[:2]), others, StepContext(0, 2))
    assert all(isinstance(outcome, Decision) for outcome in outcomes)


def test_mlx_lm_1472_a_plain_request_among_requests_with_controls(decider: Decider, rows: Logits) -> None:
    plain, steered = request(seed=8), request(seed=8, controls=CONTROLS)
    alone = [run(decider, rows, [member])[0] for member in (plain, steered)]
    assert tokens(alone[0]) != tokens(alone[1])
    # The plain one joins late, when the states of the others have moved on.
    states = [decider.open(steered), decider.open(steered)]
    late: DecodeState | None = None
    seen: list[Decision] = []
    for step in range(len(rows)):
        late = decider.open(plain) if step == 3 else late
        members = [states[0], *([late] if late else []), states[1]]
        shown = [step, *([step - 3] if late else []), step]
        outcomes = decider.decide(torch.tensor(rows[shown]), members, StepContext(step, len(members)))
        for outcome in (outcomes[0], outcomes[-1]):
            assert isinstance(outcome, Decision)
            assert columns(outcome.record) == columns(alone[1][step].record)
        if late:
            assert isinstance(outcomes[1], Decision)
            seen.append(outcomes[1])
    assert [columns(d.record) for d in seen] == [columns(d.record) for d in alone[0][: len(seen)]]


def test_sglang_26330_vllm_42744_controls_apply_to_every_position_that_is_verified_at_once(
    decider: Decider, rows: Logits
) -> None:
    """A draft is verified by rolling a copy of the state over its positions; the controls act on each."""
    member = request(seed=2, controls=CONTROLS)
    (one_by_one,) = run(decider, rows, [member])
    assert len({d.record.k for d in one_by_one}) > 2
    assert len({d.record.temperature for d in one_by_one}) > 2
    state = decider.open(member)
    verified: list[Decision] = []
    for start, num_accepted in ((0, 2), (2, 1), (3, 3), (6, 2)):
        draft = state.copy()
        for step in range(start, min(start + 4, len(rows))):  # past what will be accepted
            outcome = decider.decide(torch.tensor(rows[step : step + 1]), [draft], StepContext(step, 1))[0]
            assert isinstance(outcome, Decision)
            if step < start + num_accepted:
                verified.append(outcome)
        for step in range(start, start + num_accepted):
            decider.decide(torch.tensor(rows[step : step + 1]), [state], StepContext(step, 1))
    assert [columns(d.record) for d in verified] == [columns(d.record) for d in one_by_one]


def test_vllm_9453_logprobs_are_of_the_models_own_distribution(decider: Decider, rows: Logits) -> None:
    own = torch.log_softmax(torch.tensor(rows).double(), dim=-1)
    members = [
        request(num_top_logprobs=5),
        request(num_top_logprobs=5, temperature=0.3, top_p=0.5, top_k=4),
        request(num_top_logprobs=5, temperature=0.0, logit_bias={42: 100.0}),
        request(num_top_logprobs=5, repetition_penalty=1.5, controls=CONTROLS),
    ]
    for decisions in run(decider, rows, members):
        for row, decision in zip(own, decisions, strict=True):
            assert decision.record.logprob == pytest.approx(float(row[decision.token_id]), abs=1e-4)
            values, ids = row.topk(5)
            assert [id_ for id_, _ in decision.top_logprobs] == ids.tolist()
            assert [value for _, value in decision.top_logprobs] == pytest.approx(values.tolist(), abs=1e-4)


def test_llama_cpp_4091_temperature_comes_before_top_p(decider: Decider, vocabulary: Vocabulary) -> None:
    # softmax([3, 2, 1] / 0.5) = (.867, .117, .016): the first alone fills 0.8 of the mass. With top-p first,
    # softmax([3, 2, 1]) = (.665, .245, .090) would have kept two.
    z = np.full((200, vocabulary.size), -1000.0, np.float32)
    z[:, 70:73] = [3.0, 2.0, 1.0]
    cold, warm = run(decider, z, [request(top_p=0.8, temperature=0.5), request(top_p=0.8, temperature=1.0)])
    assert set(tokens(cold)) == {70}
    assert set(tokens(warm)) == {70, 71}
    share = tokens(warm).count(70) / len(warm)
    assert share == pytest.approx(math.exp(3) / (math.exp(3) + math.exp(2)), abs=0.12)


@pytest.mark.parametrize(
    ("poison", "reason"),
    [((slice(None), -math.inf), "no token"), ((123, math.nan), "NaN"), ((123, math.inf), "infinity")],
)
def test_transformers_pr_15241_a_poisoned_row_ends_its_own_request_only(
    decider: Decider, rows: Logits, poison: tuple[Any, float], reason: str
) -> None:
    members = [request(seed=seed, controls=CONTROLS if seed == 2 else None) for seed in range(3)]
    expected = [run(decider, rows[:2], [member])[0] for member in members]
    states = [decider.open(member) for member in members]
    first = np.tile(rows[0], (3, 1))
    first[1, poison[0]] = poison[1]
    outcomes = decider.decide(torch.tensor(first), states, StepContext(0, 3))
    failed = outcomes[1]
    assert isinstance(failed, RowFailure)
    assert reason in failed.message
    second = decider.decide(torch.tensor(np.tile(rows[1], (2, 1))), [states[0], states[2]], StepContext(1, 2))
    for neighbour, steps in ((0, (outcomes[0], second[0])), (2, (outcomes[2], second[1]))):
        for outcome, alone in zip(steps, expected[neighbour], strict=True):
            assert isinstance(outcome, Decision)
            assert columns(outcome.record) == columns(alone.record)


def test_private_mind_255_a_repetition_penalty_does_not_compound_over_a_long_run(
    decider: Decider, vocabulary: Vocabulary
) -> None:
    # After its first time, token 70 (5.0 / 1.25 = 4.0) stays ahead of the rest (3.9) for ever.
    z = np.full((400, vocabulary.size), -20.0, np.float32)
    z[:, 70] = 5.0
    z[:, 200:230] = 3.9
    member = request(temperature=0.0, repetition_penalty=1.25)
    (decisions,) = run(decider, z, [member])
    assert set(tokens(decisions)) == {70}
    (sampled,) = run(decider, z[:50], [request(seed=1, repetition_penalty=1.25, top_k=1)])
    assert len({d.record.entropy_after_nats for d in sampled}) == 1


def test_verl_pr_6857_four_choices_of_one_seed_differ_and_can_be_repeated(
    decider: Decider, rows: Logits
) -> None:
    choices = [request(seed=77, choice=choice) for choice in range(4)]
    first, again = (run(decider, rows, choices) for _ in range(2))
    texts = [tuple(tokens(decisions)) for decisions in first]
    assert len(set(texts)) == 4
    assert texts == [tuple(tokens(decisions)) for decisions in again]
    assert texts[2] == tuple(tokens(run(decider, rows, [choices[2]])[0]))
