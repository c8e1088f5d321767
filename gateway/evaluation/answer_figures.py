"""From single answers to figures: an arm's means, ours against the others request by request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType

from gateway.evaluation.answer_results import AnswerRecord
from gateway.evaluation.arms import ARMS, Arm
from gateway.evaluation.scoring import is_answered
from gateway.lab.intervals import Interval, mean_interval, paired_difference, ratio_interval
from gateway.lab.labelled import LabelledRequest

RIVALS: tuple[Arm, ...] = ("all", "top_5", "none")
"""What ours is compared to."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A request with its answer in every arm."""

    request: LabelledRequest
    records: Mapping[Arm, AnswerRecord]

    def score(self, arm: Arm) -> float:
        """1 for a right answer, else 0."""
        return float(is_answered(self.records[arm].text, self.request.answers))


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """Means over the requests; times in seconds, choosing included."""

    answer_rate: Interval
    num_documents: float
    prompt_tokens: float
    completion_tokens: float
    ttft_s: float
    total_s: float
    cpu_s: float
    choose_cpu_s: float
    """The part of ``cpu_s`` that encoding and judging took."""
    num_truncated: int
    """Requests of which not all the arm's chunks fit the context."""


@dataclass(frozen=True, slots=True)
class SetFigures:
    num_requests: int
    answer_rate: Mapping[Arm, float]
    differences: Mapping[Arm, Interval]
    """Answer rate of ours - theirs, paired, by rival."""


@dataclass(frozen=True, slots=True)
class AnswerFigures:
    num_requests: int
    arms: Mapping[Arm, ArmFigures]
    differences: Mapping[Arm, Interval]
    """Answer rate of ours - theirs, paired, by rival."""
    cpu_ratio: Interval
    """Processor time of ours to that of all chunks."""
    sets: Mapping[str, SetFigures]


def summarize_answers(answered: Sequence[Answered], seed: int) -> AnswerFigures:
    """Average over ``answered``, at least one."""
    by_set: dict[str, list[Answered]] = {}
    for each in answered:
        by_set.setdefault(each.request.set, []).append(each)
    ours, everything = ([each.records[arm].cpu_s for each in answered] for arm in ("ours", "all"))
    return AnswerFigures(
        num_requests=len(answered),
        arms=MappingProxyType({arm: _arm(answered, arm, seed) for arm in ARMS}),
        differences=_differences(answered, seed),
        cpu_ratio=ratio_interval(ours, everything, seed),
        sets=MappingProxyType({name: _set(members, seed) for name, members in sorted(by_set.items())}),
    )


def _arm(answered: Sequence[Answered], arm: Arm, seed: int) -> ArmFigures:
    records = [each.records[arm] for each in answered]
    return ArmFigures(
        answer_rate=mean_interval([each.score(arm) for each in answered], seed),
        num_documents=fmean(record.num_documents for record in records),
        prompt_tokens=fmean(record.prompt_tokens for record in records),
        completion_tokens=fmean(record.completion_tokens for record in records),
        ttft_s=fmean(record.ttft_s for record in records),
        total_s=fmean(record.total_s for record in records),
        cpu_s=fmean(record.cpu_s for record in records),
        choose_cpu_s=fmean(record.choose_cpu_s for record in records),
        num_truncated=sum(record.num_left_out > 0 for record in records),
    )


def _set(answered: Sequence[Answered], seed: int) -> SetFigures:
    rates = {arm: fmean(each.score(arm) for each in answered) for arm in ARMS}
    return SetFigures(len(answered), MappingProxyType(rates), _differences(answered, seed))


def _differences(answered: Sequence[Answered], seed: int) -> Mapping[Arm, Interval]:
    ours = [each.score("ours") for each in answered]
    return MappingProxyType(
        {rival: paired_difference(ours, [each.score(rival) for each in answered], seed) for rival in RIVALS}
    )
