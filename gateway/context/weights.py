"""The numbers of the selector: a logistic model over the signals, with fixed weights.

They were fitted by logistic regression on 420 labelled English questions with 10 to 20 retrieved chunks each
(single passages, and two to four that are needed together), every question counted alike, on six versions of
each: as it was; without titles; with half of the titles; with two to six chunks; padded to 100 chunks; and
with another question's chunks, where nothing is relevant. Out of fold the probabilities are calibrated (of
the chunks given .4 to .6, a little under half are relevant), every weight is positive, and three times as
many signals gained little. Signals that punish nearness to the strongest chunk fitted those questions still
better and were left out: they describe how the questions' distractors were chosen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypeAlias

Keep: TypeAlias = Literal["balanced", "safe"] | float
"""A named setting, or the keep-probability from which on a document stays."""

_THRESHOLDS = MappingProxyType({"balanced": 0.06, "safe": 0.03})


def threshold_of(keep: Keep) -> float:
    """Return the keep-probability from which on a document stays."""
    return _THRESHOLDS[keep] if isinstance(keep, str) else keep


@dataclass(frozen=True, slots=True)
class Weights:
    """probability = 1 / (1 + exp(-(intercept + sum of weight * signal)))."""

    intercept: float
    per_signal: Mapping[str, float]


FULL = Weights(
    -7.374,
    MappingProxyType(
        {
            "sentence": 2.135,
            "late": 6.673,
            "bm25": 1.123,
            "title_named": 1.826,
            "lead": 1.854,
            "bridge": 8.585,
        }
    ),
)
"""Where the texts went through the encoder."""

VECTORS = Weights(
    -6.221,
    MappingProxyType({"dense": 6.685, "bm25": 1.416, "title_named": 1.820, "lead": 1.680, "bridge": 6.141}),
)
"""Where only one vector a chunk is known, because the client sent it: no sentences, no tokens."""

ABOUT = 0.25
"""A request has a theme where some chunk, without its links, reaches this. Out of fold nine in ten questions
asked of foreign chunks have none, and one in a hundred of the others (one in fifteen with six chunks or
fewer)."""
