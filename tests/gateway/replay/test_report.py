"""A replay as it is printed and written."""

from __future__ import annotations

import io
import json

from rich.console import Console

from gateway.replay.comparison import TOLERANCES, Comparison, Difference
from gateway.replay.replay import ChoiceReplay, TurnReplay
from gateway.replay.report import as_json, print_replay

EQUAL = Comparison(3, 3, {"entropy_nats": 0.01, "gravity": 0.001, "k": 1.0, "logprob": 0.02}, 0, None)
PARTED = Comparison(3, 3, {}, 0, Difference(2, "token_id", 17, 18, 0.0))


def replay_of(comparison: Comparison, *, is_exact: bool, batch_size: int) -> TurnReplay:
    choice = ChoiceReplay(0, comparison, "text", batch_size)
    return TurnReplay("turn-1", is_exact, "a-model", "bf16", TOLERANCES["bf16"], (choice,))


def printed(replay: TurnReplay) -> str:
    console = Console(width=80, record=True, file=io.StringIO())
    print_replay(console, replay)
    return console.export_text()


def test_tolerances_and_largest_differences_stand_side_by_side() -> None:
    text = printed(replay_of(EQUAL, is_exact=False, batch_size=1))
    assert "H                  0.010000   0.5 nats" in text
    assert "k                         1    1 + 25%" in text
    assert "equal: 3 steps within the tolerance\n" in text


def test_tokens_that_part_in_a_batch_are_explained() -> None:
    text = printed(replay_of(PARTED, is_exact=True, batch_size=4))
    assert "DIFFERS first at step 2: token was 17, is now 18" in text
    assert "in a batch of up to 4" in text
    assert "batch" not in printed(replay_of(PARTED, is_exact=True, batch_size=1))


def test_the_file_says_the_same() -> None:
    written = json.loads(json.dumps(as_json(replay_of(PARTED, is_exact=True, batch_size=4))))
    assert (written["mode"], written["is_equal"]) == ("exact", False)
    assert written["choices"][0]["first_difference"] == {
        **{"step": 2, "quantity": "token_id"},
        **{"recorded": 17, "replayed": 18, "allowed": 0.0},
    }
