"""What an experiment's end makes of the documents: it is off, and its tasks may be what they were before it.

Pure but for ``before_first_active``, which looks the past up in the configuration centre and blocks.
"""

from __future__ import annotations

from itertools import groupby

from gateway.errors import CentreUnavailable, ConfigError
from gateway.outcomes.ledger import Experiment
from gateway.store.centre import ConfigCentre, Version
from gateway.store.document import ExperimentDocument
from gateway.store.documents import Documents
from gateway.store.snapshot import experiment_of

MAX_CHANGES = 1_000
"""How far back the past is looked up."""


def active_in(documents: Documents, experiment: Experiment) -> ExperimentDocument | None:
    """Return the experiment where this version of it is active, else None. Raises ConfigError."""
    if experiment.id not in documents.experiments:
        return None
    document = experiment_of(documents, experiment.id)
    return document if document.is_active and document.version == experiment.version else None


def stopped(documents: Documents, experiment_id: str) -> Documents:
    """Return the documents with the experiment switched off."""
    off = {**documents.experiments[experiment_id], "is_active": False}
    return Documents(documents.tasks, {**documents.experiments, experiment_id: off})


def tasks_of(document: ExperimentDocument) -> tuple[str, ...]:
    """Return the tasks that the experiment names: those it applies to, and those of its arms."""
    return tuple(sorted({*document.tasks, *(arm.task for arm in document.arms if arm.task)}))


def restored(documents: Documents, before: Documents, document: ExperimentDocument) -> Documents:
    """Return the documents with the experiment's tasks as they were in ``before``; new ones go."""
    names = tasks_of(document)
    kept = {name: task for name, task in documents.tasks.items() if name not in names}
    old = {name: before.tasks[name] for name in names if name in before.tasks}
    return Documents({**kept, **old}, documents.experiments)


def before_first_active(centre: ConfigCentre, experiment: Experiment) -> Version | None:
    """Return what was last known to be in force before this version of the experiment became active.

    None where nothing is known from before it: it began with the namespace, or longer ago than is kept.
    Raises CentreUnavailable.
    """
    changes = reversed(centre.history(MAX_CHANGES))
    # What a change began from is no earlier change's where files were edited by hand in between.
    known = [sha for change in changes for sha in (change.from_sha, change.to_sha) if sha]
    before = None
    for sha, _ in groupby(known):
        try:
            version = centre.find(sha)
            is_active = active_in(version.documents, experiment) is not None
        except CentreUnavailable:
            raise
        except ConfigError:  # gone, or not readable any more
            continue
        if is_active:
            return before
        before = version
    return before
