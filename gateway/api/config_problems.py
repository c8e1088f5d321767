"""What goes wrong with the configuration centre, as the answers of ``/admin/config``."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, TypeVar

from gateway.errors import (
    CentreUnavailable,
    ConfigError,
    Conflict,
    InvalidRequest,
    NotFound,
    PublishConflict,
    PublishRefused,
    RequestError,
    StoreUnavailable,
    UnknownVersion,
)
from gateway.store.centre import ConfigCentre

RETRY_AFTER_S = 5.0
T = TypeVar("T")


async def asked(centre: ConfigCentre, work: Callable[[ConfigCentre], T]) -> T:
    """Return what ``work`` gives, from a thread: the centre blocks. Raises RequestError."""
    try:
        return await asyncio.to_thread(work, centre)
    except (PublishConflict, PublishRefused) as error:
        head = await asyncio.to_thread(_head, centre)
        raise Conflict(error.message, details={"fields": error.fields, "head": head}) from error
    except ConfigError as error:
        raise problem_of(error) from error


async def looked_up(centre: ConfigCentre, work: Callable[[ConfigCentre], T]) -> T:
    """As ``asked``, for what changes nothing: that the stored documents are bad is no fault of the caller."""
    try:
        return await asyncio.to_thread(work, centre)
    except ConfigError as error:
        found = problem_of(error)
        raise Conflict(found.message, details=found.details) if found.status == 400 else found from error


def problem_of(error: ConfigError) -> RequestError:
    """Return the answer that a caller gets: 404, 503, else 400 with file, line and field."""
    if isinstance(error, UnknownVersion):
        return NotFound(error.message)
    if isinstance(error, CentreUnavailable):
        return StoreUnavailable(error.message, retry_after_s=RETRY_AFTER_S)
    field = re.match(r"([A-Za-z_][\w.]*): ", error.message)
    where = {"file": error.file or None, "line": error.line, "field": field[1] if field else None}
    return InvalidRequest(error.message, details=where)


def _head(centre: ConfigCentre) -> dict[str, Any] | None:
    """Return what the caller should look at; None where even that cannot be had."""
    try:
        head = centre.head()
    except ConfigError:
        return None
    return {"number": head.number, "sha": head.sha}
