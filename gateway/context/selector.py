"""The learned selector: from signals to a calibrated keep-probability, and from that to what stays."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from gateway.context.encoding import Space
from gateway.context.forest import Forest
from gateway.context.select import needed_probability
from gateway.context.signals import SIGNALS, Signals
from gateway.errors import ConfigError

Setting: TypeAlias = Literal["balanced", "safe"]
SETTINGS: tuple[Setting, ...] = get_args(Setting)
Keep: TypeAlias = Setting | float
"""A named setting, or the keep-probability from which on a document stays."""

FORMAT = 1
BUNDLED = "selector.safetensors"
LINK_SIGNALS = frozenset({"bridge", "pull", "named_by", "names", "named_later", "shared"})
_HEADER = "selector"
_ARRAYS = ("columns", "thresholds", "leaves")


@dataclass(frozen=True, slots=True, eq=False)
class Scorer:
    """What one space's encodings are judged with."""

    signals: tuple[str, ...]
    """The forest's columns."""
    forest: Forest
    prices: Mapping[Setting, float]
    """What a token costs in each named setting; see ``needed_probability``."""
    about: float
    """A request has a theme where some chunk, without its links, reaches this probability."""

    def probability(self, signals: Signals) -> NDArray[np.float64]:
        """Return [n] the probability that each chunk is wanted, calibrated on the training data."""
        return _logistic(self.forest.log_odds(signals.matrix(self.signals)))

    def probability_without_links(self, signals: Signals) -> NDArray[np.float64]:
        """Return [n] what the probability would be if no chunk named or shared anything."""
        matrix = signals.matrix(self.signals)
        matrix[:, [name in LINK_SIGNALS for name in self.signals]] = 0.0
        return _logistic(self.forest.log_odds(matrix))

    def needed(
        self, keep: Keep, probability: NDArray[np.float64], sizes: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Return [n] the keep-probability from which on each chunk stays; ``sizes`` in characters."""
        if isinstance(keep, str):
            return needed_probability(probability, sizes, self.prices[keep])
        return np.full(len(probability), keep)


@dataclass(frozen=True, slots=True, eq=False)
class Selector:
    """A trained artefact: one scorer a space, and where it comes from."""

    version: str
    scorers: Mapping[Space, Scorer]

    @classmethod
    def load(cls, path: Path | None = None) -> Selector:
        """Read an artefact, without ``path`` the one that comes with the package. Raises ConfigError."""
        if path is not None:
            return _read(path)
        with as_file(files("gateway.context") / BUNDLED) as bundled:
            return _read(bundled)

    @classmethod
    def of(cls, scorers: Mapping[Space, Scorer]) -> Selector:
        """Return the selector of ``scorers``, its version a hash of all their numbers."""
        digest = hashlib.sha256()
        for space, scorer in scorers.items():
            described = (space, scorer.signals, scorer.forest.baseline, dict(scorer.prices), scorer.about)
            digest.update(repr(described).encode())
            for name in _ARRAYS:
                digest.update(np.ascontiguousarray(getattr(scorer.forest, name)).tobytes())
        return cls(digest.hexdigest()[:12], scorers)

    def save(self, path: Path) -> None:
        """Write the artefact: safetensors, a few hundred kilobytes. Raises OSError."""
        from safetensors.numpy import save_file

        tensors = {
            f"{space}.{name}": np.ascontiguousarray(getattr(scorer.forest, name))
            for space, scorer in self.scorers.items()
            for name in _ARRAYS
        }
        described = {
            space: {
                "signals": scorer.signals,
                "baseline": scorer.forest.baseline,
                "prices": dict(scorer.prices),
                "about": scorer.about,
            }
            for space, scorer in self.scorers.items()
        }
        header = {"format": FORMAT, "version": self.version, "scorers": described}
        # One key: several would be written in a random order, and the same selector in different bytes.
        save_file(tensors, path, {_HEADER: json.dumps(header)})


def _read(path: Path) -> Selector:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np") as opened:
            header = json.loads(opened.metadata()[_HEADER])
            if header["format"] != FORMAT:
                raise ConfigError(
                    f"this selector has format {header['format']}, and {FORMAT} is read here: "
                    "train it again with gravity train context",
                    file=str(path),
                )
            arrays = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (it cannot be iterated)
        scorers = {space: _scorer(space, header["scorers"][space], arrays) for space in get_args(Space)}
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"the selector cannot be read: {error!r}", file=str(path)) from error
    return Selector(str(header["version"]), MappingProxyType(scorers))


def _scorer(space: str, described: Mapping[str, Any], arrays: Mapping[str, Any]) -> Scorer:
    signals = tuple(described["signals"])
    if unknown := set(signals) - set(SIGNALS):
        raise ValueError(f"unknown signals: {', '.join(sorted(unknown))}")
    forest = Forest(float(described["baseline"]), *(arrays[f"{space}.{name}"] for name in _ARRAYS))
    if forest.columns.max(initial=0) >= len(signals):
        raise ValueError("the trees look at more signals than are named")
    prices: dict[Setting, float] = {name: float(described["prices"][name]) for name in SETTINGS}
    return Scorer(signals, forest, MappingProxyType(prices), float(described["about"]))


def _logistic(log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
    probability: NDArray[np.float64] = 1.0 / (1.0 + np.exp(-log_odds))
    return probability
