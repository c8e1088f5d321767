"""A replay as people and as programs read it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.replay.comparison import Comparison, Tolerance
from gateway.replay.replay import TurnReplay

NAMES = {"entropy_nats": "H", "gravity": "G", "k": "k", "logprob": "logprob", "token_id": "token"}


def print_replay(console: Console, replay: TurnReplay) -> None:
    """What was compared within which tolerance, and what came of it."""
    how = "tokens drawn again from the seed" if replay.is_exact else "recorded tokens fed again"
    console.print(Text(f"turn {replay.turn_id}: {how}; {replay.model}, {replay.dtype}"))
    if replay.environment_changes:
        console.print(Text(f"not as it was decoded first: {', '.join(replay.environment_changes)}"))
    for choice in replay.choices:
        if len(replay.choices) > 1:
            console.print(f"choice {choice.choice}")
        console.print(_table(choice.comparison, replay.tolerance))
        console.print(Text(verdict(choice.comparison, is_exact=replay.is_exact)))
        if replay.is_exact and choice.batch_size > 1 and not choice.comparison.is_equal:
            console.print(
                f"it was decoded in a batch of up to {choice.batch_size}, where rounding differs: "
                "the same tokens are promised only for a turn that was decoded alone"
            )


def verdict(comparison: Comparison, *, is_exact: bool) -> str:
    """One sentence: equal, or the first step that is not."""
    difference = comparison.first_difference
    if difference is None:
        tokens = ", tokens included" if is_exact else ""
        jumps = f"; k at its largest on one side alone {comparison.num_k_jumps} x" * bool(
            comparison.num_k_jumps
        )
        return f"equal: {comparison.num_steps} steps within the tolerance{tokens}{jumps}"
    name = NAMES.get(difference.quantity, difference.quantity)
    return (
        f"DIFFERS first at step {difference.step}: {name} was {difference.recorded:.6g}, "
        f"is now {difference.replayed:.6g} (allowed difference {difference.allowed:.4g})"
    )


def as_json(replay: TurnReplay) -> dict[str, Any]:
    """The same for a file."""
    return {
        "turn_id": replay.turn_id,
        "mode": "exact" if replay.is_exact else "trace",
        "model": replay.model,
        "dtype": replay.dtype,
        "tolerance": asdict(replay.tolerance),
        "environment_changes": list(replay.environment_changes),
        "is_equal": replay.is_equal,
        "choices": [
            {"choice": choice.choice, "is_equal": choice.comparison.is_equal, **asdict(choice.comparison)}
            for choice in replay.choices
        ],
    }


def _table(comparison: Comparison, tolerance: Tolerance) -> Table:
    allowed = {
        "entropy_nats": f"{tolerance.entropy_nats:g} nats",
        "gravity": f"{tolerance.gravity:g}",
        "k": f"1 + {tolerance.k_share:.0%}" if tolerance.k_share else "1",
        "logprob": f"{tolerance.logprob:g}",
    }
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "largest difference", "tolerance"):
        table.add_column(name, justify="right" if name else "left")
    for quantity, limit in allowed.items():
        largest = comparison.largest.get(quantity, 0.0)
        table.add_row(NAMES[quantity], f"{largest:.6f}" if quantity != "k" else f"{largest:.0f}", limit)
    return table
