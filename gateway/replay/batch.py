"""Many recorded turns under another configuration: how many it would change, before it is published."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from redis.asyncio import Redis

from gateway.errors import ReplayError, ReplayWorkerLost
from gateway.lab.share import Share, wilson
from gateway.replay.alternative import Alternative, ChoicePair, alternative_of, read_rebuilt
from gateway.replay.workbench import Workbench
from gateway.trace.query import TurnSummaryRow

NUM_MOST_CHANGED = 10
OTHER_MODEL = "it is of another model than the worker's"


@dataclass(frozen=True, slots=True)
class MostChanged:
    """A turn whose answer changes. ``kept_share``: of the longer answer, what stays before they part."""

    turn_id: str
    kept_share: float
    first_step: int


@dataclass(frozen=True, slots=True)
class BatchReplay:
    """What became of all turns of a query. Mean differences are now minus then, over the replayed turns."""

    sha_now: str
    num_turns: int
    skipped: Mapping[str, int]
    """How many turns could not be replayed, by the reason."""
    answers: Share
    """The share of the replayed turns whose answer changes."""
    num_documents_changed: int
    num_prompts_changed: int
    num_settings_changed: int
    num_decoded: int
    num_bases_decoded_again: int
    mean_prompt_tokens: float
    mean_entropy_nats: float
    mean_entropic_time_nats: float
    mean_completion_tokens: float
    most_changed: tuple[MostChanged, ...]

    @property
    def changes_nothing(self) -> bool:
        return self.answers.num_hits == 0


async def replay_row(bench: Workbench, redis: Redis, row: TurnSummaryRow, model: str) -> Alternative | str:
    """Return the turn under the other configuration, or why it cannot be replayed, in few words.

    Raises ReplayWorkerLost.
    """
    if row.model != model:
        return OTHER_MODEL
    try:
        turn = await read_rebuilt(redis, row.id)
        return await alternative_of(bench, redis, turn)
    except ReplayWorkerLost:
        raise
    except ReplayError as error:
        return str(error).partition(": ")[0]  # what follows is of this turn alone


def most_common_model(rows: Sequence[TurnSummaryRow]) -> str:
    """Return the model of most turns; there has to be one turn at least."""
    return Counter(row.model for row in rows).most_common(1)[0][0]


def summarise(results: Sequence[Alternative | str], sha_now: str) -> BatchReplay:
    """Return what the results come to."""
    replayed = [result for result in results if isinstance(result, Alternative)]
    changed = [each for each in replayed if each.changes_answer]
    pairs = [pair for each in replayed for pair in each.choices]
    return BatchReplay(
        sha_now=sha_now,
        num_turns=len(results),
        skipped=dict(Counter(result for result in results if isinstance(result, str)).most_common()),
        answers=wilson(len(changed), len(replayed)),
        num_documents_changed=sum(each.changes_documents for each in replayed),
        num_prompts_changed=sum(not each.is_prompt_same for each in replayed),
        num_settings_changed=sum(bool(each.setting_changes) for each in replayed),
        num_decoded=sum(bool(each.choices) for each in replayed),
        num_bases_decoded_again=sum(not pair.base.is_recorded for pair in pairs),
        mean_prompt_tokens=_mean(each.prompt_tokens_now - each.prompt_tokens_then for each in replayed),
        mean_entropy_nats=_mean(_difference(each, "entropy_nats") for each in replayed),
        mean_entropic_time_nats=_mean(_difference(each, "entropic_time_nats") for each in replayed),
        mean_completion_tokens=_mean(_difference(each, "num_tokens") for each in replayed),
        most_changed=tuple(
            sorted(map(_how_changed, changed), key=lambda each: (each.kept_share, each.turn_id))
        )[:NUM_MOST_CHANGED],
    )


def _difference(alternative: Alternative, name: str) -> float:
    """Of the choices' means; 0 where the request is the same, as the answer then is."""
    return _mean(
        getattr(pair.now.means, name) - getattr(pair.base.side.means, name) for pair in alternative.choices
    )


def _how_changed(alternative: Alternative) -> MostChanged:
    share, step = min(map(_kept_share, alternative.choices))
    return MostChanged(alternative.turn_id, share, step)


def _kept_share(pair: ChoicePair) -> tuple[float, int]:
    longer = max(len(pair.base.side.tokens), len(pair.now.tokens))
    step = longer if pair.divergence is None else pair.divergence
    return (step / longer if longer else 1.0), step


def _mean(values: Iterable[float]) -> float:
    known = list(values)
    return fmean(known) if known else 0.0
