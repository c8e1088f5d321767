"""Public reports about experiments, as inputs."""

from __future__ import annotations

from gateway.flow.assign import choose_lane
from gateway.flow.turn import Turn
from gateway.lab.analysis import analyse
from gateway.lab.observations import Exposed, Observations
from gateway.store.document import Arm, ExperimentDocument

RAMP = (0.01, 1.0, 0.2, 0.6)
USERS = [f"user-{number}" for number in range(4_000)]


def document(coverage: float) -> ExperimentDocument:
    arms = (Arm(name="treatment", start=0.0), Arm(name="gentle", start=0.2), Arm(name="control", start=0.5))
    return ExperimentDocument(id="gain", enrol_seed="e", arm_seed="a", coverage=coverage, arms=arms)


def lanes(coverage: float) -> dict[str, str]:
    """The arm of every user that is enrolled."""
    found = {}
    for user in USERS:
        turn = Turn("turn", 0.0, "/v1/completions", {"prompt": "hello"}, "m", False, False, user=user)
        assignment, arm = choose_lane(turn, document(coverage))
        if assignment.reason == "split":
            found[user] = arm.name
    return found


def test_a_ramp_of_the_coverage_up_and_down_moves_nobody_between_arms() -> None:
    """growthbook-js#22: 1 %, then everybody, then 20 %, and up again."""
    few, everybody, fewer, more = (lanes(coverage) for coverage in RAMP)
    assert len(few) < len(fewer) < len(more) < len(everybody) == len(USERS)
    assert few.items() <= fewer.items() <= more.items() <= everybody.items()
    seen: dict[str, str] = {}
    for enrolled in (few, everybody, fewer, more):
        assert all(seen.setdefault(user, arm) == arm for user, arm in enrolled.items())


def test_the_arms_keep_their_shares_at_every_step_of_the_ramp() -> None:
    """growthbook-js#22: with arms that moved, the check of the sizes would alarm."""
    for coverage in RAMP:
        exposures = {user: Exposed(arm, 1.0) for user, arm in lanes(coverage).items()}
        report = analyse(document(coverage), Observations(exposures))
        assert sum(report.sample_ratio.counts.values()) == len(exposures)
        assert not report.sample_ratio.is_alarm
