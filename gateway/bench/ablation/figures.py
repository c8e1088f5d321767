"""From blocks to ratios to the baseline, with intervals over the blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gateway.lab.intervals import Interval, mean_interval, ratio_interval


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer as the client saw it, with what the turn's record says of it."""

    latency_s: float
    is_right: bool
    num_tokens: int
    prompt_tokens: int
    entropic_time_nats: float
    cost_gmac: float


@dataclass(frozen=True, slots=True)
class ArmBlock:
    """The questions of a block in one arm."""

    turns: tuple[Turn, ...]
    elapsed_s: float
    cpu_s: float
    """Of gateway and worker together."""

    def mean(self, figure: Callable[[Turn], float]) -> float:
        return sum(map(figure, self.turns)) / len(self.turns)

    @property
    def nats_per_gmac(self) -> float:
        """d tau / dC of the block: what all turns resolved for what they computed."""
        cost = sum(turn.cost_gmac for turn in self.turns)
        return sum(turn.entropic_time_nats for turn in self.turns) / cost if cost else 0.0

    @property
    def requests_per_s(self) -> float:
        return len(self.turns) / self.elapsed_s

    @property
    def latency_s(self) -> float:
        return self.mean(lambda turn: turn.latency_s)

    @property
    def answer_rate(self) -> float:
        return self.mean(lambda turn: float(turn.is_right))

    @property
    def prompt_tokens(self) -> float:
        return self.mean(lambda turn: float(turn.prompt_tokens))


FIGURES: Mapping[str, Callable[[ArmBlock], float]] = {
    "latency_s": lambda block: block.latency_s,
    "requests_per_s": lambda block: block.requests_per_s,
    "cpu_s": lambda block: block.cpu_s,
    "nats_per_gmac": lambda block: block.nats_per_gmac,
    "answer_rate": lambda block: block.answer_rate,
    "prompt_tokens": lambda block: block.prompt_tokens,
}


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """By name in FIGURES: the mean over the blocks, and the ratio to the baseline, blocks drawn in pairs."""

    values: dict[str, Interval]
    ratios: dict[str, Interval | None]
    """None where the baseline's figure is 0 throughout."""


def arm_figures(blocks: Sequence[ArmBlock], baseline: Sequence[ArmBlock]) -> ArmFigures:
    """Return an arm's figures; the arms have the same number of blocks."""
    values, compared = {}, {}
    for name, figure in FIGURES.items():
        ours, theirs = [figure(block) for block in blocks], [figure(block) for block in baseline]
        values[name] = mean_interval(ours)
        # A resample of a figure that is 0 in some blocks could divide by 0.
        compared[name] = ratio_interval(ours, theirs) if all(each > 0.0 for each in theirs) else None
    return ArmFigures(values, compared)
