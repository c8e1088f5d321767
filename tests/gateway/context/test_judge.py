from __future__ import annotations

import time

import faiss
import numpy as np
import torch

from gateway.context.asked import ask
from gateway.context.encoding import Encoding, unit
from gateway.context.judge import judge, sort_out
from gateway.context.report import Document
from gateway.context.selector import Selector

QUESTION = "Which of the Brightwater mills ground the flour for Ostrey?"


def encoding(rng: np.random.Generator, num_tokens: int) -> Encoding:
    tokens = unit(rng.normal(size=(num_tokens, 384)).astype(np.float32))
    whole = unit(tokens.sum(axis=0))
    ids = rng.integers(1000, 30_000, num_tokens).astype(np.int32)
    return Encoding(whole, whole[None], unit(tokens[:5]), tokens.astype(np.float16), ids)


def chunks(rng: np.random.Generator, num_chunks: int) -> tuple[Document, ...]:
    """Chunks of 90 words from a vocabulary of 3,000, every seventh word a name."""
    documents = []
    for index in range(num_chunks):
        numbers = rng.integers(0, 3000, 90).tolist()
        words = [f"Name{n}" if position % 7 == 0 else f"word{n}" for position, n in enumerate(numbers)]
        documents.append(Document(f"d{index}", " ".join(words) + ".", f"Title of {index}"))
    return tuple(documents)


def test_documents_are_told_apart_before_anything_is_encoded() -> None:
    text = "The mill at Ostrey ground flour for six villages until the river was diverted."
    documents = [
        Document("0", " "),
        Document("1", text),
        Document("2", "奥斯特里的磨坊为六个村庄磨面粉"),
        Document("3", "Again: " + text),
        Document("4", "Another subject."),
    ]
    sorting = sort_out(QUESTION, documents)
    assert sorting.empty == {0}
    assert sorting.copies == {3: 1}
    assert sorting.unjudged == {2}
    assert sorting.judged == (1, 4)


def test_under_a_question_in_another_script_nothing_is_judged() -> None:
    sorting = sort_out("哪个磨坊？", [Document("0", "Flour."), Document("1", "面粉")])
    assert sorting.judged == ()
    assert sorting.unjudged == {0, 1}


def test_judging_costs_little_beside_the_encoder() -> None:
    """This thread's processor time, widely bounded: ``gravity eval context`` has the figures."""
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    rng = np.random.default_rng(11)
    scorer = Selector.load().scorers["full"]
    asked = ask(QUESTION, encoding(rng, 14))
    for num_chunks, limit_ms in ((20, 60.0), (100, 300.0)):
        documents = chunks(rng, num_chunks)
        encodings = [encoding(rng, 130) for _ in documents]
        durations = []
        for _ in range(5):
            started = time.thread_time()
            sorting = sort_out(QUESTION, documents)
            judgement = judge(asked, sorting, documents, encodings, scorer)
            durations.append((time.thread_time() - started) * 1e3)
        assert len(judgement.probability) == num_chunks
        assert min(durations) <= limit_ms
