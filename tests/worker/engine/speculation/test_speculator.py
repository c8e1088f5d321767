"""Speculation on a running batch: the same texts in fewer steps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from worker.engine.batch import Piece
from worker.engine.engine import EngineStats
from worker.engine.model import LanguageModel
from worker.engine.request import GenerationRequest, RequestFailed, StepOutput
from worker.protocol import AdaptiveControls, DecodeControls, GravityControls, SpeculationControls

if TYPE_CHECKING:
    from tests.worker.engine.conftest import (
        LoadModelFolder,
        LoadTiny,
        MakeRequest,
        RunningEngine,
        StartEngine,
    )

NUM_TOKENS = 20
COPYING = (
    "Q: Who built the Solveig? A: Haugland & Sons built the Solveig at their yard in Florø.\n"
    "Q: Where did Haugland & Sons build the Solveig? A:"
)
LIST = "red, green, blue, red, green, blue, red, green,"
OPEN = "My grandmother always told me that"
STEERED = DecodeControls(
    adaptive=AdaptiveControls(k_min=2, k_max=12, smoothing=0.3, spike_window=4),
    gravity=GravityControls(keywords=("yard", "ferry"), penalize=("Florø",), repetition_brake=0.8),
)
MODES = [
    SpeculationControls(mode="fixed", max_draft=5),
    SpeculationControls(mode="entropy", max_draft=12),
]


def speculating(request: GenerationRequest, speculation: SpeculationControls) -> GenerationRequest:
    return replace(request, controls=request.controls.model_copy(update={"speculation": speculation}))


def drafts(stats: EngineStats) -> tuple[int, int]:
    return stats.drafted, stats.accepted


@pytest.fixture(scope="module")
def model(model_path: Path, load_model_folder: LoadModelFolder) -> LanguageModel:
    return load_model_folder(model_path, max_batch=5, max_context=128)


@pytest.fixture(scope="module")
def requests(tokenizer: Any, make_request: MakeRequest) -> tuple[GenerationRequest, ...]:
    def request(name: str, prompt: str, controls: DecodeControls, **sampling: Any) -> GenerationRequest:
        ids = tokenizer.encode(prompt)
        return make_request(name, ids, NUM_TOKENS, controls=controls, sampling=sampling)

    plain = DecodeControls()
    penalties = {"repetition_penalty": 1.05, "frequency_penalty": 0.2, "top_p": 0.95}
    return (
        request("greedy", COPYING, plain),
        request("list", LIST, plain, temperature=0.7, seed=3),
        request("steered", COPYING, STEERED, temperature=0.6, seed=5),
        request("penalised", LIST, STEERED, temperature=0.9, seed=7, **penalties),
        request("open", OPEN, plain, temperature=1.0, seed=9),
    )


def run(
    model: LanguageModel, start_engine: StartEngine, requests: tuple[GenerationRequest, ...], **options: Any
) -> RunningEngine:
    running = start_engine(model, **options)
    running.submit(*requests)
    running.run()
    assert not running.failures()
    return running


@pytest.fixture(scope="module")
def without(
    model: LanguageModel, start_engine: StartEngine, requests: tuple[GenerationRequest, ...]
) -> RunningEngine:
    """What everyone writes a token a step."""
    running = run(model, start_engine, requests)
    assert drafts(running.engine.stats()) == (0, 0)
    return running


def records(running: RunningEngine, name: str) -> list[tuple[int, int, float, float]]:
    """Token, k, temperature and bias of each step: what the controls did."""
    outputs = [e for e in running.events if isinstance(e, StepOutput) and e.request_id == name]
    return [(o.token_id, o.record.k, o.record.temperature, round(o.record.bias_nats, 3)) for o in outputs]


@pytest.mark.parametrize("speculation", MODES, ids=lambda each: each.mode)
def test_texts_and_controls_are_the_same_with_speculation(
    model: LanguageModel,
    start_engine: StartEngine,
    requests: tuple[GenerationRequest, ...],
    without: RunningEngine,
    speculation: SpeculationControls,
) -> None:
    running = run(model, start_engine, tuple(speculating(each, speculation) for each in requests))
    for request in requests:
        assert records(running, request.id) == records(without, request.id), request.id
        assert running.finish(request.id) == ["length"]
    stats = running.engine.stats()
    marked = sum(e.record.accepted_draft for e in running.events if isinstance(e, StepOutput))
    assert stats.drafted >= stats.accepted == marked > 0
    assert stats.tokens == len(requests) * NUM_TOKENS


def test_neighbours_that_do_not_speculate_are_not_touched(
    model: LanguageModel,
    start_engine: StartEngine,
    requests: tuple[GenerationRequest, ...],
    without: RunningEngine,
) -> None:
    # The second and the last one draft, so that slots with drafts lie between slots without.
    mixed = [speculating(each, MODES[0]) if each.id in ("list", "open") else each for each in requests]
    running = run(model, start_engine, tuple(mixed))
    assert running.engine.stats().accepted > 0
    for request in requests:
        assert running.tokens(request.id) == without.tokens(request.id)
    undrafted = [e for e in running.events if isinstance(e, StepOutput) and e.request_id == "greedy"]
    assert not any(e.record.accepted_draft for e in undrafted)


def test_a_stop_inside_a_draft_ends_the_text_where_it_ends_without(
    model: LanguageModel,
    start_engine: StartEngine,
    requests: tuple[GenerationRequest, ...],
    without: RunningEngine,
) -> None:
    listed = requests[1]
    text = without.tokens("list")
    # A token that is first written late, in the midst of what is copied.
    stop_id = max(text, key=text.index)
    sampling = replace(listed.sampling, stop_token_ids=frozenset({stop_id}))
    stopped = speculating(replace(listed, sampling=sampling), MODES[0])
    running = run(model, start_engine, (stopped,))
    assert running.tokens("list") == text[: text.index(stop_id) + 1]
    assert running.finish("list") == ["stop"]
    assert running.engine.stats().kv_used == 0


# Bounds, over a tiny model that a bias makes write one token for ever


@pytest.fixture
def repeating(make_request: MakeRequest) -> GenerationRequest:
    request = make_request("a", (11, 12, 13), 30, sampling={"logit_bias": {77: 100.0}})
    return speculating(request, SpeculationControls(mode="fixed", max_draft=8))


def test_max_tokens_holds_inside_a_draft(
    load_tiny: LoadTiny, start_engine: StartEngine, repeating: GenerationRequest
) -> None:
    running = run(load_tiny(), start_engine, (repeating,))
    assert running.tokens("a") == [77] * 30
    assert running.finish("a") == ["length"]
    # The prompt gives the first token, the second is new; then steps of nine: 2 + 9 + 9 + 9 + 1.
    assert running.engine.stats().steps == 6
    assert drafts(running.engine.stats()) == (24, 24)


def test_a_full_context_ends_the_text_inside_a_draft(
    load_tiny: LoadTiny, start_engine: StartEngine, repeating: GenerationRequest
) -> None:
    running = run(load_tiny(max_context=24), start_engine, (repeating,))
    assert running.tokens("a") == [77] * (24 - 3)
    assert running.finish("a") == ["length"]


def test_drafts_take_no_memory_that_running_texts_need(
    load_tiny: LoadTiny, start_engine: StartEngine, repeating: GenerationRequest
) -> None:
    both = (repeating, replace(repeating, id="b"))
    running = run(load_tiny(num_slots=2), start_engine, both, kv_tokens=56)
    assert running.tokens("a") == running.tokens("b") == [77] * 30
    assert running.engine.stats().preemptions > 0, "two texts of 33 tokens do not fit"


def test_the_worker_bounds_what_a_request_drafts_and_can_forbid_it(
    load_tiny: LoadTiny, start_engine: StartEngine, repeating: GenerationRequest
) -> None:
    running = run(load_tiny(), start_engine, (repeating,), max_draft=2)
    assert running.engine.stats().steps == 2 + 10  # three tokens a step, the last one alone
    assert drafts(run(load_tiny(), start_engine, (repeating,), max_draft=0).engine.stats()) == (0, 0)


def test_a_fixed_draft_is_given_in_company_where_it_is_worth_its_rows(
    load_tiny: LoadTiny, start_engine: StartEngine, repeating: GenerationRequest
) -> None:
    running = start_engine(load_tiny(num_slots=2))
    # What comes is always 77, and behind every 77 of the prompt stands another token: a bad draft, until the
    # text repeats itself.
    misled = replace(repeating, prompt_ids=(77, 20, 77, 21, 77, 22, 77, 23, 11))
    running.submit(misled, replace(misled, id="b"))
    running.step(2)
    assert drafts(running.engine.stats())[0] == 0, "in company"
    running.run()
    assert running.tokens("a") == running.tokens("b") == [77] * 30
    assert drafts(running.engine.stats())[1] > 0, "once it repeats itself"
    alone = start_engine(load_tiny(num_slots=1))
    alone.submit(misled)
    alone.step(2)
    assert drafts(alone.engine.stats()) == (8, 0), "alone it is checked whatever its chance"


def test_replays_and_exclusive_requests_draft_nothing(
    load_tiny: LoadTiny, start_engine: StartEngine, repeating: GenerationRequest
) -> None:
    model = load_tiny()
    for request in (replace(repeating, forced_ids=(77,) * 30), replace(repeating, is_exclusive=True)):
        running = run(model, start_engine, (request,))
        assert running.tokens("a") == [77] * 30
        assert drafts(running.engine.stats()) == (0, 0)


def test_a_model_that_cannot_rewind_is_given_no_drafts(
    load_tiny: LoadTiny, start_engine: StartEngine, repeating: GenerationRequest
) -> None:
    model = load_tiny()
    model.can_rewind = False  # type: ignore[misc]
    assert drafts(run(model, start_engine, (repeating,)).engine.stats()) == (0, 0)


def test_a_slot_is_cleared_of_rejected_drafts(
    load_tiny: LoadTiny, start_engine: StartEngine, repeating: GenerationRequest
) -> None:
    model = load_tiny(num_slots=1)
    # The prompt says that 77 goes on with 20 to 27; the bias says otherwise, and all eight are rejected.
    misled = replace(repeating, prompt_ids=(77, *range(20, 28), 11))
    cut = replace(misled, sampling=replace(misled.sampling, max_tokens=10))
    running = start_engine(model)
    running.submit(cut)
    running.step(2)
    running.engine.cancel("a")
    assert drafts(running.engine.stats()) == (8, 0)
    after = model.forward([Piece(0, 0, (5, 6), num_logits=2)])
    fresh = load_tiny(num_slots=1).forward([Piece(0, 0, (5, 6), num_logits=2)])
    assert after.equal(fresh)
    assert not model._store._all[:, 0, 2:].any()  # type: ignore[attr-defined]


def test_a_receiver_that_breaks_inside_a_draft_gets_no_more_of_it(
    load_tiny: LoadTiny, start_engine: StartEngine, repeating: GenerationRequest
) -> None:
    running = start_engine(load_tiny())
    taken: list[StepOutput | RequestFailed] = []

    def break_at_the_fourth(event: StepOutput | RequestFailed) -> None:
        taken.append(event)
        if len(taken) == 4:
            raise ConnectionError("gone")

    running.engine.submit(repeating, running.engine.open(repeating), break_at_the_fourth)
    running.run()
    assert len(taken) == 4
    assert running.engine.stats().kv_used == 0
