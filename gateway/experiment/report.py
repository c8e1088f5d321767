"""``gravity experiment report ID``."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

from gateway.experiment.source import ExperimentSource
from gateway.experiment.tables import print_report, wide_console
from gateway.lab.analysis import analyse
from gateway.lab.findings import report_json
from gateway.outcomes.experiments import find_experiment
from gateway.outcomes.read import read_observations


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """``version``: None is the newest."""

    experiment_id: str
    version: int | None = None
    json_file: Path | None = None


def run_report(source: ExperimentSource, options: ReportOptions) -> int:
    """Print the verdict and the tables. Raises ExperimentError where there is no such experiment."""
    document = source.ask(lambda centre: find_experiment(centre, options.experiment_id, options.version))
    observations = asyncio.run(
        source.read(lambda redis: read_observations(redis, document.id, document.version))
    )
    report = analyse(document, observations)
    print_report(wide_console(), report)
    if options.json_file is not None:
        options.json_file.write_bytes(report_json(report))
    return 0
