"""``/tokenize``: vLLM's form for one prompt, and ``prompts`` to count many at once."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from worker.errors import RequestError
from worker.server.answer import JsonResponse
from worker.server.deps import Deps, deps_of
from worker.server.parse import parse, read_body
from worker.server.prepare import check_model
from worker.server.schema import TokenizeBody


async def tokenize(request: Request) -> Response:
    """``{count, max_model_len, tokens}`` of one prompt; ``{counts, max_model_len}`` of many.

    Special tokens are added to a single prompt, as a completion would, and not to texts that are counted.
    """
    deps = deps_of(request)
    body = parse(TokenizeBody, await read_body(request, deps.settings.max_body_bytes), deps.unknown_fields)
    check_model(body.model, deps)
    given = [name for name in ("prompt", "messages", "prompts") if getattr(body, name) is not None]
    if len(given) != 1:
        raise RequestError(
            "exactly one of prompt, messages and prompts is needed", param=given[1] if given else "prompt"
        )
    if body.prompts is not None:
        encoded = await deps.prompts.texts(body.prompts, add_special_tokens=bool(body.add_special_tokens))
        return JsonResponse(
            {"counts": [len(ids) for ids in encoded], "max_model_len": deps.engine.max_context}
        )
    tokens = await _tokens(body, deps)
    return JsonResponse(
        {
            "count": len(tokens),
            "max_model_len": deps.engine.max_context,
            "tokens": tokens,
            "token_strs": None,
        }
    )


async def _tokens(body: TokenizeBody, deps: Deps) -> list[int]:
    if body.messages is not None:
        return await deps.prompts.chat(
            body.messages, add_generation_prompt=body.add_generation_prompt is not False
        )
    return await deps.prompts.text(body.prompt or "", add_special_tokens=body.add_special_tokens is not False)
