"""Requests that drop blocks, in a running engine, against transformers that cannot see what was dropped."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config

from worker.engine.prefix import BLOCK_TOKENS
from worker.engine.request import GenerationRequest, StepOutput
from worker.errors import RequestError
from worker.protocol import DecodeControls, KVBlockControls, SpeculationControls
from worker.server.parse import parse_controls

if TYPE_CHECKING:
    from tests.worker.engine.conftest import (
        LoadModelFolder,
        LoadTiny,
        MakeRequest,
        RunningEngine,
        SaveModel,
        StartEngine,
    )

NUM_TOKENS = 40
PROMPT = tuple(np.random.default_rng(1).integers(10, 40_000, 165).tolist())
HARSH = KVBlockControls(
    mode="entropy", threshold=1.2, reference_nats=50.0, min_blocks=1, look_every=12, attention_smoothing=0.5
)
"""Random weights are never sure: with this reference H hardly counts, and much is dropped."""
LENIENT = HARSH.model_copy(update={"threshold": 0.0})


def dropping(request: GenerationRequest, controls: KVBlockControls = HARSH) -> GenerationRequest:
    return replace(request, controls=DecodeControls(kv_blocks=controls))


def outputs(running: RunningEngine, name: str) -> list[StepOutput]:
    return [e for e in running.events if isinstance(e, StepOutput) and e.request_id == name]


def shares(running: RunningEngine, name: str) -> list[float]:
    return [output.record.kept_share for output in outputs(running, name)]


@dataclass(slots=True)
class Watched:
    """A run, and which tokens each of its steps could attend to."""

    running: RunningEngine
    seen: list[list[int]] = field(default_factory=list)


def watch(running: RunningEngine, request: GenerationRequest) -> Watched:
    """Run a request alone. What is kept is read off the pieces that the model is given."""
    watched = Watched(running)
    model: Any = running.engine._model
    forward = model.forward

    def spied(pieces: Any) -> Any:
        [piece] = pieces
        kept = piece.kept
        if kept is None:
            watched.seen.append(list(range(piece.end)))
        else:
            active = running.engine._active[request.id]
            assert active.focus is not None
            full = [block * BLOCK_TOKENS + n for block in active.focus._kept for n in range(BLOCK_TOKENS)]
            watched.seen.append([*full, *range(full[-1] + 1, piece.end)])
        return forward(pieces)

    model.forward = spied
    try:
        running.submit(request)
        running.run()
    finally:
        model.forward = forward
    assert not running.failures()
    return watched


@torch.inference_mode()
def without_the_dropped(reference: Any, token_ids: list[int], seen: list[list[int]]) -> list[float]:
    """Return ln p of each written token from transformers, every step masked to what ours attended to."""
    num_prompt = len(PROMPT)
    size = len(token_ids)
    hidden = torch.full((size, size), float("-inf")).triu(1)
    for step, positions in enumerate(seen):
        row = num_prompt + step
        hidden[row, :row] = float("-inf")
        hidden[row, positions] = 0.0
    logits = reference(torch.tensor([token_ids]), attention_mask=hidden[None, None]).logits[0]
    logprobs = logits.log_softmax(-1)
    return [float(logprobs[row - 1, token_ids[row]]) for row in range(num_prompt, size)]


@pytest.fixture(scope="module")
def reference(tiny_folder: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(str(tiny_folder), attn_implementation="eager").float().eval()


def test_steps_attend_to_the_kept_blocks_and_to_nothing_else(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest, reference: Any
) -> None:
    running = start_engine(load_tiny(num_slots=2, max_context=256), prefill_chunk=64)
    watched = watch(running, dropping(make_request("a", PROMPT, NUM_TOKENS)))
    written = outputs(running, "a")
    steps = watched.seen[3:]  # the prompt takes three chunks
    assert len(steps) == NUM_TOKENS - 1
    expected = without_the_dropped(reference, [*PROMPT, *running.tokens("a")], steps)
    assert [o.record.logprob for o in written] == pytest.approx(expected, abs=2e-4)
    assert [o.record.kept_share for o in written[1:]] == pytest.approx(
        [-(-len(seen) // BLOCK_TOKENS) / -(-(seen[-1] + 1) // BLOCK_TOKENS) for seen in steps]
    )
    assert min(shares(running, "a")) < 0.7
    # Every twelfth step looks at everything again.
    assert [n for n, share in enumerate(shares(running, "a")) if share == 1.0] == [0, 12, 24, 36]


def test_a_text_that_keeps_everything_is_the_text_without_the_controls(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny(max_context=256, prefix_tokens=0), prefill_chunk=48)
    plain = make_request("plain", PROMPT, NUM_TOKENS, sampling={"temperature": 0.7, "seed": 4})
    running.submit(plain, replace(dropping(plain, LENIENT), id="keeping"), make_request("other", PROMPT, 6))
    running.run()
    assert running.tokens("keeping") == running.tokens("plain")
    assert shares(running, "keeping") == [1.0] * NUM_TOKENS


def test_by_attention_alone_no_logits_are_asked_of_a_prompt(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    model: Any = load_tiny(max_context=256)
    num_logits: list[int] = []
    forward = model.forward

    def spied(pieces: Any) -> Any:
        num_logits.append(pieces[0].num_logits)
        return forward(pieces)

    model.forward = spied
    for score in ("attention", "surprisal"):
        running = start_engine(model, prefill_chunk=100)
        running.submit(dropping(make_request("a", PROMPT, 14), HARSH.model_copy(update={"score": score})))
        running.run()
        assert min(shares(running, "a")) < 0.9
    assert num_logits == [0, 1] + [1] * 13 + [100, 65] + [1] * 13


def test_neighbours_write_what_they_write_alone(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    prompts = {name: PROMPT[start:150] for name, start in (("a", 0), ("b", 9), ("c", 20))}
    alone = {}
    for name, prompt in prompts.items():
        running = start_engine(load_tiny(num_slots=1, max_context=256))
        request = make_request(name, prompt, 20)
        running.submit(dropping(request) if name == "b" else request)
        running.run()
        alone[name] = running.tokens(name)
    together = start_engine(load_tiny(num_slots=3, max_context=256))
    requests = [make_request(name, prompt, 20) for name, prompt in prompts.items()]
    together.submit(requests[0], dropping(requests[1]), requests[2])
    together.run()
    assert {name: together.tokens(name) for name in prompts} == alone
    assert min(shares(together, "b")) < 0.8
    assert shares(together, "a") == shares(together, "c") == [1.0] * 20


def test_where_entropy_is_over_the_reference_everything_is_attended_to(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny(max_context=256))
    unsure = HARSH.model_copy(update={"threshold": 1000.0, "reference_nats": 0.1})
    running.submit(dropping(make_request("a", PROMPT, 20), unsure))
    running.run()
    assert min(output.record.entropy_nats for output in outputs(running, "a")) > 0.1
    assert shares(running, "a") == [1.0] * 20


def test_what_the_prefix_cache_had_is_never_dropped(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny(max_context=256))
    prompt = PROMPT[:128]
    strict = HARSH.model_copy(update={"threshold": 1000.0})
    for name in ("first", "second"):
        running.submit(dropping(make_request(name, prompt, 9), strict))
        running.run()
    # Of the prompt's eight blocks all go but the first and the last four; the steps write into a ninth.
    assert shares(running, "first")[1:] == pytest.approx([6 / 9] * 8)
    assert outputs(running, "second")[0].num_found == 112
    assert shares(running, "second") == [1.0] * 9


def test_a_text_that_was_written_without_some_blocks_is_not_shared_beyond_its_prompt(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny(max_context=256))
    running.submit(dropping(make_request("a", PROMPT, 40)))
    running.run()
    whole = (*PROMPT, *running.tokens("a"), 7)
    running.submit(make_request("next", whole, 6))
    running.run()
    assert outputs(running, "next")[0].num_found == len(PROMPT) // BLOCK_TOKENS * BLOCK_TOKENS
    fresh = start_engine(load_tiny(max_context=256))
    fresh.submit(make_request("next", whole, 6))
    fresh.run()
    assert running.tokens("next") == fresh.tokens("next")


def test_a_replay_drops_what_the_turn_dropped_although_the_cache_has_its_prompt(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny(max_context=256))
    running.submit(dropping(make_request("a", PROMPT, 30)))
    running.run()
    again = dropping(make_request("again", PROMPT, 30, forced_ids=tuple(running.tokens("a"))))
    running.submit(again)
    running.run()
    assert shares(running, "again") == shares(running, "a")
    logprobs = [[o.record.logprob for o in outputs(running, name)] for name in ("a", "again")]
    assert logprobs[1] == pytest.approx(logprobs[0], abs=1e-5)


def test_a_request_that_was_put_out_goes_on_dropping(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny(num_slots=2, max_context=256), kv_tokens=360)
    running.submit(*(dropping(make_request(name, PROMPT[n:], 40)) for n, name in enumerate("ab")))
    running.run()
    assert running.engine.stats().preemptions > 0
    assert running.finish("a") == running.finish("b") == ["length"]
    assert min(shares(running, "b")[-10:]) < 0.7
    assert running.engine.stats().kv_used == 0


def test_a_model_that_keeps_its_own_caches_refuses(
    save_model: SaveModel,
    load_model_folder: LoadModelFolder,
    start_engine: StartEngine,
    make_request: MakeRequest,
) -> None:
    config = GPT2Config(vocab_size=50, n_positions=32, n_embd=16, n_layer=1, n_head=2, eos_token_id=2)
    engine = start_engine(load_model_folder(save_model(config)[0], max_batch=1, max_context=32)).engine
    with pytest.raises(RequestError, match="kv_blocks") as caught:
        engine.open(dropping(make_request("a", (3, 4, 5))))
    assert (caught.value.status, caught.value.param) == (400, "vllm_xargs")


def test_blocks_and_drafts_together_are_refused_by_name() -> None:
    drafts = SpeculationControls(mode="fixed")
    both = {"kv_blocks": HARSH.model_dump(), "speculation": drafts.model_dump()}
    with pytest.raises(RequestError, match="kv_blocks and speculation cannot be on together") as caught:
        parse_controls({"gravity": orjson.dumps(both).decode()})
    assert caught.value.param == "vllm_xargs"
    off = {"kv_blocks": {"mode": "off"}, "speculation": drafts.model_dump()}
    assert not parse_controls({"gravity": orjson.dumps(off).decode()}).drops_blocks
