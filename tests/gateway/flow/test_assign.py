"""Assignment: sticky, independent of coverage, evenly split, and overridable."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pytest

from gateway.errors import InvalidRequest
from gateway.flow.assign import assign, choose_lane, experiment_for, position, requested_task, targeting_key
from gateway.flow.deps import Deps
from gateway.flow.turn import Turn
from gateway.store.document import Arm, ExperimentDocument, TaskDocument
from gateway.store.watch import ConfigStore

NUM_UNITS = 20_000
CHI_SQUARE_999 = {1: 10.828, 2: 13.816}
"""The 99.9th percentile of chi-square by degrees of freedom, from the tables."""


def turn(**changes: Any) -> Turn:
    plain = Turn(
        id="turn-1",
        received_at=0.0,
        endpoint="/v1/chat/completions",
        body={"messages": [{"role": "user", "content": "hello"}]},
        model="m",
        is_streaming=False,
        wants_usage=False,
    )
    return replace(plain, **changes)


def experiment(**changes: Any) -> ExperimentDocument:
    fields: dict[str, Any] = {
        "id": "pruning",
        "enrol_seed": "enrol-1",
        "arm_seed": "arm-1",
        "arms": (
            Arm(name="treatment", start=0.0),
            Arm(name="control", start=0.5, pruning=False, gravity=False),
        ),
    }
    return ExperimentDocument(**(fields | changes))


def lanes(document: ExperimentDocument) -> dict[str, str]:
    """The lane of each enrolled user."""
    chosen = {}
    for number in range(NUM_UNITS):
        assignment, _ = choose_lane(turn(user=f"user-{number}"), document)
        if assignment.reason == "split":
            chosen[f"user-{number}"] = assignment.lane
    return chosen


def chi_square(observed: list[float], expected: list[float]) -> float:
    return sum((o - e) ** 2 / e for o, e in zip(observed, expected, strict=True))


def test_without_an_experiment_the_lane_is_treatment_with_everything_on() -> None:
    assignment, _ = choose_lane(turn(), None)
    assert (assignment.lane, assignment.reason) == ("treatment", "default")
    assert assignment.pruning
    assert assignment.gravity


def test_a_unit_keeps_its_lane_over_requests_and_conversations() -> None:
    document = experiment()
    first, _ = choose_lane(turn(user="ada"), document)
    for number in range(50):
        later, _ = choose_lane(
            turn(
                id=f"turn-{number}", user="ada", body={"messages": [{"role": "user", "content": str(number)}]}
            ),
            document,
        )
        assert (later.lane, later.unit) == (first.lane, first.unit)
    assert first.is_sticky
    assert "ada" not in first.unit


def test_a_growing_conversation_keeps_its_lane() -> None:
    opening = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is a moon?"}]
    longer = [*opening, {"role": "assistant", "content": "A satellite."}, {"role": "user", "content": "Why?"}]
    assert targeting_key(turn(body={"messages": opening}), None) == targeting_key(
        turn(body={"messages": longer}), None
    )
    other = [opening[0], {"role": "user", "content": "What is a star?"}]
    assert targeting_key(turn(body={"messages": opening}), None) != targeting_key(
        turn(body={"messages": other}), None
    )


def test_the_unit_is_the_header_then_the_user_then_the_conversation_then_the_request() -> None:
    with_all = turn(user="ada", headers=MappingProxyType({"x-tenant": "acme"}))
    assert targeting_key(with_all, "X-Tenant") == ("header:acme", True)
    assert targeting_key(with_all, None) == ("user:ada", True)
    key, is_sticky = targeting_key(turn(), None)
    assert key.startswith("conversation:")
    assert is_sticky
    alone = turn(endpoint="/v1/completions", body={"prompt": "hello"})
    assert targeting_key(alone, "x-tenant") == ("request:turn-1", False)
    assignment, _ = choose_lane(alone, experiment())
    assert not assignment.is_sticky
    assert assignment.unit == ""


def test_the_place_of_a_unit_is_blake2b_of_seed_and_key() -> None:
    digest = blake2b(b"enrol-1\0user:ada", digest_size=8).digest()
    assert position("enrol-1", "user:ada") == pytest.approx(int.from_bytes(digest, "big") / 2**64, abs=1e-15)


def test_the_split_is_even() -> None:
    counts = Counter(lanes(experiment()).values())
    assert sum(counts.values()) == NUM_UNITS
    half = NUM_UNITS / 2
    assert chi_square([counts["treatment"], counts["control"]], [half, half]) < CHI_SQUARE_999[1]


def test_uneven_arms_get_their_shares() -> None:
    arms = (Arm(name="a", start=0.0), Arm(name="b", start=0.1), Arm(name="c", start=0.4))
    counts = Counter(lanes(experiment(arms=arms)).values())
    expected = [share * NUM_UNITS for share in (0.1, 0.3, 0.6)]
    assert chi_square([counts[name] for name in "abc"], expected) < CHI_SQUARE_999[2]


def test_enrolment_and_arm_are_independent() -> None:
    chosen = lanes(experiment(coverage=0.5))
    everyone = lanes(experiment())
    half = NUM_UNITS / 2
    assert chi_square([len(chosen), NUM_UNITS - len(chosen)], [half, half]) < CHI_SQUARE_999[1]
    cells = Counter((user in chosen, lane) for user, lane in everyone.items())
    rows, columns = Counter(user in chosen for user in everyone), Counter(everyone.values())
    pairs = [(enrolled, lane) for enrolled in rows for lane in columns]
    expected = [rows[enrolled] * columns[lane] / NUM_UNITS for enrolled, lane in pairs]
    assert chi_square([cells[pair] for pair in pairs], expected) < CHI_SQUARE_999[1]


def test_ramping_coverage_up_and_down_moves_nobody_between_arms() -> None:
    """growthbook-js#22: coverage 1 % to 100 % to 20 %."""
    few, everyone, some = (lanes(experiment(coverage=share)) for share in (0.01, 1.0, 0.2))
    assert 0 < len(few) < len(some) < len(everyone) == NUM_UNITS
    assert all(everyone[user] == lane for user, lane in few.items())
    assert all(everyone[user] == lane for user, lane in some.items())
    assert few.keys() <= some.keys()


def test_who_is_not_enrolled_is_served_as_usual_and_marked() -> None:
    assignment, _ = choose_lane(turn(user="ada"), experiment(coverage=0.0))
    assert (assignment.lane, assignment.reason, assignment.experiment) == (
        "treatment",
        "not_enrolled",
        "pruning",
    )
    assert assignment.pruning


def test_an_override_wins_over_the_split() -> None:
    for lane, pruning in (("control", False), ("treatment", True)):
        chosen, _ = choose_lane(
            turn(headers=MappingProxyType({"x-gravity-lane": lane})), experiment(coverage=0.0)
        )
        assert (chosen.lane, chosen.reason, chosen.pruning, chosen.gravity) == (
            lane,
            "override",
            pruning,
            pruning,
        )


def test_an_override_may_name_an_arm_of_the_experiment() -> None:
    arms = (Arm(name="treatment", start=0.0), Arm(name="gentle", start=0.5, pruning=True, gravity=False))
    chosen, arm = choose_lane(
        turn(headers=MappingProxyType({"x-gravity-lane": "gentle"})), experiment(arms=arms)
    )
    assert (chosen.lane, chosen.pruning, chosen.gravity) == ("gentle", True, False)
    assert arm.name == "gentle"


def test_an_unknown_lane_is_the_clients_mistake() -> None:
    with pytest.raises(InvalidRequest) as error:
        choose_lane(turn(headers=MappingProxyType({"x-gravity-lane": "sideways"})), None)
    assert error.value.param == "X-Gravity-Lane"
    assert "sideways" not in error.value.message


def test_an_unknown_task_is_the_clients_mistake() -> None:
    tasks = {"default": TaskDocument(task_type="default")}
    assert requested_task("", tasks).task_type == "default"
    with pytest.raises(InvalidRequest) as error:
        requested_task("poetry", tasks)
    assert error.value.param == "task"


def test_a_turn_is_in_one_experiment_at_most() -> None:
    other = experiment(id="another", tasks=("rag_qa",))
    ended = experiment(id="a-first", is_active=False)
    found = experiment_for("rag_qa", [experiment(), ended, other])
    assert found is other
    elsewhere = experiment_for("default", [other])
    assert elsewhere is None


EXPERIMENT = """
id: pruning
enrol_seed: enrol-1
arm_seed: arm-1
unit_header: X-Tenant
tasks: [default]
arms:
  - {name: treatment, start: 0.0}
  - {name: other, start: 0.5, task: rag_qa}
"""


@pytest.fixture
def config(tmp_path: Path) -> ConfigStore:
    for kind in ("tasks", "experiments"):
        (tmp_path / kind).mkdir()
    for task in ("default", "rag_qa"):
        (tmp_path / "tasks" / f"{task}.yaml").write_text(f"task_type: {task}\n")
    (tmp_path / "experiments" / "pruning.yaml").write_text(EXPERIMENT)
    return ConfigStore.open(tmp_path)


async def test_the_stage_takes_one_snapshot_and_the_arms_task(config: ConfigStore) -> None:
    deps = cast(Deps, SimpleNamespace(config=config))
    seen = set()
    for number in range(40):
        assigned = await assign(turn(headers=MappingProxyType({"x-tenant": f"tenant-{number}"})), deps)
        assert assigned.config_sha == config.snapshot.sha
        assert assigned.task is not None
        seen.add((assigned.assignment.lane, assigned.task.task_type))
    assert seen == {("treatment", "default"), ("other", "rag_qa")}


async def test_a_task_outside_the_experiment_is_served_by_default(config: ConfigStore) -> None:
    deps = cast(Deps, SimpleNamespace(config=config))
    assigned = await assign(turn(requested_task="rag_qa"), deps)
    assert assigned.assignment.experiment == ""
    assert assigned.task is not None
    assert assigned.task.task_type == "rag_qa"
