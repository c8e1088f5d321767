"""Many turns under another configuration as people and as programs read it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.replay.batch import BatchReplay


def print_batch(console: Console, batch: BatchReplay) -> None:
    """The share of answers that change, what changes in how many turns, and the turns that change most."""
    answers = batch.answers
    console.print(Text(f"{batch.num_turns} turns under the configuration {batch.sha_now[:8]}"))
    for reason, count in batch.skipped.items():
        console.print(Text(f"  {count} not replayed: {reason}"))
    if answers.num_trials == 0:
        return
    console.print(
        Text(
            f"answers that change: {answers.num_hits} of {answers.num_trials}, {answers.value:.1%} "
            f"(95 % interval {answers.low:.1%} to {answers.high:.1%})"
        )
    )
    console.print(_counts(batch))
    if batch.num_bases_decoded_again:
        again = f"{batch.num_bases_decoded_again} recorded answers were decoded again alone"
        console.print(f"{again}, to compare like with like")
    if batch.most_changed:
        console.print(Text("change most:"))
    for each in batch.most_changed:
        console.print(Text(f"  {each.turn_id}  parts at step {each.first_step}"), soft_wrap=True)


def as_json(batch: BatchReplay) -> dict[str, Any]:
    """The same for a file."""
    return asdict(batch) | {"changed_share": batch.answers.value, "changes_nothing": batch.changes_nothing}


def _counts(batch: BatchReplay) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("")
    table.add_column("", justify="right")
    rows = (
        ("turns with other documents kept", f"{batch.num_documents_changed}"),
        ("turns with another prompt", f"{batch.num_prompts_changed}"),
        ("turns with other controls or sampling", f"{batch.num_settings_changed}"),
        ("turns decoded", f"{batch.num_decoded}"),
        ("mean difference, prompt tokens", f"{batch.mean_prompt_tokens:+.1f}"),
        ("mean difference, completion tokens", f"{batch.mean_completion_tokens:+.1f}"),
        ("mean difference, mean H, nats", f"{batch.mean_entropy_nats:+.3f}"),
        ("mean difference, tau, nats", f"{batch.mean_entropic_time_nats:+.2f}"),
    )
    for row in rows:
        table.add_row(*row)
    return table
