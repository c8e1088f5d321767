"""Context pruning measured on labelled requests: every method on every request, then the figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from tqdm import tqdm

from gateway.context.embed import EncoderSettings
from gateway.context.selector import Selector
from gateway.errors import CommandError, ConfigError, EncoderError
from gateway.evaluation.calibration import Calibration, calibrate
from gateway.evaluation.comparison import Group, summarize
from gateway.evaluation.cost import PruneCost, measure_costs
from gateway.evaluation.incumbents import incumbents
from gateway.evaluation.subject import OURS, Subject, open_bench
from gateway.lab.labelled import LabelledRequest

OVERALL = "overall"
"""What all sets together are called."""


@dataclass(frozen=True, slots=True)
class ContextEvaluation:
    sets: Mapping[str, Group]
    """By set, in the order of the data."""
    overall: Group
    """All requests counted alike."""
    calibration: Calibration | None
    """None where no chunk was judged."""
    costs: Mapping[int, PruneCost]
    """By the number of chunks that was asked for."""
    descriptions: Mapping[str, str]
    """Method to what it is."""
    encoder: EncoderSettings
    selector: str
    """Version."""
    seed: int

    @property
    def groups(self) -> Mapping[str, Group]:
        """The sets, and then all of them together."""
        return {**self.sets, OVERALL: self.overall}


async def evaluate_context(
    requests: Sequence[LabelledRequest], settings: EncoderSettings, selector: Selector, seed: int
) -> ContextEvaluation:
    """Run everything on ``requests``, at least one. Raises CommandError."""
    others = incumbents()
    try:
        with open_bench(settings, selector, others) as bench:
            await bench.warm()
            subjects = [await bench.try_all(request) for request in tqdm(requests, "pruning", unit="request")]
        costs = await measure_costs(requests, settings, selector)
    except (ConfigError, EncoderError) as error:
        raise CommandError(str(error)) from error
    names = dict.fromkeys(subject.set for subject in subjects)
    ours = {name: f"this gateway's pruning, keep = {setting}" for name, setting in OURS.items()}
    return ContextEvaluation(
        sets=MappingProxyType(
            {name: summarize([each for each in subjects if each.set == name], seed) for name in names}
        ),
        overall=summarize(subjects, seed),
        calibration=_calibration(subjects),
        costs=MappingProxyType(costs),
        descriptions={**ours, **{name: other.description for name, other in others.items()}},
        encoder=settings,
        selector=selector.version,
        seed=seed,
    )


def _calibration(subjects: Sequence[Subject]) -> Calibration | None:
    probability = np.concatenate([subject.probability for subject in subjects])
    is_relevant = np.concatenate([subject.labels.is_relevant for subject in subjects])
    is_judged = ~np.isnan(probability)
    return calibrate(probability[is_judged], is_relevant[is_judged]) if is_judged.any() else None
