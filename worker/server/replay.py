"""``/replay``: decodes a recorded request again and answers every step. Nothing of it is written to Redis."""

from __future__ import annotations

import json
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from worker.errors import RequestError
from worker.protocol import STEP_COLUMNS, StepRecord
from worker.server.answer import JsonResponse
from worker.server.deps import Deps, deps_of
from worker.server.disconnect import until_client_leaves
from worker.server.generation import Generation
from worker.server.job import Job
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
    steps = Steps()
    async with Generation(job, [again], lambda _: (steps,), deps) as generation:
        [choice] = await until_client_leaves(request.receive, generation.collect())
    return JsonResponse(
        {
            "steps": steps.columns(),
            "tokens": [record.token_id for record in steps.records],
            "text": choice.text,
            "model": deps.model_name,
            "dtype": deps.engine.dtype,
        }
    )


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
        self.records: list[StepRecord] = []

    def add(self, record: StepRecord) -> None:
        self.records.append(record)

    def end(self, finish_reason: str) -> None:
        """Nothing to close."""

    def columns(self) -> dict[str, list[float]]:
        return {name: [getattr(record, name) for record in self.records] for name in STEP_COLUMNS}
