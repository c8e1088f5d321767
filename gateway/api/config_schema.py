"""What ``/admin/config`` takes and gives. Unlike a model's request, a field too many is an error here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from gateway.errors import InvalidRequest
from gateway.store.canary import Share
from gateway.store.centre import Change, FieldChange
from gateway.store.fleet import FleetStatus
from gateway.store.lineage import first_problem
from gateway.store.origin import Origin
from gateway.store.overview import Overview
from gateway.store.watch import StoreStatus

MAX_DOCUMENTS = 1_000
M = TypeVar("M", bound=BaseModel)
Reference: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=64)]
"""``head``, a number, ``-1`` for the one before the head, or the start of a sha."""
Reason: TypeAlias = Annotated[str, StringConstraints(pattern=r"\S", max_length=2_000)]
Name: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=200)]


class Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class Query(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ProposedDocuments(Body):
    """Documents, each a JSON object or YAML text; they say by their fields what they are."""

    documents: Annotated[list[dict[str, Any] | str], Field(max_length=MAX_DOCUMENTS)] = []
    is_whole: bool = False
    """They are all there shall be; otherwise they replace documents of the head, or join them."""
    removed: list[Name] = []
    """``tasks.NAME`` or ``experiments.ID``, each taken out of the head."""
    share: Share | None = None
    """What the change gets of the traffic for a start; null is all of it."""


class PublishBody(ProposedDocuments):
    why: Reason
    who: Name | None = None
    """By default the name of the key."""
    expected_sha: str | None = None
    """The head that the change was made from, as If-Match: another head is a 409."""
    is_forced: bool = False
    is_dry_run: bool = False


class RollbackBody(Body):
    reference: Reference
    why: Reason
    who: Name | None = None
    is_dry_run: bool = False


class ImportBody(Body):
    exported: dict[str, Any]
    """What ``GET /admin/config/export`` gave."""
    why: Reason
    who: Name | None = None
    is_forced: bool = False


class DocumentQuery(Query):
    at: Reference = "head"
    effective: bool = True
    """With what it inherits and the schema adds; otherwise as it was written."""


class DiffQuery(Query):
    from_: Annotated[Reference, Field(alias="from")] = "-1"
    to: Reference = "head"


class HistoryQuery(Query):
    limit: Annotated[int, Field(ge=1, le=10_000)] = 50


@dataclass(frozen=True, slots=True)
class ConfigList:
    namespace: str
    head: Overview


@dataclass(frozen=True, slots=True)
class ConfigDocument:
    number: int
    sha: str
    document: Mapping[str, Any]
    origins: Mapping[str, Origin]
    """Of each field that is in force; empty for a document as it was written."""


@dataclass(frozen=True, slots=True)
class ConfigDiff:
    from_sha: str
    to_sha: str
    changes: tuple[FieldChange, ...]


@dataclass(frozen=True, slots=True)
class ConfigHistory:
    changes: tuple[Change, ...]
    """The newest first."""


@dataclass(frozen=True, slots=True)
class ConfigStatus:
    """This gateway, from its own memory, and the fleet, as far as the store answers."""

    replica_id: str
    own: StoreStatus
    own_warnings: tuple[str, ...]
    """Of what this gateway serves, with the models that its workers have now."""
    fleet: FleetStatus


@dataclass(frozen=True, slots=True)
class Validated:
    """What was valid, and what it would change."""

    sha: str
    changes: tuple[FieldChange, ...]
    warnings: tuple[str, ...]


def as_body(model: type[M], body: Mapping[str, Any]) -> M:
    """Return ``body`` as ``model``. Raises InvalidRequest for the first field that is wrong, by its name."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        location = error.errors(include_url=False)[0]["loc"]
        place = ".".join(
            str(part) for part in location if re.fullmatch(r"\w+", str(part))
        )  # no dict[str,any]
        raise InvalidRequest(first_problem(error), param=place or None, details={"field": place}) from None
