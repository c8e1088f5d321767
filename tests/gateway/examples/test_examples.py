"""Both examples on the real worker and model."""

from __future__ import annotations

import asyncio
import io
import math
from collections.abc import Mapping
from typing import Any

import pytest
from rich.console import Console

from gateway.examples import adaptive_k, keyword_gravity
from gateway.examples.adaptive_k import Profile
from gateway.examples.keyword_gravity import STRENGTHS, Measure
from gateway.examples.laboratory import Completion, Sampling, laboratory


@pytest.fixture(scope="module")
def adaptive(worker_server: Any, valkey_url: str) -> Mapping[str, tuple[Completion, ...]]:
    async def run() -> Mapping[str, tuple[Completion, ...]]:
        async with laboratory(worker_server.url, valkey_url) as running:
            return await adaptive_k.run(running, Sampling(seed=2, max_tokens=32, num_choices=6))

    return asyncio.run(run())


@pytest.fixture(scope="module")
def keyword(worker_server: Any, valkey_url: str) -> Mapping[float, tuple[Completion, ...]]:
    """Sixteen samples a strength, each with random numbers of its own: fewer say little about a rate."""

    async def run() -> Mapping[float, tuple[Completion, ...]]:
        async with laboratory(worker_server.url, valkey_url) as running:
            return await keyword_gravity.run(running, Sampling(1, 32, num_choices=16, top_p=0.95))

    return asyncio.run(run())


def test_k_follows_the_entropy_of_every_step(adaptive: Mapping[str, tuple[Completion, ...]]) -> None:
    for answer in (*adaptive["open"], *adaptive["json"]):
        assert len(answer.steps) == len(answer.tokens) > 0
        for step in answer.steps:
            s = step.normalised_entropy
            # s comes back as float32: next to an integer either neighbour is right.
            assert step.k in {int(3 + 37 * (s - 1e-6)), int(3 + 37 * (s + 1e-6))}
            assert s == pytest.approx(step.entropy_nats / math.log(49_152), abs=1e-6)
            assert step.gravity == pytest.approx(1 - s, abs=1e-6)


def test_an_open_prompt_keeps_more_candidates_than_json(
    adaptive: Mapping[str, tuple[Completion, ...]],
) -> None:
    open_prompt, json_prompt = Profile.of(adaptive["open"]), Profile.of(adaptive["json"])
    assert open_prompt.mean_entropy_nats > json_prompt.mean_entropy_nats
    assert open_prompt.mean_k > json_prompt.mean_k + 1
    widest = max(step.k for answer in adaptive["open"] for step in answer.steps)
    assert 8 < widest < 40


def test_the_theme_gains_and_what_is_penalised_fades(
    keyword: Mapping[float, tuple[Completion, ...]],
) -> None:
    measures = {strength: Measure.of(completions) for strength, completions in keyword.items()}
    assert set(measures) == set(STRENGTHS)
    assert measures[3.0].theme_rate >= measures[0.0].theme_rate
    off_theme = [measures[strength].off_theme_rate for strength in STRENGTHS]
    assert off_theme[0] >= off_theme[1] >= off_theme[2]
    assert off_theme[2] < off_theme[0] / 2
    assert all(0.0 <= measure.rep_4 <= 1.0 for measure in measures.values())


def test_the_bias_of_each_step_is_one_of_the_three_that_the_words_give(
    keyword: Mapping[float, tuple[Completion, ...]],
) -> None:
    for strength, completions in keyword.items():
        biases = {round(step.bias_nats, 4) for completion in completions for step in completion.steps}
        assert biases <= {0.0, round(0.2 * strength, 4), round(-strength, 4)}
    boosted = [step for completion in keyword[3.0] for step in completion.steps if step.bias_nats > 0]
    assert len(boosted) >= 16


def test_answers_differ_within_a_strength_and_at_strength_0_nothing_is_pulled(
    keyword: Mapping[float, tuple[Completion, ...]],
) -> None:
    assert len({completion.text for completion in keyword[0.0]}) == len(keyword[0.0])
    assert all(step.bias_nats == 0.0 for completion in keyword[0.0] for step in completion.steps)


def test_they_print_what_was_measured(
    adaptive: Mapping[str, tuple[Completion, ...]], keyword: Mapping[float, tuple[Completion, ...]]
) -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    adaptive_k.show(console, adaptive)
    keyword_gravity.show(console, keyword)
    printed = console.export_text()
    assert printed.count("k  candidates kept") == 2
    for strength in STRENGTHS:
        assert f"strength {strength:.1f}, the first of 16 answers" in printed
