"""Shared beginnings, preemption and policies in a running engine: never another token than alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from worker.engine.prefix import BLOCK_TOKENS
from worker.engine.request import RequestFailed, StepOutput

if TYPE_CHECKING:
    from tests.worker.engine.conftest import LoadTiny, MakeRequest, RunningEngine, StartEngine
    from worker.engine.request import GenerationRequest

SYSTEM = tuple(range(20, 20 + 2 * BLOCK_TOKENS + 3))
"""Two full blocks and a little more."""


def found(running: RunningEngine, name: str) -> int:
    return next(e.num_found for e in running.events if isinstance(e, StepOutput) and e.request_id == name)


def alone(load_tiny: LoadTiny, start_engine: StartEngine, request: GenerationRequest) -> list[int]:
    running = start_engine(load_tiny(num_slots=1))
    running.submit(request)
    running.run()
    return running.tokens(request.id)


def test_a_beginning_that_was_read_is_not_read_again_and_the_text_is_the_same(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    first, second = make_request("first", (*SYSTEM, 7, 8), 6), make_request("second", (*SYSTEM, 9, 4, 5), 6)
    running = start_engine(load_tiny())
    running.submit(first)
    running.run()
    running.submit(second)
    running.run()
    assert (found(running, "first"), found(running, "second")) == (0, 2 * BLOCK_TOKENS)
    assert running.tokens("second") == alone(load_tiny, start_engine, second)
    stats = running.engine.stats()
    assert (stats.prefix_found, stats.prefix_asked) == (32, len(first.prompt_ids) + len(second.prompt_ids))


def test_what_goes_on_from_an_answer_finds_prompt_and_answer(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny(max_context=128))
    running.submit(make_request("question", SYSTEM, 20))
    running.run()
    written = tuple(running.tokens("question"))
    more = make_request("more", (*SYSTEM, *written, 5, 6), 5)
    running.submit(more)
    running.run()
    # The answer's last token was emitted, and never read.
    assert found(running, "more") == (len(SYSTEM) + len(written) - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    assert running.tokens("more") == alone(load_tiny, start_engine, more)


def test_choices_of_one_prompt_share_one_prefill(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    prompt = (*SYSTEM, *range(60, 75))
    choices = [make_request(f"c{n}", prompt, 4, choice=n) for n in range(4)]
    running = start_engine(load_tiny(), prefill_chunk=8)
    running.submit(*choices)
    running.run()
    shared = (len(prompt) - 1) // BLOCK_TOKENS * BLOCK_TOKENS
    assert [found(running, f"c{n}") for n in range(4)] == [0, shared, shared, shared]
    assert len({tuple(running.tokens(f"c{n}")) for n in range(4)}) == 1


def test_whoever_waits_for_a_prompt_that_is_read_goes_on_when_its_reader_leaves(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny(), prefill_chunk=8)
    running.submit(make_request("reader", SYSTEM, 4), make_request("waiter", (*SYSTEM, 3), 4))
    running.step(2)
    assert (running.engine.stats().running, running.engine.stats().waiting) == (1, 1)
    running.engine.cancel("reader")
    running.run()
    assert running.finish("waiter") == ["length"]
    assert found(running, "waiter") == BLOCK_TOKENS, "what was read before it left"


def test_an_exact_replay_takes_nothing_from_others(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny())
    running.submit(make_request("first", SYSTEM, 2))
    running.run()
    running.submit(make_request("exact", SYSTEM, 2, is_exclusive=True))
    running.run()
    assert found(running, "exact") == 0


def test_beginnings_are_kept_within_their_bound(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny(prefix_tokens=3 * BLOCK_TOKENS))
    for n in range(6):
        running.submit(make_request(f"r{n}", [100 + n] * 40, 3))
        running.run()
    stats = running.engine.stats()
    assert (stats.prefix_blocks, stats.prefix_blocks_held, stats.prefix_blocks_total) == (3, 0, 3)
    last = make_request("again", [105] * 40, 3)
    running.submit(last)
    running.run()
    assert found(running, "again") == 2 * BLOCK_TOKENS
    assert running.tokens("again") == alone(load_tiny, start_engine, last)


def test_without_a_cache_all_is_read(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny(prefix_tokens=0))
    for name in ("a", "b"):
        running.submit(make_request(name, SYSTEM, 2))
        running.run()
    assert (found(running, "a"), found(running, "b")) == (0, 0)


@pytest.mark.parametrize("policy", ["fcfs", "shortest", "entropic"])
@pytest.mark.parametrize("prefix_tokens", [0, 1_024])
def test_who_is_put_out_for_want_of_memory_ends_with_the_same_text(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest, policy: Any, prefix_tokens: int
) -> None:
    requests = [
        make_request(f"r{n}", [30 + n] * (10 + n), 30, sampling={"temperature": 1.0, "seed": n})
        for n in range(4)
    ]
    running = start_engine(load_tiny(prefix_tokens=prefix_tokens), policy=policy, kv_tokens=100)
    running.submit(*requests)
    while running.engine.has_work:
        running.step()
        assert running.engine.stats().kv_used <= 100
    assert running.engine.stats().preemptions > 0
    for request in requests:
        assert running.tokens(request.id) == alone(load_tiny, start_engine, request)
        assert running.finish(request.id) == ["length"]


@pytest.mark.parametrize("policy", ["shortest", "entropic"])
def test_with_room_for_everyone_every_policy_gives_what_first_come_gives(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest, policy: Any
) -> None:
    requests = [make_request(f"r{n}", [40 + n] * (5 + 7 * n), 12 - 2 * n) for n in range(4)]
    texts = []
    for name in ("fcfs", policy):
        running = start_engine(load_tiny(), policy=name, prefill_chunk=16)
        running.submit(*requests)
        running.run()
        assert running.engine.stats().preemptions == 0
        texts.append([running.tokens(request.id) for request in requests])
    assert texts[0] == texts[1]


def test_the_shortest_overtakes_where_not_all_can_run(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny(num_slots=1), policy="shortest")
    running.submit(
        make_request("runs", (5, 6), 3), make_request("long", [7] * 30, 9), make_request("short", (8,), 1)
    )
    running.run()
    order = [e.request_id for e in running.events if isinstance(e, StepOutput) and e.finish_reason]
    assert order.index("short") < order.index("long")


def test_memory_that_was_held_is_free_again_whatever_became_of_the_request(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny(num_slots=2), kv_tokens=64, prefill_chunk=8)
    running.submit(*(make_request(f"r{n}", (*SYSTEM, n), 20) for n in range(5)))
    for n in range(5):
        running.step(3)
        running.engine.cancel(f"r{n}")
    running.run()
    stats = running.engine.stats()
    assert (stats.running, stats.waiting, stats.kv_used) == (0, 0, 0)
    assert not [e for e in running.events if isinstance(e, RequestFailed)]
