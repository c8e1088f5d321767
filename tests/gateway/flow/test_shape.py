"""The shape stage: the prompt around the client's own words, defaults, controls, warnings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.context.report import Document, PruneReport, Verdict
from gateway.errors import InvalidRequest
from gateway.flow.controls import overridden
from gateway.flow.deps import Deps
from gateway.flow.shape import TOKEN_PROMPT, shape
from gateway.flow.turn import Assignment, Turn
from gateway.settings import GatewaySettings, TextRetention
from gateway.store.document import TaskDocument
from tests.gateway.flow.conftest import MakeTurn
from worker.protocol import AdaptiveControls, KVBlockControls, SpeculationControls

DEPS = cast(Deps, SimpleNamespace(settings=GatewaySettings()))
DOCUMENTS = (Document("a", "Alpha text.", "Alpha"), Document("b", "Beta text."), Document("c", "Gamma text."))
REPORT = PruneReport(
    verdicts=(
        Verdict("a", True, "on_theme", 0.5, 4),
        Verdict("b", False, "off_theme", 0.01, 4),
        Verdict("c", True, "on_theme", 0.9, 4),
    ),
    theme=("Alpha", "gamma", "silver"),
)
CONTEXT = "Answer from these documents.\n\n[a] Alpha\nAlpha text.\n\n[c]\nGamma text."
TASK: dict[str, Any] = {"task_type": "t", "core_semantics": ["copper"], "gravity_strength": 1.2}


def task(**fields: Any) -> TaskDocument:
    return TaskDocument.model_validate(TASK | fields)


async def shaped(turn: Turn) -> Turn:
    return await shape(turn, DEPS)


async def test_the_kept_documents_stand_before_the_last_user_message(make_turn: MakeTurn) -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "First?"},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "Second?", "name": "Ida"},
    ]
    turn = await shaped(make_turn(body={"messages": messages}, documents=DOCUMENTS, prune_report=REPORT))
    sent = turn.upstream_body["messages"]
    assert sent[:3] == messages[:3]
    assert sent[3] == {"role": "user", "content": f"{CONTEXT}\n\nSecond?", "name": "Ida"}
    assert messages[3]["content"] == "Second?"


async def test_a_message_of_parts_gets_one_part_more(make_turn: MakeTurn) -> None:
    parts = [{"type": "text", "text": "What is this?"}]
    body = {"messages": [{"role": "user", "content": parts}]}
    turn = await shaped(make_turn(body=body, documents=DOCUMENTS, prune_report=REPORT))
    assert turn.upstream_body["messages"][0]["content"] == [{"type": "text", "text": CONTEXT}, *parts]


async def test_without_a_user_message_the_documents_are_one(make_turn: MakeTurn) -> None:
    body = {"messages": [{"role": "system", "content": "Summarise."}]}
    turn = await shaped(make_turn(body=body, documents=DOCUMENTS, prune_report=REPORT))
    assert turn.upstream_body["messages"][1] == {"role": "user", "content": CONTEXT}


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [("Q: why?", f"{CONTEXT}\n\nQ: why?"), (["One", "Two"], [f"{CONTEXT}\n\nOne", f"{CONTEXT}\n\nTwo"])],
)
async def test_a_completion_has_them_before_its_prompt(
    make_turn: MakeTurn, prompt: object, expected: object
) -> None:
    turn = make_turn(
        endpoint="/v1/completions", body={"prompt": prompt}, documents=DOCUMENTS, prune_report=REPORT
    )
    assert (await shaped(turn)).upstream_body["prompt"] == expected


async def test_a_prompt_of_token_ids_is_left_as_it_is_and_that_is_said(make_turn: MakeTurn) -> None:
    turn = make_turn(
        endpoint="/v1/completions", body={"prompt": [1, 2, 3]}, documents=DOCUMENTS, prune_report=REPORT
    )
    done = await shaped(turn)
    assert done.upstream_body["prompt"] == [1, 2, 3]
    assert done.warnings == (TOKEN_PROMPT,)


async def test_without_documents_the_messages_are_the_clients_own(make_turn: MakeTurn) -> None:
    turn = make_turn()
    assert (await shaped(turn)).upstream_body["messages"] == turn.body["messages"]


async def test_the_order_and_the_template_are_the_tasks(make_turn: MakeTurn) -> None:
    context = {"order": "relevance", "template": "<{id}> {text}", "preamble": ""}
    turn = make_turn(task=task(context=context), documents=DOCUMENTS, prune_report=REPORT)
    content = (await shaped(turn)).upstream_body["messages"][0]["content"]
    assert content == "<c> Gamma text.\n\n<a> Alpha text.\n\nhello"


async def test_our_own_fields_do_not_reach_the_worker(make_turn: MakeTurn) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}], "documents": [1], "task": "t", "gravity": {}}
    turn = await shaped(make_turn(body=body | {"seed": 7, "vllm_xargs": {"other": 1}}))
    assert turn.upstream_body == {"messages": body["messages"], "seed": 7, "vllm_xargs": {"other": 1}}


async def test_the_theme_joins_the_tasks_words(make_turn: MakeTurn) -> None:
    document = task(
        penalize=["Silver"], gravity={"theme_keywords": 1, "mode": "mask", "repetition_brake": 0.5}
    )
    turn = await shaped(make_turn(task=document, documents=DOCUMENTS, prune_report=REPORT))
    gravity = turn.controls.gravity
    assert gravity is not None
    assert gravity.keywords == ("copper", "Alpha")
    assert gravity.penalize == ("Silver",)
    assert (gravity.strength, gravity.mode, gravity.repetition_brake) == (1.2, "mask", 0.5)
    more = await shaped(make_turn(task=task(penalize=["Silver"]), documents=DOCUMENTS, prune_report=REPORT))
    assert more.controls.gravity is not None
    assert more.controls.gravity.keywords == ("copper", "Alpha", "gamma")  # "silver" is penalised


async def test_every_section_of_a_task_reaches_the_worker(make_turn: MakeTurn) -> None:
    document = task(
        decay_after_steps=50,
        adaptive={"k_min": 2, "k_max": 9},
        temperature={"mode": "feedback", "target_nats": 1.5},
        calibration={"model": "m", "temperature": 1.0, "s_mean": 0.2},
        gravity={
            "stages": [{"from_step": 0, "factor": 0.5}],
            "drift": {"gain": 0.1},
            "vector": {"weight": 2.0},
        },
    )
    controls = (await shaped(make_turn(task=document))).controls
    assert controls.adaptive == AdaptiveControls(k_min=2, k_max=9)
    assert controls.temperature == document.temperature
    assert controls.calibration is not None
    assert controls.calibration.temperature == 1.0
    assert controls.gravity is not None
    assert controls.gravity.decay_after_steps == 50
    for name in ("stages", "drift", "vector"):
        assert getattr(controls.gravity, name) == getattr(document.gravity, name)
    assert controls.trace is not None
    assert controls.trace.turn_id == "turn-1"


async def test_a_lane_without_gravity_steers_nothing_and_is_traced(make_turn: MakeTurn) -> None:
    control = Assignment(lane="control", gravity=False)
    document = task(adaptive={"k_min": 2, "k_max": 9}, sampling={"temperature": 0.4})
    turn = await shaped(
        make_turn(task=document, assignment=control, documents=DOCUMENTS, prune_report=REPORT)
    )
    assert turn.controls.is_plain
    assert turn.controls.trace is not None
    assert turn.upstream_body["temperature"] == 0.4


@pytest.mark.parametrize("fields", [{"gravity_strength": 0.0}, {"core_semantics": []}])
async def test_a_task_that_pulls_nowhere_sends_no_gravity(
    make_turn: MakeTurn, fields: dict[str, Any]
) -> None:
    turn = await shaped(make_turn(task=task(**fields)))
    assert turn.controls.gravity is None
    assert turn.controls.temperature is None


async def test_sampling_defaults_fill_what_the_client_left_out(make_turn: MakeTurn) -> None:
    document = task(sampling={"temperature": 0.4, "top_p": 0.9, "max_tokens": 64})
    body = {"messages": [{"role": "user", "content": "hi"}]}
    filled = (await shaped(make_turn(task=document, body=body))).upstream_body
    assert (filled["temperature"], filled["top_p"], filled["max_tokens"]) == (0.4, 0.9, 64)
    own = body | {"temperature": 0.0, "top_p": None, "max_completion_tokens": 5}
    kept = (await shaped(make_turn(task=document, body=own))).upstream_body
    assert (kept["temperature"], kept["top_p"], kept["max_completion_tokens"]) == (0.0, 0.9, 5)
    assert "max_tokens" not in kept


async def test_an_override_replaces_field_by_field(make_turn: MakeTurn) -> None:
    document = task(adaptive={"k_min": 3, "k_max": 40, "s_high": 0.3}, gravity={"mode": "mask"})
    override = {"gravity_strength": 2.0, "adaptive": {"k_max": 10}, "gravity": {"plausible": 0.0}}
    turn = await shaped(make_turn(task=document, gravity_override=override))
    assert turn.controls.adaptive == AdaptiveControls(k_min=3, k_max=10, s_high=0.3)
    assert turn.controls.gravity is not None
    assert turn.controls.gravity.strength == 2.0
    assert (turn.controls.gravity.mode, turn.controls.gravity.plausible) == ("mask", 0.0)
    off = await shaped(make_turn(task=document, gravity_override={"adaptive": None, "gravity_strength": 0}))
    assert off.controls.is_plain
    assert document.gravity_strength == 1.2


@pytest.mark.parametrize(
    "override",
    [
        {"adaptive": {"k_max": 2}},
        {"gravity_strenght": 1.0},
        {"gravity_strength": 99.0},
        {"adaptive": 3},
        {"gravity": {"plausibel": None}},
    ],
)
async def test_an_override_that_makes_no_task_is_the_clients_mistake(
    make_turn: MakeTurn, override: dict[str, Any]
) -> None:
    document = task(adaptive={"k_min": 3, "k_max": 40})
    with pytest.raises(InvalidRequest) as caught:
        await shaped(make_turn(task=document, gravity_override=override))
    assert caught.value.param == "gravity"
    assert "strenght" not in caught.value.message


async def test_leaving_the_calibration_is_a_warning(make_turn: MakeTurn) -> None:
    measured = {"model": "m", "temperature": 0.4, "s_mean": 0.1}
    document = task(adaptive={}, calibration=measured, sampling={"temperature": 0.4})
    body = {"messages": [{"role": "user", "content": "hi"}]}
    assert (await shaped(make_turn(task=document, body=body))).warnings == ()
    warmer = await shaped(make_turn(task=document, body=body | {"temperature": 0.9}))
    assert warmer.warnings == ("The task 't' was calibrated at temperature 0.4; the request's is 0.9.",)
    other = await shaped(make_turn(task=document, body=body, model="n"))
    assert other.warnings == ("The task 't' was calibrated with the model 'm'.",)


@pytest.mark.parametrize(("retention", "has_tokens"), [("full", True), ("hashed", False), ("none", False)])
@pytest.mark.parametrize("gravity", [True, False])
async def test_the_worker_writes_token_ids_only_where_the_text_may_be_kept(
    make_turn: MakeTurn, retention: TextRetention, has_tokens: bool, gravity: bool
) -> None:
    deps = cast(Deps, SimpleNamespace(settings=GatewaySettings(text_retention=retention)))
    turn = await shape(make_turn(assignment=Assignment(gravity=gravity)), deps)
    assert turn.controls.trace is not None
    assert turn.controls.trace.has_tokens is has_tokens


@pytest.mark.parametrize("has_gravity", [True, False])
async def test_speculation_goes_to_the_worker_where_a_task_turns_it_on(
    make_turn: MakeTurn, has_gravity: bool
) -> None:
    # It changes no text, so an arm without gravity keeps it: the arms' latencies stay comparable.
    assignment = Assignment(lane="a", gravity=has_gravity)
    on = await shaped(make_turn(task=task(speculation={"mode": "entropy"}), assignment=assignment))
    assert on.controls.speculation == SpeculationControls(mode="entropy", max_draft=8, min_match=1)
    off = await shaped(make_turn(task=task(), assignment=assignment))
    assert off.controls.speculation is None


async def test_kv_blocks_go_to_the_worker_where_a_task_turns_them_on_and_never_in_a_plain_arm(
    make_turn: MakeTurn,
) -> None:
    dropping = task(kv_blocks={"mode": "entropy", "threshold": 2.0})
    on = await shaped(make_turn(task=dropping))
    assert on.controls.kv_blocks == KVBlockControls(mode="entropy", threshold=2.0)
    assert (await shaped(make_turn(task=task()))).controls.kv_blocks is None
    # They change texts, which an arm without gravity must not.
    plain = await shaped(make_turn(task=dropping, assignment=Assignment(lane="a", gravity=False)))
    assert plain.controls.kv_blocks is None


def test_a_request_that_asks_for_blocks_and_drafts_is_told_so() -> None:
    with pytest.raises(InvalidRequest, match="cannot be on together"):
        overridden(task(speculation={"mode": "entropy"}), {"kv_blocks": {"mode": "entropy"}})
