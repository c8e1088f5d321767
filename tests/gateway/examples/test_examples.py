"""Both examples on the real worker and model."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from typing import Any

import pytest
from rich.console import Console

from gateway.examples import adaptive_k, keyword_gravity
from gateway.examples.keyword_gravity import STRENGTHS, Measure
from gateway.examples.laboratory import Completion, laboratory


@pytest.fixture(scope="module")
def adaptive(worker_server: Any, valkey_url: str) -> Mapping[str, Completion]:
    async def run() -> Mapping[str, Completion]:
        async with laboratory(worker_server.url, valkey_url) as running:
            return await adaptive_k.run(running)

    return asyncio.run(run())


@pytest.fixture(scope="module")
def keyword(worker_server: Any, valkey_url: str) -> Mapping[float, tuple[Completion, ...]]:
    """The answers of two seeds together: a rate over a dozen answers still moves by a third by chance."""

    async def run() -> Mapping[float, tuple[Completion, ...]]:
        async with laboratory(worker_server.url, valkey_url) as running:
            runs = [
                await keyword_gravity.run(running, num_answers=12, max_tokens=48, seed=seed)
                for seed in (1, 2)
            ]
        return {strength: runs[0][strength] + runs[1][strength] for strength in STRENGTHS}

    return asyncio.run(run())


def test_k_follows_the_entropy_of_every_step(adaptive: Mapping[str, Completion]) -> None:
    for completion in adaptive.values():
        assert len(completion.steps) >= 10
        for step in completion.steps:
            s = step.normalised_entropy
            # s comes back as float32: next to an integer either neighbour is right.
            assert step.k in {int(3 + 37 * (s - 1e-6)), int(3 + 37 * (s + 1e-6))}
            assert s == pytest.approx(step.entropy_nats / math.log(49_152), abs=1e-6)
            assert step.gravity == pytest.approx(1 - s, abs=1e-6)


def test_an_open_prompt_keeps_more_candidates_than_json(adaptive: Mapping[str, Completion]) -> None:
    open_k = [step.k for step in adaptive["open"].steps]
    json_k = [step.k for step in adaptive["json"].steps]
    assert sum(open_k) / len(open_k) > sum(json_k) / len(json_k)
    assert sorted(json_k)[len(json_k) // 2] == 3
    assert max(open_k) > 8


def test_the_theme_gains_and_what_is_penalised_fades(
    keyword: Mapping[float, tuple[Completion, ...]],
) -> None:
    measures = {strength: Measure.of(completions) for strength, completions in keyword.items()}
    assert set(measures) == set(STRENGTHS)
    assert measures[3.0].theme_rate >= measures[0.0].theme_rate
    off_theme = [measures[strength].off_theme_rate for strength in STRENGTHS]
    assert off_theme[0] > off_theme[1] > off_theme[2]
    assert all(0.0 <= measure.rep_4 <= 1.0 for measure in measures.values())


def test_the_bias_of_each_step_is_one_of_the_three_that_the_words_give(
    keyword: Mapping[float, tuple[Completion, ...]],
) -> None:
    for strength, completions in keyword.items():
        biases = {round(step.bias_nats, 4) for completion in completions for step in completion.steps}
        assert biases <= {0.0, round(0.2 * strength, 4), round(-strength, 4)}
    boosted = [step for completion in keyword[3.0] for step in completion.steps if step.bias_nats > 0]
    assert len(boosted) >= 24


def test_answers_differ_within_a_strength_and_at_strength_0_nothing_is_pulled(
    keyword: Mapping[float, tuple[Completion, ...]],
) -> None:
    assert len({completion.text for completion in keyword[0.0]}) == len(keyword[0.0])
    assert all(step.bias_nats == 0.0 for completion in keyword[0.0] for step in completion.steps)


def test_they_print_what_was_measured(
    adaptive: Mapping[str, Completion], keyword: Mapping[float, tuple[Completion, ...]]
) -> None:
    console = Console(width=80, record=True, quiet=True)
    adaptive_k.show(console, adaptive)
    keyword_gravity.show(console, keyword)
    printed = console.export_text()
    assert printed.count("k  candidates kept") == 2
    for strength in STRENGTHS:
        assert f"strength {strength:.1f}, the first of 24 answers" in printed
