"""What is chosen out of fold, once the trees are there: the settings' prices, and where a theme begins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from gateway.context.select import meet, needed_probability
from gateway.context.selector import Setting
from gateway.training.fitting import Judged
from gateway.training.variations import Kind

RECALL = MappingProxyType[Setting, float]({"balanced": 0.975, "safe": 0.99})
"""What each setting keeps of the relevant documents, as the mean over the sets of requests as sent."""
THEMELESS = 0.02
"""Share of the requests with relevant documents that may be told that no document is about the question."""
_PRICES = np.geomspace(2.0, 0.004, 400)


@dataclass(frozen=True, slots=True)
class Kept:
    """Means over requests."""

    recall: float
    full: float
    """Share of the requests that keep all that is relevant."""
    tokens: float
    num_requests: int


def choose_price(judged: Sequence[Judged], recall: float) -> float:
    """Return the highest price of a token that keeps ``recall`` of what is relevant, or the lowest tried."""
    as_sent = of_kinds(judged, {"as_sent"})
    for price in _PRICES.tolist():
        sets = by_set(as_sent, price)
        if np.mean([kept.recall for kept in sets.values()]) >= recall:
            return float(f"{price:.3g}")
    return float(_PRICES[-1])


def choose_about(judged: Sequence[Judged]) -> float:
    """Return the probability without links that the best chunk of nearly every answerable request reaches."""
    best = [each.without_links.max() for each in of_kinds(judged, {"as_sent", "untitled"})]
    return float(f"{np.quantile(best, THEMELESS):.3g}")


def by_set(judged: Sequence[Judged], price: float) -> dict[str, Kept]:
    """Return what is kept at ``price`` of each set's requests that have anything relevant."""
    rows: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for each in judged:
        relevant = each.example.relevant
        keeps = meet(each.probability, needed_probability(each.probability, each.example.sizes, price))
        recall = float(keeps[relevant].mean())
        rows[each.example.set].append((recall, float(recall == 1.0), float(each.example.tokens[keeps].sum())))
    kept = {}
    for name, values in rows.items():
        recall, full, tokens = np.mean(values, axis=0).tolist()
        kept[name] = Kept(recall, full, tokens, len(values))
    return kept


def of_kinds(judged: Sequence[Judged], kinds: Collection[Kind]) -> list[Judged]:
    """Return those of ``kinds`` that have anything relevant."""
    return [each for each in judged if each.example.kind in kinds and each.example.relevant.any()]


def reliability(judged: Sequence[Judged]) -> list[tuple[float, float, int]]:
    """Return (mean probability, share that is relevant, number of chunks) for each tenth of [0, 1]."""
    probability = np.concatenate([each.probability for each in judged])
    relevant = np.concatenate([each.example.relevant for each in judged])
    tenth: NDArray[np.int64] = np.minimum((probability * 10).astype(int), 9)
    return [
        (float(probability[tenth == place].mean()), float(relevant[tenth == place].mean()), int(number))
        for place, number in enumerate(np.bincount(tenth, minlength=10))
        if number
    ]


def share_themeless(judged: Sequence[Judged], about: float) -> float:
    """Return the share of the requests with another one's question that are told to have no theme."""
    foreign = [each.without_links.max() < about for each in judged if each.example.kind == "foreign"]
    return float(np.mean(foreign)) if foreign else float("nan")
