"""What an experiment learns of a turn: that its unit came under an arm, and at the end what was measured.

Exposure is noted where the lane takes effect, on one path for every arm and before anything can fail. It is
of intention to treat: whatever becomes of the turn afterwards, its unit stays in its arm. A lane that
somebody chose is neither an exposure nor an outcome.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.context.embed import Encoder
from gateway.context.encoders import Encoders
from gateway.flow.assign import DEFAULT_TASK
from gateway.flow.turn import Turn
from gateway.outcomes.entry import Exposure, TurnOutcome
from gateway.outcomes.ledger import Experiment
from gateway.outcomes.measure import measured
from gateway.outcomes.relevance import Answer
from gateway.store.snapshot import Snapshot

if TYPE_CHECKING:
    from gateway.flow.deps import Deps


async def expose(turn: Turn, deps: Deps) -> Turn:
    """Note that the turn's unit has come under its arm."""
    assignment = turn.assignment
    if assignment.reason == "split":
        exposure = Exposure(assignment.unit or turn.id, assignment.lane, turn.received_at)
        deps.ledger.expose(_experiment_of(turn), exposure, is_sticky=assignment.is_sticky)
    return turn


def observe(turn: Turn, deps: Deps) -> None:
    """Hand over what was measured of a turn that has ended; not enrolled, it is of the period before."""
    if not is_observed(turn):
        return
    assignment = turn.assignment
    outcome = TurnOutcome(
        turn.id,
        assignment.unit or turn.id,
        "" if assignment.reason == "not_enrolled" else assignment.lane,
        turn.received_at,
        measured(turn.outcome),
        turn.shadow_of,
    )
    if turn.outcome.status != "ok":
        deps.ledger.add(_experiment_of(turn), outcome)
        return
    encoder = measuring_encoder(turn, deps)
    deps.answers.submit(Answer(_experiment_of(turn), outcome, turn.question, turn.outcome.text, encoder))


def is_observed(turn: Turn) -> bool:
    """Whether the turn belongs to an experiment's data. A unit that is a turn has no period before."""
    assignment = turn.assignment
    is_before = assignment.reason == "not_enrolled" and assignment.is_sticky
    return is_before or assignment.reason in ("split", "shadow")


def measuring_encoder(turn: Turn, deps: Deps) -> Encoder | None:
    """Return the encoder that compares answer and question; None where none can read the question.

    It is one that steers in no arm, where there is one that can read: a judge of its own work finds it good.
    All arms are measured by the same, also the one that does not prune; else they could not be compared.
    """
    encoders = deps.pruner.encoders
    can_local_read = encoders.local.can_read(turn.question)
    if encoders.remote is None:
        return encoders.local if can_local_read else None
    if can_local_read and _steers_by_remote(turn, encoders, deps.config.snapshot):
        return encoders.local
    return encoders.remote


def _steers_by_remote(turn: Turn, encoders: Encoders, snapshot: Snapshot) -> bool:
    """Whether in any arm the remote encoder would judge this turn's documents."""
    arms = next((e.arms for e in snapshot.experiments if e.id == turn.assignment.experiment), ())
    names = {turn.requested_task or DEFAULT_TASK} | {arm.task for arm in arms if arm.task}
    choices = {task.context.encoder for name in names if (task := snapshot.tasks.get(name))}
    return any(
        encoders.choose(choice, turn.question, turn.documents) is encoders.remote for choice in choices
    )


def _experiment_of(turn: Turn) -> Experiment:
    return Experiment(turn.assignment.experiment, turn.assignment.experiment_version)
