"""``/replay``: decodes a recorded request again and answers every step. Nothing of it is written to Redis."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from worker.decode.vocabulary import Vocabulary
from worker.engine.request import StepOutput, TopTokens
from worker.errors import RequestError
from worker.protocol import STEP_COLUMNS
from worker.server.answer import JsonResponse
from worker.server.deps import Deps, deps_of
from worker.server.disconnect import until_client_leaves
from worker.server.generation import Generation
from worker.server.job import Job
from worker.server.logprobs import finite
from worker.server.parse import parse, read_body
from worker.server.prepare import prepare_chat, prepare_completion
from worker.server.schema import ChatBody, CompletionBody, ReplayBody


async def replay(request: Request) -> Response:
    """With ``tokens`` they are fed under the recorded controls; without, the request samples again, alone."""
    deps = deps_of(request)
    body = parse(ReplayBody, await read_body(request, deps.settings.max_body_bytes), deps.unknown_fields)
    forced = _forced_tokens(body, deps)
    job = await _recorded_job(body, deps)
    requests = job.requests()
    if body.choice >= len(requests):
        raise RequestError(f"the request has {len(requests)} choices", param="choice")
    again = replace(requests[body.choice], forced_ids=forced, is_exclusive=not forced)
    if body.num_top is not None:
        shown = replace(again.sampling, num_top_logprobs=body.num_top)
        again = replace(again, sampling=shown, num_top_after=body.num_top)
    steps = Steps()
    async with Generation(job, [again], lambda _: (steps,), deps) as generation:
        [choice] = await until_client_leaves(request.receive, generation.collect())
    answer = {
        "steps": steps.columns(),
        "tokens": steps.tokens(),
        "text": choice.text,
        "model": deps.model_name,
        "dtype": deps.engine.dtype,
    }
    if body.num_top is not None:
        answer |= {"environment": dict(deps.environment), **steps.shown(deps.engine.vocabulary)}
    return JsonResponse(answer)


def _forced_tokens(body: ReplayBody, deps: Deps) -> tuple[int, ...]:
    size = deps.engine.vocabulary.size
    if any(not 0 <= token_id < size for token_id in body.tokens or ()):
        raise RequestError(f"tokens holds an id outside the vocabulary of {size}", param="tokens")
    return tuple(body.tokens or ())


async def _recorded_job(body: ReplayBody, deps: Deps) -> Job:
    """Read the recorded request exactly as the endpoint would."""
    raw = json.dumps(body.request).encode()
    if body.endpoint == "/v1/chat/completions":
        return await prepare_chat(parse(ChatBody, raw, deps.unknown_fields), deps)
    return await prepare_completion(parse(CompletionBody, raw, deps.unknown_fields), deps)


class Steps:
    """Keeps the steps of one choice."""

    def __init__(self) -> None:
        self._outputs: list[StepOutput] = []

    def add(self, output: StepOutput) -> None:
        self._outputs.append(output)

    def end(self, finish_reason: str) -> None:
        """Nothing to close."""

    def tokens(self) -> list[int]:
        return [output.token_id for output in self._outputs]

    def columns(self) -> dict[str, list[float]]:
        records = [output.record for output in self._outputs]
        return {name: [getattr(record, name) for record in records] for name in STEP_COLUMNS}

    def shown(self, vocabulary: Vocabulary) -> dict[str, Any]:
        """``pieces``: each token's text. ``top``: per step the likeliest ``{id, piece, logprob}``.

        ``top`` is of the model's own distribution, ``top_after`` of it after penalties and gravity.
        """
        return {
            "pieces": [vocabulary.text(token_id) for token_id in self.tokens()],
            "top": [_named(vocabulary, output.top_logprobs) for output in self._outputs],
            "top_after": [_named(vocabulary, output.top_after) for output in self._outputs],
        }


def _named(vocabulary: Vocabulary, top: TopTokens) -> list[dict[str, Any]]:
    return [
        {"id": token_id, "piece": vocabulary.text(token_id), "logprob": finite(logprob)}
        for token_id, logprob in top
    ]
