"""Stage 3: the documents that stay, with a verdict on each. No request fails here."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from gateway.context.decide import PruneOptions, PruneQuery, unpruned_report
from gateway.context.report import PruneReport
from gateway.flow.turn import Turn
from gateway.store.document import ContextSection, TaskDocument
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
    task = turn.task or TaskDocument(task_type="default")
    try:
        report = await _judged(turn, task.context, deps)
    except Exception:  # an answer from everything is better than none
        logger.exception("prune_failed")
        why = "Not pruned: pruning failed inside the gateway."
        report = unpruned_report(turn.documents, ([0] * len(turn.documents), True), why, note=why)
    if report.note:
        log(logger, logging.INFO, "prune_note", turn=turn.id, note=report.note)
    return replace(turn, prune_report=report)


async def _judged(turn: Turn, context: ContextSection, deps: Deps) -> PruneReport:
    query = PruneQuery(turn.question, turn.documents)
    options = PruneOptions(context.keep, context.token_budget, context.template)
    count_tokens = deps.pool.token_counter(turn.model)
    if not turn.assignment.pruning:
        return await deps.pruner.keep_all(query, options, count_tokens, OFF_IN_LANE)
    if not context.pruning:
        return await deps.pruner.keep_all(query, options, count_tokens, OFF_IN_TASK)
    return await deps.pruner.prune(query, options, count_tokens)
