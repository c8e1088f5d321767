"""``/v1/completions``, the form without messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from worker.server.answer import Usage, answer, ended, head_of, tail_of
from worker.server.choice import Piece, TokenLogprob
from worker.server.deps import Deps, deps_of
from worker.server.generation import FinishedChoice
from worker.server.job import Job
from worker.server.logprobs import completion_logprobs
from worker.server.parse import parse, read_body
from worker.server.prepare import prepare_completion
from worker.server.schema import CompletionBody


async def create_completion(request: Request) -> Response:
    deps = deps_of(request)
    raw = await read_body(request, deps.settings.max_body_bytes)
    body = parse(CompletionBody, raw, deps.unknown_fields)
    job = await prepare_completion(body, deps)
    return await answer(request, deps, body, job, CompletionShape(body, job, deps))


class CompletionShape:
    """OpenAI's ``text_completion``, with a choice's summary as ``gravity``."""

    def __init__(self, body: CompletionBody, job: Job, deps: Deps) -> None:
        self._head = head_of("text_completion", body, job, deps)
        self._vocabulary = deps.engine.vocabulary
        self._num_logprobs = body.logprobs
        self._tail = tail_of(body)

    def whole(self, choices: Sequence[FinishedChoice], usage: Usage) -> dict[str, Any]:
        finished = [
            {
                "index": choice.index,
                "text": choice.text,
                "logprobs": self._logprobs(choice.logprobs),
                "finish_reason": choice.finish_reason,
                "gravity": choice.summary.model_dump(exclude_none=True),
            }
            for choice in choices
        ]
        return {**self._head, "choices": finished, "usage": usage}

    def chunks(self, piece: Piece) -> list[dict[str, Any]]:
        chunks = []
        if piece.text or piece.logprobs:
            chunks.append(self._chunk(piece.index, piece.text, self._logprobs(piece.logprobs)))
        if piece.finish_reason is not None:
            chunks.append(ended(self._chunk(piece.index, ""), piece))
        return chunks

    def usage_chunk(self, usage: Usage) -> dict[str, Any]:
        return {**self._head, "choices": [], "usage": usage}

    def _chunk(self, index: int, text: str, logprobs: Any = None) -> dict[str, Any]:
        choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": None}
        return {**self._head, "choices": [choice], **self._tail}

    def _logprobs(self, tokens: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        if self._num_logprobs is None:
            return None
        return completion_logprobs(self._vocabulary, tokens, num_top=self._num_logprobs)
