"""Requests in a batch: how they wait, join, end, fail and leave, over a tiny random Llama."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

from worker.engine.batch import Piece
from worker.engine.focus.kept_rows import KeptRows
from worker.engine.model import LanguageModel
from worker.engine.request import EngineEvent, GenerationRequest, RequestFailed, StepOutput
from worker.errors import ContextTooLongError, RequestError
from worker.protocol import StepRecord

if TYPE_CHECKING:
    from tests.worker.engine.conftest import (
        LoadModelFolder,
        LoadTiny,
        MakeRequest,
        RunningEngine,
        StartEngine,
    )

PROMPT = (11, 12, 13, 14, 15)


def alone(model: LanguageModel, start_engine: StartEngine, request: GenerationRequest) -> list[int]:
    running = start_engine(model)
    running.submit(request)
    running.run()
    return running.tokens(request.id)


# Refusing


@pytest.mark.parametrize("length", [64, 65, 1000])
def test_a_prompt_that_can_never_fit_is_refused_with_the_reason(
    length: int, load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny(max_context=64))
    with pytest.raises(ContextTooLongError, match=f"{length} tokens.*may have 64"):
        running.submit(make_request("a", [5] * length))
    assert not running.engine.has_work


def test_a_recorded_completion_that_can_not_fit_is_refused(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny(max_context=64))
    with pytest.raises(ContextTooLongError, match="65 tokens"):
        running.submit(make_request("a", [5] * 60, forced_ids=(7,) * 5))
    running.submit(make_request("b", [5] * 60, forced_ids=(7,) * 4))
    running.run()
    assert running.tokens("b") == [7] * 4


def test_what_is_no_prompt_is_refused_by_the_name_of_its_field(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    model = load_tiny()
    running = start_engine(model)
    wrong = {
        "prompt": [
            make_request("a", ()),
            make_request("a", (-1,)),
            make_request("a", (5, model.vocab_size)),
        ],
        "max_tokens": [make_request("a", PROMPT, 0)],
        "tokens": [make_request("a", PROMPT, forced_ids=(model.vocab_size,))],
    }
    for param, requests in wrong.items():
        for request in requests:
            with pytest.raises(RequestError) as caught:
                running.submit(request)
            assert caught.value.param == param
    running.submit(make_request("b", PROMPT))
    running.run()
    assert len(running.tokens("b")) == 4


# Waiting and joining


def test_who_finds_no_slot_waits_and_is_served_in_the_order_of_arrival(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny(num_slots=2))
    running.submit(*(make_request(name, PROMPT, 3) for name in "abcde"))
    running.step()
    stats = running.engine.stats()
    assert (stats.running, stats.waiting) == (2, 3)
    running.run()
    first_tokens = [e.request_id for e in running.events if isinstance(e, StepOutput)]
    assert sorted(set(first_tokens), key=first_tokens.index) == list("abcde")
    assert [running.finish(name) for name in "abcde"] == [["length"]] * 5


def test_a_request_joins_between_steps_and_changes_nobody_elses_tokens(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    model = load_tiny()
    first, second = make_request("first", PROMPT, 8), make_request("second", (9, 8, 7), 3)
    running = start_engine(model)
    running.submit(first)
    running.step(3)
    running.submit(second)
    running.run()
    assert running.tokens("first") == alone(model, start_engine, first)
    assert running.tokens("second") == alone(model, start_engine, second)


def test_a_long_prompt_is_read_in_chunks_while_others_go_on_decoding(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny(), prefill_chunk=8)
    running.submit(make_request("short", (5, 6), 20))
    running.step()
    running.submit(make_request("long", range(3, 43), 2))
    for num_steps in range(1, 5):
        running.step()
        assert len(running.tokens("short")) == 1 + num_steps
        assert running.tokens("long") == []
    running.step()
    assert len(running.tokens("long")) == 1


def test_a_bf16_batch_with_a_chunked_prompt_runs_to_its_end(
    tiny_folder: Path,
    load_model_folder: LoadModelFolder,
    start_engine: StartEngine,
    make_request: MakeRequest,
) -> None:
    model = load_model_folder(tiny_folder, dtype="bf16", max_batch=20, max_context=64)
    running = start_engine(model, prefill_chunk=16)
    running.submit(make_request("long", range(3, 53), 5))  # alone: its first steps want no logits at all
    running.step(2)
    # With these the batch grows to where it is computed in float32, and then shrinks below it again.
    running.submit(*(make_request(str(i), PROMPT, 2 + i % 7) for i in range(22)))
    running.run()
    assert len(running.tokens("long")) == 5
    assert [len(running.tokens(str(i))) for i in range(22)] == [2 + i % 7 for i in range(22)]
    assert not running.failures()


def test_a_step_reads_no_more_prompt_tokens_than_a_chunk_holds(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny(), prefill_chunk=8)
    running.submit(*(make_request(name, range(3, 8), 1) for name in "abc"))
    running.step()
    assert running.engine.stats().kv_used == 5 + 3 - 5  # a is done and gone, b has three of its five
    assert running.tokens("a") != []
    assert running.tokens("b") == []


def test_an_exclusive_request_waits_for_an_empty_batch_and_runs_alone(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny())
    running.submit(
        make_request("before", PROMPT, 3),
        make_request("exclusive", PROMPT, 4, is_exclusive=True),
        make_request("after", PROMPT, 2),
    )
    running.run()
    order = [e.request_id for e in running.events if isinstance(e, StepOutput)]
    assert order == ["before"] * 3 + ["exclusive"] * 4 + ["after"] * 2
    batches = [e.record.batch_size for e in running.events if isinstance(e, StepOutput)]
    assert batches == [1] * 9


# Ending


def test_max_tokens_ends_a_request_by_length(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny())
    running.submit(make_request("a", PROMPT, 1), make_request("b", PROMPT, 6))
    running.run()
    assert (len(running.tokens("a")), running.finish("a")) == (1, ["length"])
    assert (len(running.tokens("b")), running.finish("b")) == (6, ["length"])


def test_a_full_context_ends_a_request_by_length(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny(max_context=16))
    running.submit(make_request("a", range(3, 13), 1000), make_request("b", range(3, 18), 1000))
    running.run()
    assert (len(running.tokens("a")), running.finish("a")) == (6, ["length"])
    assert (len(running.tokens("b")), running.finish("b")) == (1, ["length"])


def test_the_end_of_sequence_is_emitted_and_ends_the_request_once(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    model = load_tiny()
    wants_eos = {"logit_bias": {2: 100.0}}
    running = start_engine(model)
    running.submit(
        make_request("stops", PROMPT, 5, sampling={"ignore_eos": False, **wants_eos}),
        make_request("ignores", PROMPT, 5, sampling={"ignore_eos": True, **wants_eos}),
    )
    running.run()
    assert (running.tokens("stops"), running.finish("stops")) == ([2], ["stop"])
    assert (running.tokens("ignores"), running.finish("ignores")) == ([2] * 5, ["length"])


def test_a_stop_token_of_the_request_ends_it(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    sampling = {"stop_token_ids": frozenset({77}), "logit_bias": {77: 100.0}}
    running = start_engine(load_tiny())
    running.submit(make_request("a", PROMPT, 5, sampling=sampling))
    running.run()
    assert (running.tokens("a"), running.finish("a")) == ([77], ["stop"])


def test_forced_tokens_are_emitted_and_observed_as_if_they_had_been_sampled(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    model = load_tiny()
    sampling = {"temperature": 0.9, "seed": 3}
    sampled, forced = start_engine(model), start_engine(model)
    sampled.submit(make_request("a", PROMPT, 4, sampling=sampling))
    sampled.run()
    tokens = sampled.tokens("a")

    # After the recorded four come an end of sequence and another token: a record ends where it ends.
    forced.submit(make_request("a", PROMPT, 100, forced_ids=(*tokens, 2, 9), sampling=sampling))
    forced.run()

    assert forced.tokens("a") == [*tokens, 2, 9]
    assert forced.finish("a") == ["length"]
    assert records(forced)[:4] == records(sampled)


def records(running: RunningEngine) -> list[StepRecord]:
    return [event.record for event in running.events if isinstance(event, StepOutput)]


def test_other_tokens_than_the_sampled_ones_can_be_forced(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    model = load_tiny()
    running = start_engine(model)
    running.submit(make_request("a", PROMPT, 100, forced_ids=(500, 501)))
    running.run()
    assert running.tokens("a") == [500, 501]
    logprobs = [model_logits(model, ids).log_softmax(-1) for ids in (PROMPT, (*PROMPT, 500))]
    expected = [float(logprobs[0][500]), float(logprobs[1][501])]
    assert [record.logprob for record in records(running)] == pytest.approx(expected, abs=1e-3)


def model_logits(model: LanguageModel, ids: Sequence[int]) -> Tensor:
    logits = model.forward([Piece(0, 0, tuple(ids), 1)])[0]
    model.clear(0, len(ids))
    return logits


# Cancelling


def test_cancelling_in_the_queue_in_prefill_and_in_decode_frees_everything(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny(num_slots=2), prefill_chunk=4)
    running.submit(
        make_request("decoding", (5, 6), 50),
        make_request("prefilling", range(3, 43), 50),
        make_request("queued", PROMPT, 50),
    )
    running.step(3)
    assert running.tokens("decoding") != []
    assert running.tokens("prefilling") == []
    for name in ("queued", "prefilling", "decoding"):
        running.engine.cancel(name)
        running.engine.cancel(name)  # idempotent
    assert not running.engine.has_work
    stats = running.engine.stats()
    assert (stats.running, stats.waiting, stats.kv_used) == (0, 0, 0)
    assert running.failures() == {}


def test_a_cancelled_requests_slot_serves_the_next_in_the_very_next_step(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny(num_slots=1))
    running.submit(make_request("a", PROMPT, 50), make_request("b", PROMPT, 3))
    running.step(2)
    running.engine.cancel("a")
    running.step()
    assert len(running.tokens("a")) == 2
    assert len(running.tokens("b")) == 1


def test_cancelling_an_unknown_request_does_nothing(load_tiny: LoadTiny, start_engine: StartEngine) -> None:
    start_engine(load_tiny()).engine.cancel("nobody")


def test_nothing_of_a_slots_last_request_reaches_the_next(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    request = make_request("same", PROMPT, 6)
    fresh = alone(load_tiny(num_slots=1), start_engine, request)

    used = load_tiny(num_slots=1)
    running = start_engine(used)
    running.submit(make_request("long", range(100, 150), 5), make_request("cancelled", range(50, 90), 9))
    running.step(7)
    running.engine.cancel("cancelled")
    running.submit(request)
    running.run()
    assert running.tokens("same") == fresh


# Failing


@pytest.fixture(scope="module")
def poisoned_folder(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny Llama with one token whose embedding is NaN, as a damaged checkpoint would have it."""
    folder = tmp_path_factory.mktemp("poisoned")
    weights = load_file(tiny_folder / "model.safetensors")
    weights["model.embed_tokens.weight"][666] = float("nan")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text((tiny_folder / "config.json").read_text())
    return folder


def test_a_row_of_nan_fails_alone_and_its_slot_is_clean_afterwards(
    poisoned_folder: Path,
    load_tiny: LoadTiny,
    load_model_folder: LoadModelFolder,
    start_engine: StartEngine,
    make_request: MakeRequest,
) -> None:
    neighbours = [make_request("left", PROMPT, 8), make_request("right", (7, 8, 9), 8)]
    expected = [alone(load_tiny(), start_engine, request) for request in neighbours]

    running = start_engine(load_model_folder(poisoned_folder, max_batch=3, max_context=64))
    running.submit(neighbours[0], make_request("poisoned", (5, 666, 7), 8), neighbours[1])
    running.step(2)
    assert list(running.failures()) == ["poisoned"]
    assert "NaN" in running.failures()["poisoned"]
    # The next request gets the slot that held NaN, between the two others and shorter than they are.
    running.submit(make_request("next", PROMPT, 8))
    running.run()
    assert [running.tokens("left"), running.tokens("right")] == expected
    assert running.tokens("next") == expected[0]


def test_a_prompt_cancelled_while_its_keys_were_nan_leaves_a_clean_slot(
    poisoned_folder: Path,
    load_tiny: LoadTiny,
    load_model_folder: LoadModelFolder,
    start_engine: StartEngine,
    make_request: MakeRequest,
) -> None:
    request = make_request("next", (7,), 5)
    expected = alone(load_tiny(), start_engine, request)
    running = start_engine(load_model_folder(poisoned_folder, max_batch=2, max_context=64), prefill_chunk=8)
    running.submit(make_request("long", PROMPT, 30))
    running.submit(make_request("poisoned", [666] * 30, 5))
    running.step(2)
    running.engine.cancel("poisoned")
    running.submit(request)
    running.run()
    assert running.tokens("next") == expected


class BreaksOnce:
    """A model whose next pass but ``passes`` fails half-way through, as one out of memory does."""

    def __init__(self, model: LanguageModel, passes: int) -> None:
        self._model = model
        self._passes = passes
        self.vocab_size = model.vocab_size
        self.num_slots = model.num_slots
        self.max_context = model.max_context
        self.dtype = model.dtype
        self.widens_products = model.widens_products
        self.kernels = model.kernels
        self.can_rewind = model.can_rewind
        self.can_drop_blocks = model.can_drop_blocks
        self.num_blocks = model.num_blocks
        self.step_cost = model.step_cost
        self.output_embedding = model.output_embedding

    def forward(self, pieces: Sequence[Piece]) -> Tensor:
        logits = self._model.forward(pieces)
        self._passes -= 1
        if self._passes == 0:
            raise torch.OutOfMemoryError("no memory for the last projection")
        return logits

    def save_blocks(self, slot: int, first: int, blocks: Sequence[int]) -> None:
        self._model.save_blocks(slot, first, blocks)

    def load_blocks(self, blocks: Sequence[int], slot: int) -> None:
        self._model.load_blocks(blocks, slot)

    def kept_rows(self, slot: int) -> KeptRows:
        return self._model.kept_rows(slot)

    def clear(self, slot: int, num_tokens: int) -> None:
        self._model.clear(slot, num_tokens)


def test_a_forward_pass_that_fails_takes_its_requests_with_it_and_the_engine_lives(
    load_tiny: LoadTiny,
    start_engine: StartEngine,
    make_request: MakeRequest,
    caplog: pytest.LogCaptureFixture,
) -> None:
    later = make_request("later", PROMPT, 5)
    expected = alone(load_tiny(), start_engine, later)
    running = start_engine(BreaksOnce(load_tiny(num_slots=2), passes=3))
    running.submit(make_request("a", (5, 6), 9), make_request("b", (7, 8), 9), later)
    running.run()
    assert set(running.failures()) == {"a", "b"}
    assert "no memory for the last projection" in running.failures()["a"]
    assert len(running.tokens("a")) == 2
    assert running.tokens("later") == expected
    assert running.engine.stats().kv_used == 0
    assert "a step failed" in caplog.text


def test_a_receiver_that_breaks_loses_its_own_request_only(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny())

    def break_off(event: EngineEvent) -> None:
        raise ConnectionError(event.request_id)

    broken = make_request("broken", PROMPT, 5)
    running.engine.submit(broken, running.engine.open(broken), break_off)
    running.submit(make_request("fine", PROMPT, 5))
    running.step()
    assert running.engine.stats().running == 1
    running.run()
    assert len(running.tokens("fine")) == 5


def test_an_id_that_is_in_use_fails_and_leaves_its_namesake_alone(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny())
    running.submit(make_request("same", PROMPT, 3), make_request("same", PROMPT, 3))
    running.run()
    assert isinstance(running.events[0], RequestFailed)
    assert len(running.tokens("same")) == 3


# Counting


def test_stats_count_levels_and_totals(
    load_tiny: LoadTiny, start_engine: StartEngine, make_request: MakeRequest
) -> None:
    running = start_engine(load_tiny(num_slots=2, max_context=64))
    running.submit(make_request("a", PROMPT, 4), make_request("b", PROMPT, 2))
    running.step(1)
    stats = running.engine.stats()
    assert (stats.kv_used, stats.kv_total) == (10, 128)
    assert (stats.steps, stats.tokens, stats.running) == (1, 2, 2)
    running.run()
    stats = running.engine.stats()
    assert (stats.kv_used, stats.steps, stats.tokens, stats.running) == (0, 4, 6, 0)
    last = running.events[-1]
    assert isinstance(last, StepOutput)
    assert (last.record.engine_step, last.record.batch_size) == (4, 1)


def test_the_tiny_model_is_the_one_that_transformers_loads(tiny_folder: Path, load_tiny: LoadTiny) -> None:
    reference = AutoModelForCausalLM.from_pretrained(str(tiny_folder), dtype=torch.float32)
    assert AutoConfig.from_pretrained(str(tiny_folder)).tie_word_embeddings is False
    with torch.inference_mode():
        expected = reference(torch.tensor([PROMPT])).logits[0, -1]
    torch.testing.assert_close(model_logits(load_tiny(), PROMPT), expected, rtol=1e-3, atol=1e-3)
