"""Which experiments there are, or were: their documents, from the configuration centre. All of it blocks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from gateway.errors import CentreUnavailable, ConfigError, UnknownVersion
from gateway.store.centre import ConfigCentre
from gateway.store.document import ExperimentDocument
from gateway.store.documents import Documents
from gateway.store.snapshot import experiment_of

MAX_CHANGES = 1_000
"""How far back the past is looked up."""


def experiments_in_force(centre: ConfigCentre) -> tuple[ExperimentDocument, ...]:
    """Return the experiments of the head by id, those that have ended too. Raises ConfigError."""
    documents = centre.head().documents
    return tuple(experiment_of(documents, name) for name in sorted(documents.experiments))


def find_experiment(
    centre: ConfigCentre, experiment_id: str, version: int | None = None
) -> ExperimentDocument:
    """Return the experiment as it was last in force, of the given version or of the newest.

    Of an experiment that was taken out, or goes on in another version, the document comes from the history
    and is not active any more. Raises UnknownVersion where there is none such, ConfigError.
    """
    head = centre.head().documents
    if found := _experiment(head, experiment_id, version):
        return found
    for documents in _earlier(centre):
        with contextlib.suppress(ConfigError):  # not readable any more
            if found := _experiment(documents, experiment_id, version):
                return found.model_copy(update={"is_active": False})
    which = experiment_id if version is None else f"{experiment_id} of version {version}"
    raise UnknownVersion(f"there is no experiment {which}, nor was one in the last {MAX_CHANGES:,} changes")


def _experiment(documents: Documents, experiment_id: str, version: int | None) -> ExperimentDocument | None:
    if experiment_id not in documents.experiments:
        return None
    document = experiment_of(documents, experiment_id)
    return document if version in (None, document.version) else None


def _earlier(centre: ConfigCentre) -> Iterator[Documents]:
    """Yield the documents that were in force, the latest first, as far as they can be read."""
    changes = centre.history(MAX_CHANGES)
    shas = dict.fromkeys(sha for change in changes for sha in (change.to_sha, change.from_sha) if sha)
    for sha in shas:
        try:
            yield centre.find(sha).documents
        except CentreUnavailable:
            raise
        except ConfigError:
            continue
