"""From answers to means, ratios to ``generate`` and answer rates, with intervals over the questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

from gateway.evaluation.scoring import is_answered
from gateway.lab.intervals import Interval, mean_interval, paired_difference, ratio_interval

Arm: TypeAlias = Literal["generate", "cold", "warm", "again"]
ARMS: tuple[Arm, ...] = get_args(Arm)
RIVAL: Arm = "generate"
AIMS: Mapping[Arm, float] = MappingProxyType({"cold": 3.0, "warm": 4.0})
"""How many times faster than ``generate`` we want to be."""
DESCRIPTIONS: Mapping[Arm, str] = MappingProxyType(
    {
        "generate": "transformers' generate with every chunk in the prompt",
        "cold": "through the gateway; no chunk was encoded before",
        "warm": "through the gateway; the chunks and the question were encoded before, the prompt is new",
        "again": "the same request as warm once more: the worker knows the prompt, too",
    }
)


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer. Times in seconds, CPU of all processes that took part."""

    text: str
    wall_s: float
    cpu_s: float
    prompt_tokens: int
    completion_tokens: int
    num_chunks: int
    """Of those in the prompt."""
    encode_ms: float = 0.0
    num_encodings_found: int = 0
    cached_prompt_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Asked:
    """A question in one round, answered in every arm."""

    id: str
    expected: tuple[str, ...]
    answers: Mapping[Arm, Answer]


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """Means over all answers; ``speedup_*`` is generate's time over ours, None for generate itself."""

    wall_s: Interval
    cpu_s: Interval
    speedup_wall: Interval | None
    speedup_cpu: Interval | None
    answer_rate: Interval
    rate_difference: Interval | None
    """Ours less generate's, of the same questions."""
    prompt_tokens: float
    completion_tokens: float
    num_chunks: float
    encode_ms: float
    num_encodings_found: float
    cached_prompt_tokens: float


def arm_figures(asked: Sequence[Asked], arm: Arm) -> ArmFigures:
    """Return the figures of an arm. The rounds of a question count as one, their mean."""
    walls, cpus = (_by_question(asked, arm, figure) for figure in (_wall_s, _cpu_s))
    rival_walls, rival_cpus = (_by_question(asked, RIVAL, figure) for figure in (_wall_s, _cpu_s))
    rates, rival_rates = _rates(asked, arm), _rates(asked, RIVAL)
    is_rival = arm == RIVAL
    answers = [each.answers[arm] for each in asked]
    return ArmFigures(
        wall_s=mean_interval(walls),
        cpu_s=mean_interval(cpus),
        speedup_wall=None if is_rival else ratio_interval(rival_walls, walls),
        speedup_cpu=None if is_rival else ratio_interval(rival_cpus, cpus),
        answer_rate=mean_interval(rates),
        rate_difference=None if is_rival else paired_difference(rates, rival_rates),
        prompt_tokens=fmean(answer.prompt_tokens for answer in answers),
        completion_tokens=fmean(answer.completion_tokens for answer in answers),
        num_chunks=fmean(answer.num_chunks for answer in answers),
        encode_ms=fmean(answer.encode_ms for answer in answers),
        num_encodings_found=fmean(answer.num_encodings_found for answer in answers),
        cached_prompt_tokens=fmean(answer.cached_prompt_tokens for answer in answers),
    )


def _wall_s(answer: Answer) -> float:
    return answer.wall_s


def _cpu_s(answer: Answer) -> float:
    return answer.cpu_s


def _by_question(asked: Sequence[Asked], arm: Arm, figure: Callable[[Answer], float]) -> list[float]:
    return _means([(each.id, figure(each.answers[arm])) for each in asked])


def _rates(asked: Sequence[Asked], arm: Arm) -> list[float]:
    return _means([(each.id, float(is_answered(each.answers[arm].text, each.expected))) for each in asked])


def _means(values: Sequence[tuple[str, float]]) -> list[float]:
    by_id: dict[str, list[float]] = {}
    for identifier, value in values:
        by_id.setdefault(identifier, []).append(value)
    return [fmean(each) for each in by_id.values()]
