"""Stage 3: the documents that stay, with a verdict on each. No request fails here."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from gateway.context.decide import PruneOptions, PruneQuery, unpruned_report
from gateway.context.report import PruneReport
from gateway.flow.turn import Turn
from gateway.store.document import ContextSection
from gateway.telemetry.logs import log

if TYPE_CHECKING:
    from gateway.flow.deps import Deps

OFF_IN_LANE = "Pruning is off in this lane."
OFF_IN_TASK = "Pruning is off for this task."

logger = logging.getLogger(__name__)


async def prune(turn: Turn, deps: Deps) -> Turn:
    """Judge the turn's documents. Where that cannot be done all of them stay, and the report says why."""
    if not turn.documents:
        return turn
    context = turn.task.context if turn.task is not None else ContextSection()
    if turn.shed:
        context = deps.shedding.context_for(turn, context)
    query = PruneQuery(turn.question, turn.documents, turn.history)
    if turn.assignment.pruning:
        report = await report_on(query, context, turn.model, deps)
    else:
        report = await _untouched(query, context, turn.model, OFF_IN_LANE, deps)
    if report.note:
        log(logger, logging.INFO, "prune_note", turn=turn.id, note=report.note)
    return turn.grown(prune_report=report)


async def report_on(query: PruneQuery, context: ContextSection, model: str, deps: Deps) -> PruneReport:
    """Judge ``query`` as ``context`` says; its tokens are counted as ``model`` counts them, or estimated."""
    if not context.pruning:
        return await _untouched(query, context, model, OFF_IN_TASK, deps)
    work = deps.pruner.prune(query, _options(context), deps.pool.token_counter(model))
    return await _or_everything(query, work)


async def _untouched(
    query: PruneQuery, context: ContextSection, model: str, why: str, deps: Deps
) -> PruneReport:
    work = deps.pruner.keep_all(query, _options(context), deps.pool.token_counter(model), why)
    return await _or_everything(query, work)


async def _or_everything(query: PruneQuery, work: Awaitable[PruneReport]) -> PruneReport:
    """Return what ``work`` gives. Where it breaks all stay: an answer from everything is better than none."""
    try:
        return await work
    except Exception:
        logger.exception("prune_failed")
        why = "Not pruned: pruning failed inside the gateway."
        return unpruned_report(query.documents, ([0] * len(query.documents), True), why, note=why)


def _options(context: ContextSection) -> PruneOptions:
    return PruneOptions(context.keep, context.token_budget, context.template, context.encoder)
