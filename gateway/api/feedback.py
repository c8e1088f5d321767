"""``POST /v1/feedback``: what a client has to say of a turn, as a number under a name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field, RootModel, StringConstraints
from redis.exceptions import RedisError
from starlette.requests import Request
from starlette.responses import Response

from gateway.api.answer_schema import Answer, Error
from gateway.api.guard import read_body
from gateway.api.schema import Strict, checked, parsed_value
from gateway.api.state import deps_of
from gateway.errors import InvalidRequest, NotFound, RequestError, StoreUnavailable
from gateway.flow.deps import Deps
from gateway.outcomes.entry import Feedback
from gateway.outcomes.feedback import MAX_NAMES, KnownTurn

MAX_BATCH = 100
MAX_BYTES = 256 * 1024


class FeedbackRequest(Strict):
    """One report. Of several under one name the last counts."""

    turn_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:-]{1,128}$")]
    name: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
    value: bool | float
    """A boolean counts as 1 or 0."""


class FeedbackBody(RootModel[FeedbackRequest | list[FeedbackRequest]]):
    """One report or a list of up to 100."""

    root: FeedbackRequest | Annotated[list[FeedbackRequest], Field(min_length=1, max_length=MAX_BATCH)]


class KeptFeedback(Answer):
    """``replaced`` is the value that this name had before; ``experiment`` whose data it counts in."""

    object: Literal["feedback"]
    turn_id: str
    name: str
    value: float
    replaced: float | None
    experiment: str | None


class RefusedFeedback(Error):
    """A report of a list that could not be kept; the others were."""

    turn_id: str
    name: str


class FeedbackList(Answer):
    object: Literal["list"]
    data: list[KeptFeedback | RefusedFeedback]


async def feedback(request: Request) -> Response:
    """Keep one report, or each of a list. In the answer to a list every report has its own error or none."""
    deps = deps_of(request)
    sent = parsed_value(await read_body(request, min(MAX_BYTES, deps.settings.max_body_bytes)))
    reports = _batch(sent) if isinstance(sent, list) else [_report(sent)]
    try:
        known = await deps.feedback.find({report.turn_id for report in reports})
        results = [await _kept(report, known, deps) for report in reports]
    except (RedisError, OSError) as error:
        raise StoreUnavailable from error
    if isinstance(sent, list):
        answers = [_answer(report, result) for report, result in zip(reports, results, strict=True)]
        return _json({"object": "list", "data": answers})
    if isinstance(results[0], RequestError):
        raise results[0]
    return _json(_answer(reports[0], results[0]))


def _report(sent: object) -> FeedbackRequest:
    if not isinstance(sent, dict):
        raise InvalidRequest("A report is an object with turn_id, name and value.")
    return checked(FeedbackRequest, sent)


def _batch(sent: list[object]) -> list[FeedbackRequest]:
    if not 1 <= len(sent) <= MAX_BATCH:
        raise InvalidRequest(f"A list has between 1 and {MAX_BATCH} reports.")
    reports = []
    for index, each in enumerate(sent):
        try:
            reports.append(_report(each))
        except InvalidRequest as error:
            param = f"[{index}].{error.param}" if error.param else f"[{index}]"
            raise InvalidRequest(f"[{index}]: {error.message}", param=param) from None
    return reports


async def _kept(
    report: FeedbackRequest, known: Mapping[str, KnownTurn], deps: Deps
) -> dict[str, Any] | RequestError:
    """Return what is told of a report that was kept, or why it was not."""
    turn = known.get(report.turn_id)
    if turn is None:
        deps.metrics.feedback.labels("unknown").inc()
        return NotFound("No turn of this id is remembered.", param="turn_id")
    given = Feedback(turn.id, report.name, float(report.value), deps.clock())
    kept = await deps.feedback.keep(turn, given)
    if kept is None:
        deps.metrics.feedback.labels("full").inc()
        return InvalidRequest(f"A turn has feedback under {MAX_NAMES} names at most.", param="name")
    deps.metrics.feedback.labels("new" if kept.before is None else "repeated").inc()
    experiment = turn.experiment.id if turn.experiment else None
    return {"value": given.value, "replaced": kept.before, "experiment": experiment}


def _answer(report: FeedbackRequest, result: dict[str, Any] | RequestError) -> dict[str, Any]:
    told = {"turn_id": report.turn_id, "name": report.name}
    if isinstance(result, RequestError):
        return {**told, **result.as_body()}
    return {"object": "feedback", **told, **result}


def _json(content: object) -> Response:
    return Response(orjson.dumps(content), media_type="application/json")
