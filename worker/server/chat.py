"""``/v1/chat/completions``."""

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
from worker.server.logprobs import chat_logprobs
from worker.server.parse import parse, read_body
from worker.server.prepare import prepare_chat
from worker.server.schema import ChatBody


async def create_chat_completion(request: Request) -> Response:
    deps = deps_of(request)
    raw = await read_body(request, deps.settings.max_body_bytes)
    body = parse(ChatBody, raw, deps.unknown_fields)
    job = await prepare_chat(body, deps)
    return await answer(request, deps, body, job, ChatShape(body, job, deps))


class ChatShape:
    """OpenAI's ``chat.completion`` and ``chat.completion.chunk``, with a choice's summary as ``gravity``."""

    def __init__(self, body: ChatBody, job: Job, deps: Deps) -> None:
        self._head = head_of("chat.completion", body, job, deps)
        self._vocabulary = deps.engine.vocabulary
        self._wants_logprobs = bool(body.logprobs)
        self._tail = tail_of(body)
        self._opened: set[int] = set()

    def whole(self, choices: Sequence[FinishedChoice], usage: Usage) -> dict[str, Any]:
        return {
            **self._head,
            "choices": [
                {
                    "index": choice.index,
                    "message": {"role": "assistant", "content": choice.text, "refusal": None},
                    "logprobs": self._logprobs(choice.logprobs),
                    "finish_reason": choice.finish_reason,
                    "gravity": choice.summary.model_dump(exclude_none=True),
                }
                for choice in choices
            ],
            "usage": usage,
        }

    def chunks(self, piece: Piece) -> list[dict[str, Any]]:
        chunks = []
        if piece.index not in self._opened:
            self._opened.add(piece.index)
            chunks.append(self._chunk(piece.index, {"role": "assistant", "content": ""}))
        if piece.text or piece.logprobs:
            chunks.append(self._chunk(piece.index, {"content": piece.text}, self._logprobs(piece.logprobs)))
        if piece.finish_reason is not None:
            chunks.append(ended(self._chunk(piece.index, {}), piece))
        return chunks

    def usage_chunk(self, usage: Usage) -> dict[str, Any]:
        return {**self._head, "object": "chat.completion.chunk", "choices": [], "usage": usage}

    def _chunk(self, index: int, delta: dict[str, Any], logprobs: Any = None) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": None}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice], **self._tail}

    def _logprobs(self, tokens: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        return chat_logprobs(self._vocabulary, tokens) if self._wants_logprobs else None
