"""What a record keeps of a turn's texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import orjson
import pytest

from gateway.context.report import Centre, Conflict, Document, PruneReport, Verdict
from gateway.flow.record import summary
from gateway.flow.retention import encoded, text_hash
from gateway.flow.turn import Outcome, Turn
from gateway.store.document import GravitySection, TaskDocument
from gateway.trace.index import line_of
from worker.protocol import AdaptiveControls, DecodeControls, GravityControls, ThemeVector

MakeTurn = Callable[..., Turn]
SECRET = "plutonium"


@pytest.fixture
def turn(make_turn: MakeTurn) -> Turn:
    """A turn with the same word wherever a text can be."""
    messages = [{"role": "user", "content": f"where is the {SECRET}"}]
    gravity = GravityControls(keywords=(SECRET,), penalize=(SECRET,), vector=ThemeVector(text=SECRET))
    return make_turn(
        body={"messages": messages, "temperature": 0.5, "stop": [SECRET], "custom": SECRET},
        upstream_body={"messages": messages, "seed": 7, "vllm_xargs": {"gravity": SECRET}},
        user=SECRET,
        headers=MappingProxyType({"x-tenant": SECRET}),
        documents=(Document("doc-0", SECRET, SECRET, (0.5,), MappingProxyType({"source": SECRET})),),
        gravity_override=MappingProxyType({"core_semantics": [SECRET]}),
        task=TaskDocument(
            task_type="default",
            core_semantics=(SECRET,),
            penalize=(SECRET,),
            gravity=GravitySection(vector=ThemeVector(text=SECRET)),
        ),
        question=f"where is the {SECRET}",
        history=(f"there was {SECRET} once", "no"),
        prune_report=PruneReport(
            (Verdict("doc-0", True, "on_theme", 0.9, 3, detail=SECRET),),
            (SECRET,),
            num_clusters=1,
            centres=(Centre(("doc-0",), (SECRET,)),),
            conflicts=(Conflict(("doc-0", "doc-1"), (SECRET, "lead"), SECRET),),
            tokens_before=3,
            tokens_after=3,
        ),
        controls=DecodeControls(gravity=gravity, adaptive=AdaptiveControls(k_min=4)),
        outcome=Outcome(text=f"the {SECRET} is here", finish_reasons=("stop",)),
    )


def record(turn: Turn, retention: Any) -> dict[str, Any]:
    parsed: dict[str, Any] = orjson.loads(encoded(turn, retention))
    return parsed


def test_full_keeps_all_that_replay_needs(turn: Turn) -> None:
    kept = record(turn, "full")
    assert kept["schema"] == 1
    assert kept["upstream_body"] == dict(turn.upstream_body)
    assert DecodeControls.model_validate_json(orjson.dumps(kept["controls"])) == turn.controls
    assert kept["documents"][0]["metadata"] == {"source": SECRET}
    assert kept["outcome"]["text"] == turn.outcome.text
    assert kept["history"] == list(turn.history)
    assert kept["prune_report"]["conflicts"][0]["spans"] == [SECRET, "lead"]
    assert kept["prune_report"]["centres"][0]["theme"] == [SECRET]


@pytest.mark.parametrize("retention", ["hashed", "none"])
def test_less_than_full_keeps_no_word_of_any_text(turn: Turn, retention: str) -> None:
    content = encoded(turn, retention)  # type: ignore[arg-type]
    assert SECRET.encode() not in content
    kept = orjson.loads(content)
    assert kept["text_retention"] == retention
    assert kept["body"] == {"temperature": 0.5}
    assert kept["upstream_body"] == {"seed": 7}
    assert kept["controls"]["adaptive"]["k_min"] == 4
    assert kept["prune_report"]["verdicts"][0]["score"] == 0.9
    assert kept["prune_report"]["conflicts"] == [
        {"document_ids": ["doc-0", "doc-1"], "spans": ["", ""], "detail": ""}
    ]
    assert kept["prune_report"]["centres"] == [{"document_ids": ["doc-0"], "theme": []}]
    assert kept["outcome"]["finish_reasons"] == ["stop"]


@pytest.mark.parametrize("retention", ["hashed", "none"])
def test_a_task_that_does_not_exist_may_be_any_text(turn: Turn, retention: str) -> None:
    asked = replace(turn, task=None, requested_task=SECRET)
    assert SECRET.encode() not in encoded(asked, retention)  # type: ignore[arg-type]
    known = replace(turn, requested_task="default")
    assert record(known, retention)["requested_task"] == "default"


@pytest.mark.parametrize("retention", ["full", "hashed", "none"])
def test_no_text_is_in_the_entry_and_without_texts_no_user(turn: Turn, retention: Any) -> None:
    fields = summary(turn, retention)
    assert SECRET not in repr(fields) + repr(line_of(fields))
    assert ("user" in fields) == (retention != "none")
    if retention != "none":
        assert fields["user"] == text_hash(SECRET)


def test_hashed_texts_can_be_compared(turn: Turn) -> None:
    same, other = record(turn, "hashed"), record(replace(turn, question="another"), "hashed")
    assert same["question"] == text_hash(f"where is the {SECRET}")
    assert same["question"] != other["question"]
    assert same["history"] == [text_hash(text) for text in turn.history]
    assert same["documents"][0]["text"] == other["documents"][0]["text"] == text_hash(SECRET)


def test_none_leaves_texts_empty(turn: Turn) -> None:
    kept = record(turn, "none")
    assert (kept["question"], kept["user"], kept["outcome"]["text"]) == ("", "", "")
    assert kept["history"] == ["", ""]
