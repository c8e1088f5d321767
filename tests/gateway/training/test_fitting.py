"""Trees brought into our form against scikit-learn's own predictions, and what keeps the folds apart."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from gateway.context.signals import SIGNALS, Signals
from gateway.errors import CommandError
from gateway.training import fitting
from gateway.training.fitting import COLUMNS, Recipe, fit, out_of_fold, out_of_set
from gateway.training.measuring import Measured

QUICK = Recipe(rounds=25, num_folds=2, smallest_leaf=10)


def example(rng: np.random.Generator, source: int, name: str = "mine", n: int = 12) -> Measured:
    """Chunks that are relevant where ``late`` and ``pull`` are high; all else is noise."""
    columns = {signal: rng.normal(size=n) for signal in SIGNALS}
    signals = Signals(**columns)
    relevant = columns["late"] + columns["pull"] > 1.5
    return Measured("as_sent", name, source, relevant, np.full(n, 1 / n), np.ones(n), signals, signals)


def examples(num: int = 60, names: tuple[str, ...] = ("mine",)) -> list[Measured]:
    rng = np.random.default_rng(1)
    return [example(rng, source, names[source % len(names)]) for source in range(num)]


def test_the_forest_says_what_scikit_learn_says() -> None:
    rng = np.random.default_rng(2)
    matrix = rng.normal(size=(400, 5))
    relevant = matrix[:, 0] + matrix[:, 1] ** 2 > 1
    model = HistGradientBoostingClassifier(max_depth=3, max_iter=30, early_stopping=False).fit(
        matrix, relevant
    )
    fresh = rng.normal(size=(1000, 5)) * 2
    expected = model.decision_function(fresh)
    assert fitting._forest(model, 3).log_odds(fresh) == pytest.approx(expected, abs=1e-9)


def test_what_decides_is_learned_and_out_of_fold_it_tells_relevant_from_not() -> None:
    judged = out_of_fold(examples(), "full", QUICK)
    assert sorted(each.example.source for each in judged) == list(range(60))
    probability = np.concatenate([each.probability for each in judged])
    relevant = np.concatenate([each.example.relevant for each in judged])
    higher = probability[relevant][:, None] > probability[~relevant][None]
    assert higher.mean() > 0.9  # the area under the ROC curve


def test_without_links_their_signals_do_not_count() -> None:
    (each, *_) = out_of_fold(examples(20), "full", QUICK)
    assert not np.allclose(each.without_links, each.probability)


def test_a_space_learns_from_what_it_knows() -> None:
    assert COLUMNS["full"] == SIGNALS
    assert "late" not in COLUMNS["vectors"]
    assert "dense" in COLUMNS["vectors"]
    assert "dense" not in COLUMNS["foreign"]
    assert "dense_z" in COLUMNS["foreign"]


def test_the_same_seed_fits_the_same_trees() -> None:
    drawn = examples(20)
    one, other = fit(drawn, "vectors", QUICK), fit(drawn, "vectors", QUICK)
    assert one.leaves.tolist() == other.leaves.tolist()
    assert one.thresholds.tolist() == other.thresholds.tolist()


def test_a_set_is_judged_by_trees_that_never_saw_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[str]] = []
    genuine = fitting.fit

    def watched(drawn: list[Measured], *rest: object) -> object:
        seen.append({each.set for each in drawn})
        return genuine(drawn, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(fitting, "fit", watched)
    judged = out_of_set(examples(30, ("a", "b", "c")), "full", QUICK)
    assert len(judged) == 30
    assert seen == [{"b", "c"}, {"a", "c"}, {"a", "b"}]


def test_nothing_can_be_learned_where_nothing_is_relevant() -> None:
    rng = np.random.default_rng(0)
    signals = Signals(*rng.normal(size=(len(SIGNALS), 4)))
    bare = Measured("as_sent", "mine", 0, np.zeros(4, bool), np.full(4, 0.25), np.ones(4), signals, signals)
    with pytest.raises(CommandError, match="some documents must be relevant and some not"):
        fit([bare], "full", QUICK)
