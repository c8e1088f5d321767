"""``/admin/config``: the configuration centre over HTTP. The centre blocks, so each call is a thread's."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.caller import caller_of
from gateway.api.config_problems import asked, looked_up
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
    as_body,
)
from gateway.api.guard import read_body
from gateway.api.schema import parsed
from gateway.api.state import deps_of
from gateway.errors import ConfigError, InvalidRequest, NotFound, UnknownVersion
from gateway.flow.deps import Deps
from gateway.flow.dry_build import dry_build
from gateway.store.amendment import EMPTY, Amendment, amended, kind_of
from gateway.store.backend import KINDS, Kind, SourceFile
from gateway.store.centre import ConfigCentre, Note, Published, Version
from gateway.store.difference import diff
from gateway.store.fleet import fleet_status
from gateway.store.origin import effective_document, sourced_fields, written_document
from gateway.store.overview import overview
from gateway.store.replicas import ReplicaStatus
from gateway.store.snapshot import build_snapshot
from gateway.store.versions import canonical_json
from gateway.store.warnings import warnings_of

MAX_DOCUMENTS_BYTES = 2**20
"""Of a body with documents."""
B = TypeVar("B", bound=BaseModel)


async def list_config(request: Request) -> Response:
    """``GET /admin/config``: the documents in force, in short. ``ETag`` is the head's sha."""
    deps = deps_of(request)
    head = await looked_up(deps.centre, lambda centre: overview(centre.head()))
    return _json(ConfigList(deps.centre.namespace, head), head.sha)


async def get_document(request: Request) -> Response:
    """``GET /admin/config/documents/{kind}/{name}``: one document, and where each field comes from."""
    deps = deps_of(request)
    query = as_body(DocumentQuery, request.query_params)
    kind, name = request.path_params["kind"], request.path_params["name"]
    version = await looked_up(deps.centre, lambda centre: centre.find(query.at))
    held = version.documents.tasks if kind == "tasks" else version.documents.experiments
    if kind not in KINDS or name not in held:
        raise NotFound("There is no such document in this version.")
    return _json(await looked_up(deps.centre, lambda _: _document(version, kind, name, query)), version.sha)


async def diff_config(request: Request) -> Response:
    """``GET /admin/config/diff?from=&to=``: the fields that differ between two versions."""
    deps = deps_of(request)
    query = as_body(DiffQuery, request.query_params)

    def differ(centre: ConfigCentre) -> ConfigDiff:
        before, after = centre.find(query.from_), centre.find(query.to)
        return ConfigDiff(before.sha, after.sha, diff(before.documents, after.documents))

    return _json(await looked_up(deps.centre, differ))


async def config_history(request: Request) -> Response:
    """``GET /admin/config/history``: the changes of the head, the newest first."""
    deps = deps_of(request)
    query = as_body(HistoryQuery, request.query_params)
    return _json(ConfigHistory(await looked_up(deps.centre, lambda centre: centre.history(query.limit))))


async def config_status(request: Request) -> Response:
    """``GET /admin/config/status``: the head and what every gateway serves; also where the store is away."""
    deps = deps_of(request)
    head: Version | None = None
    replicas: tuple[ReplicaStatus, ...] = ()
    problems = []
    try:
        head = await asyncio.to_thread(deps.centre.head)
    except ConfigError as error:
        problems.append(f"the head is not known: {error.message}")
    try:
        replicas = await deps.replicas.read()
    except ConfigError as error:
        problems.append(f"other gateways are not known: {error.message}")
    fleet = fleet_status(deps.centre.namespace, head, replicas, "; ".join(problems) or None)
    return _json(
        ConfigStatus(
            replica_id=deps.replicas.replica_id,
            own=deps.config.status(),
            own_warnings=warnings_of(deps.config.snapshot, deps.pool.models),
            fleet=fleet,
        )
    )


async def export_config(request: Request) -> Response:
    """``GET /admin/config/export``: head, history and all versions, as ``POST import`` takes them."""
    deps = deps_of(request)
    return _json(await looked_up(deps.centre, lambda centre: centre.export()))


async def validate_config(request: Request) -> Response:
    """``POST /admin/config/validate``: whether documents would serve, and what they would change."""
    deps = deps_of(request)
    body = await _body(request, deps, ProposedDocuments)

    def check(centre: ConfigCentre) -> Validated:
        head = _head_or_empty(centre)
        documents = amended(head, _amendment(body))
        snapshot = build_snapshot(documents, loaded_at=0.0)
        dry_build(snapshot)
        return Validated(snapshot.sha, diff(head.documents, documents), warnings_of(snapshot))

    return _json(await asked(deps.centre, check))


async def publish_config(request: Request) -> Response:
    """``POST /admin/config/publish``: another head, all or nothing. ``If-Match``: where it began."""
    deps, who = deps_of(request), caller_of(request.scope).name
    body = await _body(request, deps, PublishBody)
    expected = _expected(request, body.expected_sha)

    def publish(centre: ConfigCentre) -> Published:
        head = _head_or_empty(centre)
        documents = amended(head, _amendment(body))
        note = Note(body.who or who, body.why, "publish", body.is_forced)
        expected_sha = head.sha if expected is None else expected
        return centre.publish(documents, note, expected_sha=expected_sha, is_dry_run=body.is_dry_run)

    return _published(await asked(deps.centre, publish))


async def rollback_config(request: Request) -> Response:
    """``POST /admin/config/rollback``: an old version's content, published again."""
    deps, who = deps_of(request), caller_of(request.scope).name
    body = await _body(request, deps, RollbackBody)
    note = Note(body.who or who, body.why, "rollback")
    reference, is_dry_run = body.reference, body.is_dry_run
    rolled_back = await asked(deps.centre, lambda it: it.rollback(reference, note, is_dry_run=is_dry_run))
    return _published(rolled_back)


async def import_config(request: Request) -> Response:
    """``POST /admin/config/import``: takes over what an export gave; every version is checked first."""
    deps, who = deps_of(request), caller_of(request.scope).name
    body = await _body(request, deps, ImportBody)
    note = Note(body.who or who, body.why, "import", body.is_forced)
    return _published(await asked(deps.centre, lambda centre: centre.import_(body.exported, note)))


async def _body(request: Request, deps: Deps, model: type[B]) -> B:
    # YAML is read slowly; an export is JSON and holds many versions.
    limit = deps.settings.max_body_bytes if model is ImportBody else MAX_DOCUMENTS_BYTES
    return as_body(model, parsed(await read_body(request, limit)))


def _amendment(body: ProposedDocuments) -> Amendment:
    files = []
    for index, document in enumerate(body.documents):
        name = f"documents[{index}]"
        content = document.encode() if isinstance(document, str) else canonical_json(document)
        files.append(SourceFile(kind_of(name, content), name, content))
    return Amendment(tuple(files), body.is_whole, tuple(body.removed), body.share)


def _expected(request: Request, in_body: str | None) -> str | None:
    """Return the sha of If-Match or of the body. Raises InvalidRequest where they differ."""
    header = request.headers.get("if-match", "*").strip()
    if header == "*":
        return in_body
    sha = header.removeprefix("W/").strip('"')
    if in_body not in (None, sha):
        raise InvalidRequest("If-Match and expected_sha name different heads.", param="expected_sha")
    return sha


def _head_or_empty(centre: ConfigCentre) -> Version:
    try:
        return centre.head()
    except UnknownVersion:
        return EMPTY


def _document(version: Version, kind: Kind, name: str, query: DocumentQuery) -> ConfigDocument:
    if not query.effective:
        written = written_document(version.documents, kind, name)
        return ConfigDocument(version.number, version.sha, written, {})
    origins = {field.path: field.origin for field in sourced_fields(version.documents, kind, name)}
    return ConfigDocument(
        version.number, version.sha, effective_document(version.documents, kind, name), origins
    )


def _published(published: Published) -> Response:
    return _json(published, published.from_sha if published.is_dry_run else published.sha)


def _json(content: Any, sha: str = "") -> Response:
    headers = {"ETag": f'"{sha}"'} if sha else None
    return Response(orjson.dumps(content, default=dict), media_type="application/json", headers=headers)
