"""The engine on its own thread, spoken to from others, with the real small model."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from worker.engine.loop import EngineLoop, EngineSettings
from worker.engine.request import EngineEvent, StepOutput
from worker.errors import ContextTooLongError
from worker.protocol import DecodeControls

if TYPE_CHECKING:
    from tests.conftest import WaitUntil
    from tests.worker.engine.conftest import MakeRequest

SETTINGS = {"dtype": "fp32", "num_threads": 1, "max_batch": 3, "max_context": 128, "prefill_chunk": 32}


@pytest.fixture(scope="module")
def loop(model_path: Path) -> Iterator[EngineLoop]:
    loop = EngineLoop.load(EngineSettings(model_path, **SETTINGS))  # type: ignore[arg-type]
    loop.start()
    yield loop
    loop.stop()


class Answer:
    """Collects what one request is given."""

    def __init__(self) -> None:
        self.events: list[EngineEvent] = []
        self.threads: set[str] = set()
        self.is_finished = threading.Event()

    def __call__(self, event: EngineEvent) -> None:
        self.events.append(event)
        self.threads.add(threading.current_thread().name)
        if not isinstance(event, StepOutput) or event.finish_reason:
            self.is_finished.set()

    @property
    def tokens(self) -> list[int]:
        return [event.token_id for event in self.events if isinstance(event, StepOutput)]


def test_the_loop_describes_its_model(loop: EngineLoop, model_path: Path, tokenizer: Any) -> None:
    assert loop.model_name == model_path.name
    assert loop.max_context == 128
    assert loop.dtype == "fp32"
    assert loop.tokenizer.encode("sea") == tokenizer.encode("sea")
    assert loop.vocabulary.eos_ids >= {2}
    assert loop.is_alive


def test_an_answer_ends_by_the_chat_models_end_of_turn(
    loop: EngineLoop, tokenizer: Any, make_request: MakeRequest
) -> None:
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Name three fruits."}], add_generation_prompt=True, return_dict=False
    )
    answer = Answer()
    loop.submit(make_request("fruits", ids, 60, sampling={"ignore_eos": False}), answer)
    assert answer.is_finished.wait(60)
    last = answer.events[-1]
    assert isinstance(last, StepOutput)
    assert (last.finish_reason, last.token_id) == ("stop", tokenizer.eos_token_id)
    assert answer.threads == {"engine"}


def test_threads_submit_at_once_and_each_gets_its_own_answer(
    loop: EngineLoop, tokenizer: Any, make_request: MakeRequest
) -> None:
    texts = [f"{number} sheep went to sea and" for number in ("One", "Two", "Three", "Four", "Five")]
    answers = {text: Answer() for text in texts}

    def submit(text: str) -> None:
        loop.submit(make_request(text, tokenizer.encode(text), 6), answers[text])

    threads = [threading.Thread(target=submit, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(answer.is_finished.wait(60) for answer in answers.values())
    assert [len(answer.tokens) for answer in answers.values()] == [6] * 5


def test_a_refusal_reaches_the_thread_that_submits(loop: EngineLoop, make_request: MakeRequest) -> None:
    with pytest.raises(ContextTooLongError, match="200 tokens"):
        loop.submit(make_request("long", [5] * 200), Answer())


def test_cancelling_stops_the_events_and_frees_the_slot(
    loop: EngineLoop, make_request: MakeRequest, wait_until: WaitUntil
) -> None:
    answer = Answer()
    loop.submit(make_request("endless", (5, 6, 7), 120), answer)
    wait_until(lambda: len(answer.events) >= 2)
    loop.cancel("endless")
    loop.cancel("endless")
    loop.cancel("nobody")
    wait_until(lambda: loop.stats().running == 0)
    assert loop.stats().kv_used == 0
    assert not answer.is_finished.is_set()
    after = Answer()
    loop.submit(make_request("after", (5, 6, 7), 2), after)
    assert after.is_finished.wait(60)
    assert answer.tokens[: len(after.tokens)] == after.tokens


def test_controls_of_one_request_leave_its_neighbour_alone(
    loop: EngineLoop, tokenizer: Any, make_request: MakeRequest
) -> None:
    ids = tokenizer.encode("The sea was calm and the")
    controls = DecodeControls.model_validate(
        {"gravity": {"strength": 20.0, "boost_weight": 1.0, "keywords": ["harbour"], "plausible": 0.0,
                     "max_bias_nats": 20.0}}
    )  # fmt: skip
    alone, plain, pulled = Answer(), Answer(), Answer()
    loop.submit(make_request("alone", ids, 6), alone)
    assert alone.is_finished.wait(60)
    loop.submit(make_request("plain", ids, 6), plain)
    loop.submit(make_request("pulled", ids, 6, controls=controls), pulled)
    assert plain.is_finished.wait(60)
    assert pulled.is_finished.wait(60)
    assert plain.tokens == alone.tokens
    assert "harbour" in tokenizer.decode(pulled.tokens)


def test_a_stopped_loop_ends_its_thread_and_may_be_stopped_again(model_path: Path) -> None:
    loop = EngineLoop.load(EngineSettings(model_path, **SETTINGS))  # type: ignore[arg-type]
    loop.stop()  # before it was ever started
    loop = EngineLoop.load(EngineSettings(model_path, **SETTINGS))  # type: ignore[arg-type]
    loop.start()
    loop.stop()
    loop.stop()
    assert not loop.is_alive
    assert torch.get_num_threads() == 1
