"""``gravity bench rag``: what it asks, its figures, and one question at the real product."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.bench.rag.asking import Round, Sides, order_of
from gateway.bench.rag.figures import ARMS, Answer, Arm, Asked, arm_figures
from gateway.bench.rag.measure import DTYPES
from gateway.bench.rag.questions import NUM_CHUNKS, Messages, Question, choose, of_twenty
from gateway.bench.rag.rival import generating
from gateway.bench.rag.task import LIKE, TASK, write_task
from gateway.bench.usage import Usage
from gateway.errors import CommandError
from gateway.evaluation.answering import messages_of
from gateway.evaluation.subject import as_sent
from gateway.lab.labelled import LabelledDocument, LabelledRequest
from gateway.stack.environment import config_folder
from gateway.store.document import ContextSection
from gateway.store.watch import ConfigStore
from tests.conftest import ServedStack


def request(identifier: str, num_chunks: int, relevant: frozenset[int], words: int = 1) -> LabelledRequest:
    documents = tuple(
        LabelledDocument(
            f"d{place}", f"{identifier} {place}" + " word" * words, is_relevant=place in relevant
        )
        for place in range(num_chunks)
    )
    return LabelledRequest(identifier, "made", "Which word?", documents, ("word",))


def answer(wall_s: float, cpu_s: float, text: str = "no") -> Answer:
    return Answer(text, wall_s, cpu_s, 100, 48, 4)


def asked(identifier: str, generate_s: float, ours_s: float, right: str = "") -> Asked:
    arms: dict[Arm, Answer] = dict.fromkeys(ARMS, answer(ours_s, 2 * ours_s, "It is green."))
    arms["generate"] = answer(generate_s, generate_s, right)
    return Asked(identifier, ("green",), arms)


def test_of_many_chunks_the_relevant_and_the_first_stay_in_their_order() -> None:
    fewer = of_twenty(request("a", 25, frozenset({3, 22, 24})))
    assert [document.id for document in fewer.documents] == [
        *(f"d{place}" for place in range(18)),
        "d22",
        "d24",
    ]
    assert fewer.relevant == {3, 18, 19}


def test_questions_have_twenty_chunks_and_about_the_length_that_is_asked_for() -> None:
    requests = [
        request("short", 20, frozenset({0}), 1),
        request("few", 19, frozenset({0}), 120),
        *(request(f"right-{number}", 20, frozenset({0}), 120) for number in range(4)),
        request("long", 20, frozenset({0}), 200),
    ]

    def count_words(messages: Messages) -> int:
        return sum(len(str(message["content"]).split()) for message in messages)

    prompt = (ContextSection(), count_words)
    chosen = choose(requests, 3, 0, prompt)
    assert {each.request.id[:5] for each in chosen} == {"right"}
    assert all(2_000 <= each.prompt_tokens <= 2_800 for each in chosen)
    assert chosen == choose(requests, 3, 0, prompt)
    with pytest.raises(CommandError, match="only 4 requests have 20 chunks and 2000 to 2800 tokens"):
        choose(requests, 5, 0, prompt)


def test_generate_takes_every_place_in_turn_and_ours_keep_their_order() -> None:
    orders = [order_of(place) for place in range(4)]
    assert [order.index("generate") for order in orders] == [0, 1, 2, 3]
    assert {tuple(arm for arm in order if arm != "generate") for order in orders} == {
        ("cold", "warm", "again")
    }


def test_speedups_are_sums_over_questions_and_rounds_of_a_question_count_once() -> None:
    rounds = [asked("a", 8.0, 1.0, "green"), asked("a", 8.0, 3.0, "green"), asked("b", 4.0, 1.0, "blue")]
    figures = arm_figures(rounds, "cold")
    assert figures.speedup_wall is not None
    assert figures.speedup_wall.mean == pytest.approx((8 + 4) / (2 + 1))
    assert (figures.speedup_wall.low, figures.speedup_wall.high) == (4.0, 4.0)  # of both questions
    assert figures.speedup_cpu is not None
    assert figures.speedup_cpu.mean == pytest.approx(2.0)
    assert figures.wall_s.mean == pytest.approx(1.5)
    assert figures.answer_rate.mean == 1.0
    assert figures.rate_difference is not None
    assert figures.rate_difference.mean == pytest.approx(0.5)
    generate = arm_figures(rounds, "generate")
    assert generate.speedup_wall is generate.rate_difference is None
    assert generate.answer_rate.mean == pytest.approx(0.5)


def test_the_task_is_the_configured_one(tmp_path: Path) -> None:
    write_task(tmp_path / "configs")
    tasks = ConfigStore.open(tmp_path / "configs").snapshot.tasks
    like = ConfigStore.open(config_folder()).snapshot.tasks[LIKE]
    assert tasks[TASK].speculation.mode == "entropy"
    assert (tasks[TASK].context, tasks[TASK].gravity) == (like.context, like.gravity)
    assert tasks[TASK].sampling == like.sampling


def test_cold_warm_and_known_requests_are_what_they_are_called(
    served: ServedStack, model_path: Path, tokenizer: Any
) -> None:
    chunks = request("The colour of the boat is", 20, frozenset({0}), 6)
    messages = messages_of(chunks.question, as_sent(chunks), ContextSection())
    question = Question(chunks, messages, 0)

    async def one_round() -> list[Asked]:
        async with generating(model_path, DTYPES["fp32"], 1) as rival:
            usages = (Usage(served.running.process.pid, "gravity up"),)
            sides = Sides(served.gateway_url, served.redis_url, usages, rival, "default", 6)
            return await Round(0, sides, lambda said: None).ask_all([question])

    (found,) = asyncio.run(one_round())
    cold, warm, again, theirs = (found.answers[arm] for arm in ("cold", "warm", "again", "generate"))
    assert cold.num_encodings_found == 0
    assert warm.num_encodings_found == again.num_encodings_found == NUM_CHUNKS + 1
    assert warm.cached_prompt_tokens < 16 <= again.cached_prompt_tokens
    assert again.prompt_tokens == warm.prompt_tokens
    assert warm.num_chunks <= theirs.num_chunks == NUM_CHUNKS
    assert {each.completion_tokens for each in found.answers.values()} == {6}
    assert all(each.cpu_s > 0.0 for each in found.answers.values())
    named = f"generate 0 {chunks.id}. You answer from documents."
    everything = [{"role": "system", "content": named}, *messages]
    text = tokenizer.apply_chat_template(everything, tokenize=False, add_generation_prompt=True)
    assert theirs.prompt_tokens == len(tokenizer.encode(text, add_special_tokens=False))
