"""The whole command, with the real encoder, on requests written for this test."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gateway.context.selector import Selector
from gateway.context.signals import SIGNALS, Signals
from gateway.errors import CommandError
from gateway.training.context import TrainOptions, run_train_context
from gateway.training.fitting import Recipe

QUICK = Recipe(rounds=8, num_folds=2)
TOWNS = (
    "Ostrey",
    "Calder",
    "Brack",
    "Wenlow",
    "Tarn",
    "Pell",
    "Dunmore",
    "Sallow",
    "Marrick",
    "Hythe",
    "Oake",
    "Lune",
)
TRADES = ("mill", "bell", "ferry", "forge", "kiln")


def line(number: int) -> str:
    """Ask for one trade of one town; the other trades and towns are off the question."""
    town, trade = TOWNS[number], TRADES[number % len(TRADES)]
    documents = [
        {
            "title": f"The {other} of {place}",
            "text": f"The {other} of {place} was built by {place}'s guild.",
            "relevant": False,
        }
        for place in (town, TOWNS[(number + 1) % len(TOWNS)])
        for other in TRADES
    ]
    documents[TRADES.index(trade)]["relevant"] = True
    request = {
        "set": f"part-{number % 2}",
        "question": f"Who built the {trade} of {town}?",
        "documents": documents,
    }
    return json.dumps(request)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("training")
    (folder / "data.jsonl").write_text("\n".join(map(line, range(len(TOWNS)))))
    assert run_train_context(TrainOptions((folder / "data.jsonl",), folder / "mine.safetensors", QUICK)) == 0
    return folder


def test_what_was_trained_is_read_and_prefers_what_it_was_shown_as_relevant(trained: Path) -> None:
    scorer = Selector.load(trained / "mine.safetensors").scorers["full"]
    low, high = (Signals(*(np.array([value]) for _ in SIGNALS)) for value in (0.0, 1.0))
    assert scorer.probability(high)[0] != scorer.probability(low)[0]
    assert 0.0 < scorer.prices["safe"] <= scorer.prices["balanced"] <= 2.0


def test_the_card_tells_where_it_comes_from(trained: Path) -> None:
    card = (trained / "mine.md").read_text()
    assert "requests: part-0 6, part-1 6" in card
    assert "`data.jsonl`, SHA-256" in card
    assert "| part-1 | untitled |" in card


def test_training_again_gives_the_same_file(trained: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.safetensors"
    run_train_context(TrainOptions((trained / "data.jsonl",), again, QUICK))
    assert again.read_bytes() == (trained / "mine.safetensors").read_bytes()


def test_too_few_requests_are_refused(tmp_path: Path) -> None:
    (tmp_path / "data.jsonl").write_text("\n".join(map(line, range(3))))
    with pytest.raises(CommandError, match="3 labelled requests are too few"):
        run_train_context(TrainOptions((tmp_path / "data.jsonl",), tmp_path / "mine.safetensors"))


def test_a_missing_folder_is_told_before_anything_is_encoded(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no folder"):
        run_train_context(TrainOptions((trained / "data.jsonl",), tmp_path / "no" / "mine.safetensors"))
