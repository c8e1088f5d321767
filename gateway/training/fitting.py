"""Boosted trees fitted by scikit-learn, and brought into the form that the gateway reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gateway.context.encoding import Space
from gateway.context.forest import Forest
from gateway.context.selector import Scorer
from gateway.context.signals import SIGNALS, Signals
from gateway.errors import CommandError
from gateway.training.measuring import Measured
from gateway.training.variations import WEIGHTS


@dataclass(frozen=True, slots=True)
class Recipe:
    """How trees are fitted. The defaults were chosen out of fold."""

    seed: int = 0
    """Of folds, variations and trees."""
    rounds: int = 200
    depth: int = 4
    shrinkage: float = 0.06
    columns_tried: float = 0.3
    """Share of the signals that each split chooses from, drawn anew: many of them say nearly the same."""
    smallest_leaf: int = 50
    penalty: float = 10.0
    num_folds: int = 5


_NEEDS_TOKENS = frozenset({"sentence", "sentence_z", "late", "late_z", "late_gap", "late_gain", "best_late"})
_HAS_SCALE = frozenset({"dense", "dense_gap", "best_dense", "bridge", "feedback", "hop", "answerable"})
COLUMNS = MappingProxyType[Space, tuple[str, ...]](
    {
        "full": SIGNALS,
        "vectors": tuple(name for name in SIGNALS if name not in _NEEDS_TOKENS),
        "foreign": tuple(name for name in SIGNALS if name not in _NEEDS_TOKENS | _HAS_SCALE),
    }
)
"""What can be learned from in each space: another encoder's cosines have another scale."""


def signals_in(measured: Measured, space: Space) -> Signals:
    """Return what ``space`` knows of a request's chunks."""
    return measured.full if space == "full" else measured.vectors


def fit(examples: Sequence[Measured], space: Space, recipe: Recipe) -> Forest:
    """Fit the keep-probability. Every set counts alike, and within it every request of one kind.

    Raises CommandError where nothing, or everything, is relevant.
    """
    matrix = np.concatenate([signals_in(each, space).matrix(COLUMNS[space]) for each in examples])
    relevant = np.concatenate([each.relevant for each in examples])
    if relevant.all() or not relevant.any():
        raise CommandError("to learn from, some documents must be relevant and some not")
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # so little work for each, and waiting threads spin
        model = _model(recipe).fit(matrix, relevant, sample_weight=_weights(examples))
    forest = _forest(model, recipe.depth)
    if not np.allclose(forest.log_odds(matrix), model.decision_function(matrix), atol=1e-6):
        raise CommandError(
            "scikit-learn keeps its trees in another form here; constraints.txt has the version"
        )
    return forest


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """An example as trees judge it that saw nothing made from the same request, [n] each."""

    example: Measured
    probability: NDArray[np.float64]
    without_links: NDArray[np.float64]


def out_of_fold(examples: Sequence[Measured], space: Space, recipe: Recipe) -> list[Judged]:
    """Judge every example by trees fitted on the other folds."""
    return [
        judged for fold in _folds(examples, recipe) for judged in _held_out(examples, fold, space, recipe)
    ]


def out_of_set(examples: Sequence[Measured], space: Space, recipe: Recipe) -> list[Judged]:
    """Judge every example by trees fitted on the other sets: how it goes with data of another kind."""
    sets = {each.source: each.set for each in examples}
    folds = [
        frozenset(source for source in sets if sets[source] == name) for name in sorted(set(sets.values()))
    ]
    return [judged for fold in folds for judged in _held_out(examples, fold, space, recipe)]


def _held_out(
    examples: Sequence[Measured], fold: frozenset[int], space: Space, recipe: Recipe
) -> Iterator[Judged]:
    scorer = Scorer(
        COLUMNS[space], fit([each for each in examples if each.source not in fold], space, recipe), {}, 0.0
    )
    for each in examples:
        if each.source in fold:
            signals = signals_in(each, space)
            yield Judged(each, scorer.probability(signals), scorer.probability_without_links(signals))


def _folds(examples: Sequence[Measured], recipe: Recipe) -> Iterator[frozenset[int]]:
    """Yield the sources of each fold, every set spread evenly over them."""
    rng = np.random.default_rng(recipe.seed)
    sets = {each.source: each.set for each in examples}
    shuffled = sorted(rng.permutation(sorted(sets)).tolist(), key=lambda source: sets[source])
    for fold in range(recipe.num_folds):
        yield frozenset(shuffled[fold :: recipe.num_folds])


def _weights(examples: Sequence[Measured]) -> NDArray[np.float64]:
    """Return a weight a chunk, of mean 1."""
    sizes: dict[str, set[int]] = {}
    for each in examples:
        sizes.setdefault(each.set, set()).add(each.source)
    weights = np.concatenate(
        [
            np.full(len(each.relevant), WEIGHTS[each.kind] / len(each.relevant) / len(sizes[each.set]))
            for each in examples
        ]
    )
    scaled: NDArray[np.float64] = weights / weights.mean()
    return scaled


def _model(recipe: Recipe) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(
        max_depth=recipe.depth,
        max_iter=recipe.rounds,
        learning_rate=recipe.shrinkage,
        max_features=recipe.columns_tried,
        min_samples_leaf=recipe.smallest_leaf,
        l2_regularization=recipe.penalty,
        early_stopping=False,
        random_state=recipe.seed,
    )


def _forest(model: Any, depth: int) -> Forest:
    """Return scikit-learn's trees as complete ones: a leaf above the last level is repeated down to it."""
    trees = [predictors[0].nodes for predictors in model._predictors]
    columns = np.zeros((len(trees), 2**depth - 1), np.int16)
    thresholds = np.full(columns.shape, np.inf)
    leaves = np.zeros((len(trees), 2**depth))
    for tree, nodes in enumerate(trees):
        places = {0: 0}  # ours to theirs
        for place in range(2 ** (depth + 1) - 1):
            node = nodes[places[place]]
            if place >= 2**depth - 1:
                leaves[tree, place - (2**depth - 1)] = node["value"]
            elif node["is_leaf"]:
                places[2 * place + 1] = places[2 * place + 2] = places[place]
            else:
                columns[tree, place] = node["feature_idx"]
                thresholds[tree, place] = node["num_threshold"]
                places[2 * place + 1], places[2 * place + 2] = int(node["left"]), int(node["right"])
    return Forest(float(np.ravel(model._baseline_prediction)[0]), columns, thresholds, leaves)
