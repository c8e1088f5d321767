"""One worker, one request at a time."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import httpx
import pytest

from gateway.context.report import Document
from gateway.errors import CommandError
from gateway.evaluation.answering import MAX_TOKENS, AnsweringWorker, ProcessClock, messages_of
from gateway.store.document import ContextSection

CONTEXT = ContextSection(preamble="Read this.", template="[{id}] {title}\n{text}")
BOAT = Document("d1", "The boat is blue.", "Boat")
HOUSE = Document("d2", "The house is white.")


def test_the_prompt_is_the_products_own() -> None:
    (message,) = messages_of("Which colour is the boat?", [BOAT, HOUSE], CONTEXT)
    assert message["role"] == "user"
    assert message["content"] == (
        "Read this.\n\n[d1] Boat\nThe boat is blue.\n\n[d2]\nThe house is white.\n\nWhich colour is the boat?"
    )


def test_without_documents_there_is_the_question_alone() -> None:
    (message,) = messages_of("Which {colour}?", [], CONTEXT)
    assert message["content"] == "Which {colour}?"


async def test_an_answer_is_the_models_greedy_one_and_what_it_took(
    answering: AnsweringWorker, worker_server: Any
) -> None:
    messages = messages_of("Which colour is the boat?", [BOAT], CONTEXT)
    found = await answering.answer(messages)
    body = {"model": answering.model, "messages": messages, "max_tokens": MAX_TOKENS, "temperature": 0}
    async with httpx.AsyncClient(base_url=worker_server.url, timeout=60) as client:
        whole = (await client.post("/v1/chat/completions", json=body)).json()
    assert found.text == whole["choices"][0]["message"]["content"]
    assert "blue" in found.text.lower()
    assert found.prompt_tokens == whole["usage"]["prompt_tokens"]
    assert found.completion_tokens == whole["usage"]["completion_tokens"]
    assert 0.0 < found.ttft_s < found.total_s
    assert 0.0 < found.cpu_s <= worker_server.cpu_s()


async def test_tokens_are_the_models_own(answering: AnsweringWorker, tokenizer: Any) -> None:
    texts = ["The boat is blue.", "", "Röntgen 1889"]
    counts = [len(tokenizer.encode(text, add_special_tokens=False)) for text in texts]
    assert await answering.count_tokens(texts) == (counts, False)


async def test_as_many_documents_as_fit_are_shown_from_the_first(
    answering: AnsweringWorker, tokenizer: Any
) -> None:
    documents = [Document(f"d{n}", "The boat sails on and on. " * (3 + n % 5)) for n in range(60)]

    def length(shown: int) -> int:
        messages = messages_of("Where?", documents[:shown], CONTEXT)
        prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return len(tokenizer.encode(prompt, add_special_tokens=False))

    fitting = await answering.num_fitting("Where?", documents, CONTEXT)
    assert answering.max_context == 1024
    assert length(fitting) + MAX_TOKENS <= 1024 < length(fitting + 1) + MAX_TOKENS
    assert await answering.num_fitting("Where?", documents[:3], CONTEXT) == 3
    assert await answering.num_fitting("Where?", [], CONTEXT) == 0


async def test_a_question_that_fits_no_context_is_the_workers_refusal(answering: AnsweringWorker) -> None:
    question = "where " * 2000
    assert await answering.num_fitting(question, [BOAT], CONTEXT) == 0
    with pytest.raises(CommandError, match=r"refused the request \(400\).*maximum context length"):
        await answering.answer(messages_of(question, [], CONTEXT))


async def test_a_worker_that_is_not_there_is_an_error_of_the_command(free_port: Any) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{free_port()}") as client:
        with pytest.raises(CommandError, match="does not answer"):
            await AnsweringWorker.connect(client, os.getpid())


def test_the_clock_counts_children_and_notices_the_end() -> None:
    busy = "n = 0\nwhile n < 3_000_000: n += 1\nprint('done', flush=True); input()"
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {busy!r}])"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", nested], **pipes, text=True)  # type: ignore[call-overload]
    clock = ProcessClock(process.pid)
    assert process.stdout.readline() == "done\n"
    assert clock.cpu_s() >= 0.05
    process.communicate("\n", timeout=10)
    with pytest.raises(CommandError, match=f"the worker, process {process.pid}, has ended"):
        clock.cpu_s()
