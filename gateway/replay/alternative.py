"""One recorded turn under another configuration: what is asked then and now, and what is answered."""

from __future__ import annotations

from dataclasses import dataclass, replace

from redis.asyncio import Redis

from gateway.errors import ReplayError, TraceError
from gateway.flow.turn import Turn
from gateway.replay.base import Base, base_of, why_decode_again, with_texts
from gateway.replay.environment import environment_changes
from gateway.replay.rebuilt import rebuilt_turn, why_not
from gateway.replay.request import Request, SettingChange, request_of, setting_changes
from gateway.replay.side import Side, decoded_side, first_divergence
from gateway.replay.workbench import Workbench
from gateway.replay.worker import decode_choice
from gateway.trace.reading import read_record
from gateway.trace.steps import ChoiceSteps, wait_for_steps


@dataclass(frozen=True, slots=True)
class ChoicePair:
    """One choice, answered both ways. ``divergence``: the first step that differs; None where none does."""

    choice: int
    base: Base
    now: Side
    divergence: int | None


@dataclass(frozen=True, slots=True)
class Alternative:
    """A turn under another configuration. ``choices`` is empty where the request is the same."""

    turn_id: str
    task: str
    lane: str
    sha_then: str
    sha_now: str
    num_documents: int
    kept_then: tuple[str, ...]
    kept_now: tuple[str, ...]
    """Ids of the documents that stay, in the order in which they were sent."""
    prompt_tokens_then: int
    prompt_tokens_now: int
    is_prompt_same: bool
    setting_changes: tuple[SettingChange, ...]
    gateway_changes: tuple[str, ...]
    """What this gateway has other than the one that served the turn: documents may differ for it."""
    notes: tuple[str, ...]
    """Why pruning did less than asked, then or now."""
    choices: tuple[ChoicePair, ...]

    @property
    def is_request_same(self) -> bool:
        return self.is_prompt_same and not self.setting_changes

    @property
    def changes_documents(self) -> bool:
        return self.kept_then != self.kept_now

    @property
    def changes_answer(self) -> bool:
        return any(pair.divergence is not None for pair in self.choices)


async def read_rebuilt(redis: Redis, turn_id: str) -> Turn:
    """Return a recorded turn that can be replayed under another configuration.

    Raises ReplayError, which says why and does not name the turn, where it cannot.
    """
    record = await read_record(redis, turn_id)
    if record is None:
        raise ReplayError("there is no such turn: a wrong id, another Redis, or its lifetime is over")
    turn = rebuilt_turn(record)
    if (reason := why_not(turn, str(record.get("text_retention")))) is not None:
        raise ReplayError(reason)
    return turn


async def alternative_of(
    bench: Workbench, redis: Redis, turn: Turn, steps_timeout_s: float = 0.0
) -> Alternative:
    """Shape the turn again and, where that asks for something else, decode it. Raises ReplayError.

    The steps are needed for that alone: they may be waited for as long as the worker may still write.
    """
    fresh = await bench.under_config(turn)
    then, now = request_of(turn), request_of(fresh)
    changes = setting_changes(then, now)
    is_prompt_same = then.prompt == now.prompt
    choices: tuple[ChoicePair, ...] = ()
    num_tokens = turn.outcome.prompt_tokens
    if changes or not is_prompt_same:
        traces = await _traces(redis, turn, steps_timeout_s)
        choices = tuple([await _pair(bench, turn, then, now, trace) for trace in traces])
        num_tokens = num_tokens if is_prompt_same else await bench.count_prompt(now.decoding)
    here = bench.deps.pool.workers[0].environment.get("gateway") or {}
    there = turn.environment.get("gateway") or {}
    return Alternative(
        turn_id=turn.id,
        task=turn.task.task_type if turn.task is not None else "default",
        lane=turn.assignment.lane,
        sha_then=turn.config_sha,
        sha_now=fresh.config_sha,
        num_documents=len(turn.documents),
        kept_then=_kept(turn),
        kept_now=_kept(fresh),
        prompt_tokens_then=turn.outcome.prompt_tokens,
        prompt_tokens_now=num_tokens,
        is_prompt_same=is_prompt_same,
        setting_changes=changes,
        gateway_changes=environment_changes(there, here) if there else (),
        notes=tuple(each.prune_report.note for each in (turn, fresh) if each.prune_report.note),
        choices=choices,
    )


async def with_token_texts(bench: Workbench, turn: Turn, alternative: Alternative) -> Alternative:
    """Return the same with the texts of the recorded tokens, where a choice parts and they are shown."""
    decoding = request_of(turn).decoding
    choices = tuple(
        [
            replace(pair, base=await with_texts(bench.worker, decoding, pair.base, pair.choice))
            for pair in alternative.choices
        ]
    )
    return replace(alternative, choices=choices)


async def _pair(bench: Workbench, turn: Turn, then: Request, now: Request, trace: ChoiceSteps) -> ChoicePair:
    answer = await decode_choice(bench.worker, now.decoding, trace.choice)
    why_again = why_decode_again(trace, turn.environment.get("worker") or {}, answer.environment)
    base = await base_of(bench.worker, then.decoding, trace, why_again)
    side = decoded_side(answer)
    return ChoicePair(trace.choice, base, side, first_divergence(base.side, side))


async def _traces(redis: Redis, turn: Turn, timeout_s: float) -> tuple[ChoiceSteps, ...]:
    num_choices = int(turn.upstream_body.get("n") or 1)
    try:
        return await wait_for_steps(redis, turn.id, num_choices, timeout_s=timeout_s)
    except TraceError as error:
        raise ReplayError("its steps are gone, or not all there") from error


def _kept(turn: Turn) -> tuple[str, ...]:
    return tuple(verdict.document_id for verdict in turn.prune_report.verdicts if verdict.is_kept)
