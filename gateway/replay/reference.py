"""What ``--config REF`` means: a folder that is not published yet, or a version in the centre."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from gateway.errors import ConfigError, ReplayError
from gateway.settings import GatewaySettings
from gateway.stack.environment import described
from gateway.store.backend import KINDS, ConfigFolder
from gateway.store.editing import read_documents
from gateway.store.opening import open_centre
from gateway.store.snapshot import Snapshot, build_snapshot


async def snapshot_of(reference: str, settings: GatewaySettings) -> Snapshot:
    """Return the configuration by a folder, ``head``, a version's number or the start of its sha.

    Raises ReplayError where there is no such thing, or it is invalid.
    """
    try:
        return await asyncio.to_thread(_snapshot_of, reference, settings)
    except ConfigError as error:
        raise ReplayError(f"the configuration {reference!r} cannot be used: {described(error)}") from error


def is_folder(reference: str) -> bool:
    """Whether the reference names a folder of documents; a version is never written so."""
    path = Path(reference)
    return path.is_dir() and any((path / kind).is_dir() for kind in KINDS)


def _snapshot_of(reference: str, settings: GatewaySettings) -> Snapshot:
    if is_folder(reference):
        files = ConfigFolder(Path(reference)).read().files
        return build_snapshot(read_documents(files), time.time())
    return build_snapshot(open_centre(settings).find(reference).documents, time.time())
