"""Which requests are asked: twenty real chunks each, about 2,400 tokens of prompt before pruning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gateway.context.report import Document
from gateway.errors import CommandError
from gateway.evaluation.answering import messages_of
from gateway.evaluation.answers import answerable, drawn
from gateway.evaluation.subject import as_sent
from gateway.lab.labelled import LabelledRequest
from gateway.store.document import ContextSection

NUM_CHUNKS = 20
PROMPT_TOKENS = (2_000, 2_800)
Messages = Sequence[Mapping[str, Any]]
CountTokens = Callable[[Messages], int]


@dataclass(frozen=True, slots=True)
class Question:
    """``messages`` are what a model is given that reads every chunk; so many tokens they are."""

    request: LabelledRequest
    messages: Messages
    prompt_tokens: int

    @property
    def documents(self) -> tuple[Document, ...]:
        return as_sent(self.request)


def choose(
    requests: Sequence[LabelledRequest],
    num_questions: int,
    seed: int,
    prompt: tuple[ContextSection, CountTokens],
) -> list[Question]:
    """Return so many of ``requests``, drawn by ``seed``; ``prompt``: how chunks stand in it, and its length.

    Of one with more than twenty chunks the relevant ones stay, and of the others the first. Raises
    CommandError where there are too few of about the right length.
    """
    context, count_tokens = prompt
    chosen: list[Question] = []
    for request in drawn(answerable(requests), seed):
        if len(chosen) == num_questions:
            break
        if len(request.documents) < NUM_CHUNKS or len(request.relevant) > NUM_CHUNKS:
            continue
        fewer = of_twenty(request)
        messages = messages_of(fewer.question, as_sent(fewer), context)
        num_tokens = count_tokens(messages)
        if PROMPT_TOKENS[0] <= num_tokens <= PROMPT_TOKENS[1]:
            chosen.append(Question(fewer, messages, num_tokens))
    if len(chosen) < num_questions:
        low, high = PROMPT_TOKENS
        raise CommandError(
            f"only {len(chosen)} requests have {NUM_CHUNKS} chunks and {low} to {high} tokens together"
        )
    return chosen


def of_twenty(request: LabelledRequest) -> LabelledRequest:
    """Return the request with twenty of its chunks, in their order."""
    others = [place for place in range(len(request.documents)) if place not in request.relevant]
    kept = request.relevant | set(others[: NUM_CHUNKS - len(request.relevant)])
    return replace(request, documents=tuple(request.documents[place] for place in sorted(kept)))
