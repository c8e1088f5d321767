"""The learned artefact: read, written, refused, and what its probabilities mean."""

from __future__ import annotations

import math
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from gateway.context.encoding import Space
from gateway.context.forest import Forest
from gateway.context.selector import BUNDLED, LINK_SIGNALS, Scorer, Selector
from gateway.context.signals import SIGNALS, Signals
from gateway.errors import ConfigError

PACKAGE = Path(__file__).parents[3] / "gateway/context"


def signals(**known: float) -> Signals:
    """One chunk, 0 in all that is not given."""
    return Signals(*(np.array([known.get(name, 0.0)]) for name in SIGNALS))


def stump(signal: str) -> Scorer:
    """Log-odds 2 where the signal is above a half, else -2."""
    forest = Forest(0.0, np.array([[0]], np.int16), np.array([[0.5]]), np.array([[-2.0, 2.0]]))
    return Scorer((signal,), forest, {"balanced": 0.1, "safe": 0.05}, 0.3)


def test_the_probability_is_the_logistic_of_the_log_odds() -> None:
    probability = stump("dense").probability(signals(dense=0.9))
    assert probability == pytest.approx([1 / (1 + math.exp(-2.0))])


def test_without_links_a_chunk_is_judged_by_what_it_says_itself() -> None:
    linked = signals(pull=1.0)
    assert stump("pull").probability(linked)[0] > 0.8
    assert stump("pull").probability_without_links(linked)[0] < 0.2
    alone = signals(dense=1.0)
    assert stump("dense").probability_without_links(alone) == stump("dense").probability(alone)


def test_a_setting_asks_for_what_a_chunk_costs_and_a_number_for_itself() -> None:
    scorer = stump("dense")
    probability, sizes = np.array([0.9, 0.3]), np.array([300.0, 100.0])
    # Expected relevant 1.2; sqrt(2) * (3/4, 1/4) of the size.
    expected = [0.1 * 1.2 * math.sqrt(2) * 0.75, 0.1 * 1.2 * math.sqrt(2) * 0.25]
    assert scorer.needed("balanced", probability, sizes) == pytest.approx(expected)
    assert scorer.needed("safe", probability, sizes) == pytest.approx(np.array(expected) / 2)
    assert scorer.needed(0.4, probability, sizes).tolist() == [0.4, 0.4]
    assert scorer.needed(0, probability, sizes).tolist() == [0.0, 0.0]


def test_the_package_brings_a_selector_for_every_space_and_its_card() -> None:
    selector = Selector.load()
    assert set(selector.scorers) == set(get_args(Space))
    for scorer in selector.scorers.values():
        assert 0.0 < scorer.prices["safe"] < scorer.prices["balanced"] < 1.0
        assert 0.1 < scorer.about < 0.9
        assert LINK_SIGNALS & set(scorer.signals)
    assert {"late", "sentence"} <= set(selector.scorers["full"].signals)
    assert not {"late", "sentence"} & set(selector.scorers["vectors"].signals)
    assert not {"late", "dense", "best_dense"} & set(selector.scorers["foreign"].signals)
    card = (PACKAGE / BUNDLED).with_suffix(".md").read_text()
    assert card.startswith(f"# Selector {selector.version}\n")
    assert "rgb" not in card


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    selector = Selector.load()
    selector.save(tmp_path / "copy.safetensors")
    copy = Selector.load(tmp_path / "copy.safetensors")
    assert copy.version == selector.version == Selector.of(copy.scorers).version
    rng = np.random.default_rng(3)
    drawn = Signals(*rng.normal(size=(len(SIGNALS), 50)))
    for space, scorer in selector.scorers.items():
        assert copy.scorers[space].probability(drawn).tolist() == scorer.probability(drawn).tolist()
        assert copy.scorers[space].prices == scorer.prices


def test_the_artefact_is_small() -> None:
    assert (PACKAGE / BUNDLED).stat().st_size < 200_000


def test_an_artefact_of_another_format_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with safe_open(PACKAGE / BUNDLED, "np") as opened:
        header = opened.metadata()["selector"]
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 (it cannot be iterated)
    path = tmp_path / "next.safetensors"
    save_file(tensors, path, {"selector": header.replace('"format": 1', '"format": 2')})
    with pytest.raises(ConfigError, match="train it again with gravity train context"):
        Selector.load(path)
    save_file(tensors, path, {"selector": header.replace('"dense"', '"denser"')})
    with pytest.raises(ConfigError, match="unknown signals: denser"):
        Selector.load(path)


def test_a_file_that_is_no_selector_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "selector.safetensors"
    path.write_bytes(b"\x80\x04not a selector")
    with pytest.raises(ConfigError, match="cannot be read"):
        Selector.load(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        Selector.load(tmp_path / "missing.safetensors")
