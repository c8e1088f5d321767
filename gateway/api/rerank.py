"""``POST /v1/rerank``: all documents by their keep-probability, in the shape that Cohere and Jina share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import orjson
from pydantic import Field, StringConstraints
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.bounds import require_bounds
from gateway.api.documents import normalised
from gateway.api.leaving import while_connected
from gateway.api.receive import read
from gateway.api.schema import Strict
from gateway.api.state import deps_of
from gateway.context.decide import PruneQuery
from gateway.context.pruner import MAX_DOCUMENTS
from gateway.context.rank import Ranked
from gateway.context.report import Document
from gateway.errors import EncoderError, EncoderUnavailable, InvalidRequest
from gateway.pool.tokens import estimated_tokens
from gateway.telemetry.logs import request_id

RANKER = "narrative-gravity"
"""The model where the request names none. Any name is accepted: clients must send one, and there is one."""
RETRY_AFTER_S = 5.0


class RerankRequest(Strict):
    """``max_tokens_per_doc`` is checked and changes nothing: long texts are judged whole, by their parts."""

    query: Annotated[str, StringConstraints(min_length=1)]
    documents: Annotated[list[Any], Field(min_length=1, max_length=MAX_DOCUMENTS)]
    model: Annotated[str, StringConstraints(max_length=512)] | None = None
    top_n: Annotated[int, Field(ge=1)] | None = None
    return_documents: bool | None = None
    max_tokens_per_doc: Annotated[int, Field(ge=1)] | None = None


async def rerank(request: Request) -> Response:
    """Answer with every document's place, the best first, or the ``top_n`` best."""
    deps = deps_of(request)
    sent, body = await read(request, deps, RerankRequest)
    if not sent.query.strip():
        raise InvalidRequest("query is empty.", param="query")
    documents = normalised(sent.documents)
    require_bounds(body, documents, deps.settings)
    name = request_id.get()
    async with deps.drain.turn():
        work = deps.pruner.rank(PruneQuery(sent.query, documents))
        try:
            ranked = await while_connected(request.scope, request.receive, work)
        except EncoderError as error:
            message = f"The documents cannot be ranked now: {error}."
            raise EncoderUnavailable(message, retry_after_s=RETRY_AFTER_S) from error
    num_tokens = sum(estimated_tokens(text) for text in [sent.query, *(each.text for each in documents)])
    answer = {
        "id": name,
        "model": sent.model or RANKER,
        "results": [
            _result(each, documents[each.index] if sent.return_documents else None)
            for each in ranked[: sent.top_n]
        ],
        "meta": _meta(ranked),
        "usage": {"total_tokens": num_tokens, "prompt_tokens": num_tokens},
    }
    return Response(orjson.dumps(answer), media_type="application/json")


def _result(ranked: Ranked, document: Document | None) -> dict[str, Any]:
    result: dict[str, Any] = {"index": ranked.index, "relevance_score": ranked.score}
    if document is not None:
        title = {"title": document.title} if document.title else {}
        result["document"] = {"text": document.text, **title, **document.metadata}
    return result


def _meta(ranked: Sequence[Ranked]) -> dict[str, Any]:
    meta: dict[str, Any] = {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}}
    num_unjudged = sum(not each.is_judged for each in ranked)
    if num_unjudged:
        meta["warnings"] = [
            f"{num_unjudged} of {len(ranked)} documents were not judged: "
            "the encoder cannot read their script or the query's."
        ]
    return meta
