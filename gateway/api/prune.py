"""``POST /v1/prune``: a turn's pruning without the turn, for those whose model lives elsewhere."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Annotated, Any

import orjson
from pydantic import Field, StringConstraints
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.bounds import require_bounds
from gateway.api.caller import require_use
from gateway.api.documents import normalised
from gateway.api.leaving import while_connected
from gateway.api.receive import history_of, question_of, read
from gateway.api.schema import Message, Strict
from gateway.api.state import deps_of
from gateway.context.decide import PruneQuery
from gateway.context.render import kept_in_order
from gateway.context.report import Document, PruneReport, Verdict
from gateway.errors import InvalidRequest
from gateway.flow.assign import requested_task
from gateway.flow.explain import pruning, verdict_on
from gateway.flow.prune import report_on
from gateway.flow.shape import render_context
from gateway.store.document import ContextSection, Keep, Order, TokenBudget
from gateway.telemetry.logs import log, request_id

logger = logging.getLogger(__name__)


class PruneRequest(Strict):
    """The documents, what they are judged against, and what is to differ from the task."""

    documents: list[Any]
    query: str | None = None
    messages: Annotated[list[Message], Field(min_length=1)] | None = None
    model: Annotated[str, StringConstraints(max_length=512)] | None = None
    task: str | None = None
    keep: Keep | None = None
    token_budget: TokenBudget | None = None
    order: Order | None = None


async def prune(request: Request) -> Response:
    """Answer with the kept documents, the verdict on each that was sent, and the prompt that they make."""
    deps = deps_of(request)
    sent, body = await read(request, deps, PruneRequest)
    require_use(request, deps, sent.model, sent.task or "")
    query = asked(body)
    require_bounds(body, query.documents, deps.settings)
    snapshot = deps.config.snapshot
    task = requested_task(sent.task or "", snapshot.tasks)
    context = overridden(task.context, sent)
    async with deps.drain.turn():
        work = report_on(query, context, sent.model or "", deps)
        report = await while_connected(request.scope, request.receive, work)
    if report.note:
        log(logger, logging.INFO, "prune_note", note=report.note)
    answer = {
        "id": request_id.get(),
        "object": "prune",
        "model": sent.model,
        "task": task.task_type,
        "config_sha": snapshot.sha,
        **_found(query.documents, report, context),
    }
    return Response(orjson.dumps(answer), media_type="application/json")


def asked(body: dict[str, Any]) -> PruneQuery:
    """Return the question, what was said before it, and the documents. Raises InvalidRequest."""
    query, messages = body.get("query"), body.get("messages")
    if (query is None) == (messages is None):
        raise InvalidRequest("Send either query or messages.", param="query")
    field = "messages" if query is None else "query"
    question = question_of(body) if query is None else query
    if not question.strip():
        raise InvalidRequest(f"{field} has no question to judge the documents against.", param=field)
    history = history_of(body) if query is None else ()
    return PruneQuery(question, normalised(body["documents"]), history)


def overridden(context: ContextSection, sent: PruneRequest) -> ContextSection:
    """Return the task's section with what the request changes."""
    changes = {"keep": sent.keep, "token_budget": sent.token_budget, "order": sent.order}
    return context.model_copy(update={name: value for name, value in changes.items() if value is not None})


def _found(documents: Sequence[Document], report: PruneReport, context: ContextSection) -> dict[str, Any]:
    kept = kept_in_order(report.verdicts, context.order)
    return {
        "documents": [_kept(index, documents[index], report.verdicts[index]) for index in kept],
        "verdicts": [{"index": index, **verdict_on(each)} for index, each in enumerate(report.verdicts)],
        **pruning(report),
        "num_clusters": report.num_clusters,
        "encode_ms": round(report.encode_ms, 3),
        "select_ms": round(report.select_ms, 3),
        "num_cache_hits": report.num_cache_hits,
        "context": render_context(documents, report, context),
    }


def _kept(index: int, document: Document, verdict: Verdict) -> dict[str, Any]:
    return {
        "index": index,
        "id": document.id,
        "title": document.title,
        "text": document.text,
        "metadata": dict(document.metadata),
        "score": verdict.score,
        "reason": verdict.reason,
        "detail": verdict.detail,
    }
