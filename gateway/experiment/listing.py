"""``gravity experiment list``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from redis.asyncio import Redis
from rich.table import Table
from rich.text import Text

from gateway.experiment.source import ExperimentSource
from gateway.experiment.tables import wide_console
from gateway.lab.srm import widths
from gateway.outcomes.experiments import experiments_in_force
from gateway.outcomes.read import num_entries
from gateway.store.document import ExperimentDocument


def run_list(source: ExperimentSource) -> int:
    """Print the experiments of the configuration in force. Raises ExperimentError."""
    documents = source.ask(experiments_in_force)
    counts = asyncio.run(source.read(lambda redis: _counts(redis, documents)))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("experiment", "version", "state", "tasks", "coverage", "arms", "decided by"):
        table.add_column(name)
    table.add_column("entries", justify="right")
    for document, count in zip(documents, counts, strict=True):
        table.add_row(
            Text(document.id),
            str(document.version),
            "active" if document.is_active else "not active",
            Text(", ".join(document.tasks) or "all"),
            f"{document.coverage:.0%}",
            Text(", ".join(f"{arm} {width:.0%}" for arm, width in widths(document.arms).items())),
            Text(document.primary_metric),
            f"{count:,}",
        )
    wide_console().print(table if documents else "there are no experiments")
    return 0


async def _counts(redis: Redis, documents: Sequence[ExperimentDocument]) -> list[int]:
    return [await num_entries(redis, document.id, document.version) for document in documents]
