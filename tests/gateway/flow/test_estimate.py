"""A turn's estimated figures, against linear programming, every corner of the bounds, and plain numpy."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog  # type: ignore[import-untyped]

from gateway.flow.estimate import BATCH_STEPS, Asked, ChoiceEstimate, TurnEstimate
from gateway.flow.logprobs import SILENT
from worker.protocol import NO_TOKEN, StepRecord, pack_steps, unpack_steps
from worker.thermo.entropic_time import entropic_time, envelope, net_drop

VOCABULARY_SIZE = 1_000


@dataclass
class Sink:
    """Keeps what it is given."""

    batches: list[tuple[str, int, int, list[StepRecord]]] = field(default_factory=list)
    ends: list[tuple[str, int, int, str]] = field(default_factory=list)

    def steps(self, turn_id: str, choice: int, first_step: int, records: list[StepRecord]) -> None:
        self.batches.append((turn_id, choice, first_step, records))

    def end(self, turn_id: str, choice: int, num_steps: int, finish_reason: str) -> None:
        self.ends.append((turn_id, choice, num_steps, finish_reason))


def asked(**changes: Any) -> Asked:
    fields = {"turn_id": "t", "num_top": 2, "client_top": SILENT, "vocabulary_size": VOCABULARY_SIZE}
    more = {"top_k": VOCABULARY_SIZE, "top_p": 1.0, "temperature": 1.0, "bucket": 3}
    return Asked(**{**fields, **more, **changes})


def boxes(seed: int, num_steps: int) -> list[tuple[float, float]]:
    generator = np.random.default_rng(seed)
    middles, widths = generator.uniform(0.5, 3.0, num_steps), generator.uniform(0.0, 1.0, num_steps)
    return [(float(m - w), float(m + w)) for m, w in zip(middles, widths, strict=True)]


def estimated(bounds: list[tuple[float, float]]) -> ChoiceEstimate:
    estimate = ChoiceEstimate()
    for lower, upper in bounds:
        estimate.add(lower, upper)
    return estimate


def least_tau(bounds: list[tuple[float, float]]) -> float:
    """Least sum of the drops d[t] >= H[t-1] - H[t], d >= 0, over all H within the bounds."""
    n = len(bounds)
    rows = []
    for t in range(1, n):
        row = np.zeros(n + n - 1)
        row[t - 1], row[t], row[n + t - 1] = 1.0, -1.0, -1.0
        rows.append(row)
    cost = np.r_[np.zeros(n), np.ones(n - 1)]
    solved = linprog(
        cost, A_ub=np.array(rows), b_ub=np.zeros(n - 1), bounds=[*bounds, *[(0, None)] * (n - 1)]
    )
    return float(solved.fun)


@pytest.mark.parametrize("seed", range(8))
def test_tau_has_the_least_and_the_greatest_value_that_the_bounds_allow(seed: int) -> None:
    bounds = boxes(seed, 8)
    figures = estimated(bounds).figures(VOCABULARY_SIZE)
    tau, half_width = figures.summary.entropic_time_nats, figures.entropic_time_half_width_nats
    assert tau - half_width == pytest.approx(least_tau(bounds), abs=1e-7)
    assert tau + half_width == pytest.approx(max(map(entropic_time, itertools.product(*bounds))))


def test_the_other_figures_are_those_of_the_middles() -> None:
    bounds = boxes(3, 12)
    middles = [(lower + upper) / 2 for lower, upper in bounds]
    figures = estimated(bounds).figures(VOCABULARY_SIZE)
    half_width = float(np.mean([(upper - lower) / 2 for lower, upper in bounds]))
    assert figures.summary.num_steps == 12
    assert figures.summary.mean_entropy_nats == pytest.approx(np.mean(middles))
    assert figures.summary.mean_gravity == pytest.approx(1 - np.mean(middles) / math.log(VOCABULARY_SIZE))
    assert figures.summary.net_drop_nats == pytest.approx(net_drop(middles))
    assert figures.summary.envelope_nats == pytest.approx(envelope(middles))
    assert figures.entropy_half_width_nats == pytest.approx(half_width)
    assert figures.gravity_half_width == pytest.approx(half_width / math.log(VOCABULARY_SIZE))


def test_without_a_width_tau_is_exact() -> None:
    entropies = [2.0, 1.0, 1.5, 0.5]
    figures = estimated([(each, each) for each in entropies]).figures(VOCABULARY_SIZE)
    assert figures.summary.entropic_time_nats == pytest.approx(2.0)
    assert figures.entropic_time_half_width_nats == 0.0


def choice(index: int, *tops: list[float]) -> dict[str, Any]:
    content = [{"logprob": top[0], "top_logprobs": [{"logprob": each} for each in top]} for top in tops]
    return {"index": index, "logprobs": {"content": content}}


def test_steps_go_out_in_batches_and_each_choice_ends() -> None:
    sink = Sink()
    estimate = TurnEstimate(asked(), sink, lambda: 0.0)
    half = [math.log(0.5), math.log(0.25)]
    sent = choice(0, *[half] * (BATCH_STEPS + 3))
    estimate.take(0, sent)
    estimate.take(1, choice(1, half))
    estimate.end({0: "length"}, "cancelled")
    assert sent["logprobs"] is None
    assert [(batch[1], batch[2], len(batch[3])) for batch in sink.batches] == [
        (0, 0, BATCH_STEPS),
        (0, BATCH_STEPS, 3),
        (1, 0, 1),
    ]
    assert sink.ends == [("t", 0, BATCH_STEPS + 3, "length"), ("t", 1, 1, "cancelled")]


def test_a_step_says_what_is_known_and_how_well() -> None:
    sink = Sink()
    estimate = TurnEstimate(asked(top_p=0.9, temperature=0.7, top_k=40), sink, lambda: 0.0)
    estimate.take(0, choice(0, [math.log(0.5), math.log(0.25)]))
    estimate.end({}, "stop")
    (step,) = sink.batches[0][3]
    head = 0.5 * math.log(2) + 0.25 * math.log(4)
    lower = head + 0.25 * math.log(4)
    upper = head + 0.25 * (math.log(998) + math.log(4))
    assert step.entropy_nats == pytest.approx((lower + upper) / 2)
    assert step.entropy_half_width_nats == pytest.approx((upper - lower) / 2)
    assert step.gravity == pytest.approx(1 - step.entropy_nats / math.log(VOCABULARY_SIZE))
    assert (step.token_id, step.k, step.p, step.temperature, step.bucket) == (NO_TOKEN, 40, 0.9, 0.7, 3)
    assert step.p_max == pytest.approx(0.5)
    assert math.isnan(step.varentropy)
    assert math.isnan(step.entropy_after_nats)


@pytest.mark.parametrize(
    ("told", "has_tokens", "expected"),
    [
        (42, True, 42),
        (42, False, NO_TOKEN),
        ("42", True, NO_TOKEN),
        (True, True, NO_TOKEN),
        (2**40, True, NO_TOKEN),
    ],
)
def test_a_tokens_id_is_kept_where_the_server_tells_and_texts_may_be_kept(
    told: object, has_tokens: bool, expected: int
) -> None:
    sink = Sink()
    estimate = TurnEstimate(asked(has_tokens=has_tokens), sink, lambda: 0.0)
    sent = choice(0, [math.log(0.5), math.log(0.25)])
    sent["logprobs"]["content"][0]["id"] = told
    estimate.take(0, sent)
    estimate.end({}, "stop")
    assert sink.batches[0][3][0].token_id == expected


def test_a_slow_answers_steps_do_not_wait_for_a_whole_batch() -> None:
    sink, now = Sink(), [0.0]
    estimate = TurnEstimate(asked(), sink, lambda: now[0])
    half = [math.log(0.5), math.log(0.25)]
    estimate.take(0, choice(0, half))
    now[0] = 0.3
    estimate.take(0, choice(0, half))
    assert [len(batch[3]) for batch in sink.batches] == [2]


def test_traces_from_before_half_widths_were_written_are_read_as_measured() -> None:
    record = StepRecord(1, -0.5, 1.5, 0.125, 0.875, 1.0, 0.5, 7, 1.0, 0.75, 0.25, 1.0, 2, 0, 0, 1, 0.25)
    entry = {name.encode(): value for name, value in pack_steps(0, [record, record]).items()}
    assert unpack_steps(entry)[2] == [record, record]
    del entry[b"entropy_half_width_nats"]
    assert [step.entropy_half_width_nats for step in unpack_steps(entry)[2]] == [0.0, 0.0]


def test_traces_from_before_kept_shares_were_written_are_read_as_whole() -> None:
    record = StepRecord(1, -0.5, 1.5, 0.125, 0.875, 1.0, 0.5, 7, 1.0, 0.75, 0.25, 1.0, 2, 0, 0, 1, 0.0, 0.25)
    entry = {name.encode(): value for name, value in pack_steps(0, [record, record]).items()}
    assert unpack_steps(entry)[2] == [record, record]
    del entry[b"kept_share"]
    assert [step.kept_share for step in unpack_steps(entry)[2]] == [1.0, 1.0]
