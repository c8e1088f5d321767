"""The paths under ``/admin/config``."""

from __future__ import annotations

from typing import Any

from gateway.api.admin_config import (
    config_history,
    config_status,
    diff_config,
    export_config,
    get_document,
    import_config,
    list_config,
    publish_config,
    rollback_config,
    validate_config,
)
from gateway.api.config_schema import (
    ConfigDiff,
    ConfigDocument,
    ConfigHistory,
    ConfigList,
    ConfigStatus,
    DiffQuery,
    DocumentQuery,
    HistoryQuery,
    ImportBody,
    ProposedDocuments,
    PublishBody,
    RollbackBody,
    Validated,
)
from gateway.api.path import Parameter, Path
from gateway.errors import Conflict, NotFound, StoreUnavailable
from gateway.keys.scope import Scope
from gateway.store.centre import Published

TAGS = ("configuration",)
READ, WRITE = frozenset[Scope]({"config:read"}), frozenset[Scope]({"config:write"})
ERRORS = (StoreUnavailable, NotFound, Conflict)
IF_MATCH = Parameter("If-Match", "The sha of the head that the change was made from, in double quotes.")

CONFIG_PATHS = (
    Path(
        "GET",
        "/admin/config",
        list_config,
        "The documents in force, in short",
        TAGS,
        response=ConfigList,
        errors=ERRORS,
        scopes=READ,
    ),
    Path(
        "GET",
        "/admin/config/documents/{kind}/{name}",
        get_document,
        "One document of a version, and where each field comes from",
        TAGS,
        query=DocumentQuery,
        response=ConfigDocument,
        errors=ERRORS,
        scopes=READ,
    ),
    Path(
        "GET",
        "/admin/config/diff",
        diff_config,
        "The fields that differ between two versions",
        TAGS,
        query=DiffQuery,
        response=ConfigDiff,
        errors=ERRORS,
        scopes=READ,
    ),
    Path(
        "GET",
        "/admin/config/history",
        config_history,
        "The changes of the head, the newest first",
        TAGS,
        query=HistoryQuery,
        response=ConfigHistory,
        errors=ERRORS,
        scopes=READ,
    ),
    Path(
        "GET",
        "/admin/config/status",
        config_status,
        "The head, and what every gateway serves",
        TAGS,
        response=ConfigStatus,
        scopes=READ,
    ),
    Path(
        "GET",
        "/admin/config/export",
        export_config,
        "Head, history and all versions",
        TAGS,
        response=dict[str, Any],
        errors=ERRORS,
        scopes=READ,
    ),
    Path(
        "POST",
        "/admin/config/validate",
        validate_config,
        "Whether documents would serve, and what they would change",
        TAGS,
        request=ProposedDocuments,
        response=Validated,
        errors=ERRORS,
        scopes=READ,
    ),
    Path(
        "POST",
        "/admin/config/publish",
        publish_config,
        "Another head, all or nothing",
        TAGS,
        request=PublishBody,
        headers=(IF_MATCH,),
        response=Published,
        errors=ERRORS,
        scopes=WRITE,
    ),
    Path(
        "POST",
        "/admin/config/rollback",
        rollback_config,
        "An old version's content, published again",
        TAGS,
        request=RollbackBody,
        response=Published,
        errors=ERRORS,
        scopes=WRITE,
    ),
    Path(
        "POST",
        "/admin/config/import",
        import_config,
        "Take over what an export gave",
        TAGS,
        request=ImportBody,
        response=Published,
        errors=ERRORS,
        scopes=WRITE,
    ),
)
