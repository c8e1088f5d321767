"""The prune stage: what lane and task say is honoured, and no request fails in it."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from gateway.context.pruner import Pruner
from gateway.context.report import Document
from gateway.flow.deps import Deps
from gateway.flow.prune import prune
from gateway.flow.turn import Assignment
from gateway.store.document import ContextSection, TaskDocument
from tests.gateway.flow.conftest import MakeTurn
from tests.pruning import count_words

DOCUMENTS = (
    Document("tug", "The Gannet is powered by two hydrogen fuel cells.", "Gannet"),
    Document("bread", "Knead the dough for ten minutes and let it rise.", "Bread"),
)
QUESTION = "What powers the Gannet?"


class CountingPool:
    """Counts words for every model, as a pool with a worker of that tokenizer would."""

    def token_counter(self, model: str) -> Any:
        return count_words


class BrokenPool:
    def token_counter(self, model: str) -> Any:
        async def fail(texts: Sequence[str]) -> tuple[list[int], bool]:
            raise ConnectionError("the worker went away")

        return fail


def deps(pruner: Pruner, pool: object | None = None) -> Deps:
    return cast(Deps, SimpleNamespace(pruner=pruner, pool=pool or CountingPool()))


async def test_documents_off_the_theme_are_dropped(pruner: Pruner, make_turn: MakeTurn) -> None:
    turn = await prune(make_turn(documents=DOCUMENTS, question=QUESTION), deps(pruner))
    assert [verdict.is_kept for verdict in turn.prune_report.verdicts] == [True, False]
    assert turn.documents == DOCUMENTS
    assert turn.prune_report.tokens_after < turn.prune_report.tokens_before


async def test_a_lane_without_pruning_keeps_everything_and_counts_it(
    pruner: Pruner, make_turn: MakeTurn
) -> None:
    control = Assignment(lane="control", pruning=False, gravity=False)
    turn = await prune(make_turn(documents=DOCUMENTS, question=QUESTION, assignment=control), deps(pruner))
    report = turn.prune_report
    assert [(verdict.is_kept, verdict.reason) for verdict in report.verdicts] == [(True, "unpruned")] * 2
    assert report.verdicts[0].detail == "Pruning is off in this lane."
    assert report.tokens_before == report.tokens_after > 0


async def test_a_task_without_pruning_keeps_everything(pruner: Pruner, make_turn: MakeTurn) -> None:
    task = TaskDocument(task_type="t", context=ContextSection(pruning=False))
    turn = await prune(make_turn(documents=DOCUMENTS, question=QUESTION, task=task), deps(pruner))
    assert {verdict.detail for verdict in turn.prune_report.verdicts} == {"Pruning is off for this task."}


async def test_the_tasks_threshold_and_budget_hold(pruner: Pruner, make_turn: MakeTurn) -> None:
    task = TaskDocument(task_type="t", context=ContextSection(keep=0.0, token_budget=16))
    turn = await prune(make_turn(documents=DOCUMENTS, question=QUESTION, task=task), deps(pruner))
    assert [verdict.reason for verdict in turn.prune_report.verdicts] == ["on_theme", "over_budget"]


async def test_without_documents_nothing_is_done(pruner: Pruner, make_turn: MakeTurn) -> None:
    turn = make_turn(question=QUESTION)
    assert await prune(turn, deps(pruner)) is turn


async def test_whatever_fails_inside_everything_stays(pruner: Pruner, make_turn: MakeTurn) -> None:
    turn = await prune(make_turn(documents=DOCUMENTS, question=QUESTION), deps(pruner, BrokenPool()))
    assert [verdict.is_kept for verdict in turn.prune_report.verdicts] == [True, True]
    assert "failed" in turn.prune_report.note
