"""From a body's raw bytes to a request, and from pydantic's errors to ours."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic_core import from_json
from starlette.requests import ClientDisconnect, Request

from worker.errors import BodyTooLargeError, ClientLeftError, InvalidJsonError, RequestError
from worker.protocol import XARGS_KEY, DecodeControls
from worker.server.schema import RequestModel

log = logging.getLogger(__name__)

M = TypeVar("M", bound=RequestModel)

_MAX_LOGGED_NAMES = 100
_MAX_LOGGED_NAME = 64


class UnknownFields:
    """Logs every unknown field once by name, and forgets to count beyond a bound."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def note(self, model: RequestModel) -> None:
        for name in model.model_extra or ():
            if len(self._seen) >= _MAX_LOGGED_NAMES:
                return
            name = name[:_MAX_LOGGED_NAME]
            if name not in self._seen:
                self._seen.add(name)
                log.info("unknown request field ignored", extra={"field": name})


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Return the whole body. Raises BodyTooLargeError beyond ``max_bytes``, ClientLeftError."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and len(declared) < 20 and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > max_bytes:
                raise _too_large(max_bytes)
            chunks.append(chunk)
    except ClientDisconnect as error:
        raise ClientLeftError("the client left while it sent its request") from error
    return b"".join(chunks)


def _too_large(max_bytes: int) -> BodyTooLargeError:
    return BodyTooLargeError(f"the body is larger than {max_bytes} bytes")


def parse(model: type[M], raw: bytes, unknown: UnknownFields) -> M:
    """Validate one JSON object. Raises InvalidJsonError or RequestError, with the field's name."""
    if b"NaN" in raw or b"Infinity" in raw:
        _refuse_nan(raw)  # pydantic would let it pass where nothing types the field
    try:
        parsed = model.model_validate_json(raw)
    except ValidationError as error:
        raise _translated(error) from None
    unknown.note(parsed)
    return parsed


def parse_controls(arguments: dict[str, Any] | None) -> DecodeControls:
    """Return the controls that travel in ``vllm_xargs``; without any, plain sampling. Raises RequestError."""
    text = (arguments or {}).get(XARGS_KEY)
    if text is None:
        return DecodeControls()
    if not isinstance(text, str):
        raise RequestError(f"vllm_xargs.{XARGS_KEY} must be a JSON string", param="vllm_xargs")
    try:
        return DecodeControls.model_validate_json(text, strict=True)
    except ValidationError as error:
        first = _errors(error)[0]
        path = ".".join(str(part)[:_MAX_LOGGED_NAME] for part in (XARGS_KEY, *first["loc"]))
        raise RequestError(f"vllm_xargs.{path}: {first['msg']}", param="vllm_xargs") from None


def _refuse_nan(raw: bytes) -> None:
    try:
        from_json(raw, allow_inf_nan=False)
    except ValueError as error:
        raise InvalidJsonError(f"the body is not valid JSON: {error}") from None


def _translated(error: ValidationError) -> RequestError:
    first = _errors(error)[0]
    if first["type"] == "json_invalid" or not first["loc"]:
        return InvalidJsonError(f"the body is not a valid JSON object: {first['msg']}")
    return RequestError(_description(error), param=str(first["loc"][0]))


def _description(error: ValidationError) -> str:
    """Say what is wrong with the first bad field. A union says what each of its forms would need."""
    errors = _errors(error)
    messages = dict.fromkeys(each["msg"] for each in errors[:4] if each["loc"][:1] == errors[0]["loc"][:1])
    return f"{_path(errors[0]['loc'])}: {' or: '.join(messages)}"


def _path(location: Sequence[int | str]) -> str:
    """Show the field and the positions inside it, without the names that pydantic gives a union's forms."""
    return str(location[0]) + "".join(f"[{part}]" for part in location[1:] if isinstance(part, int))


def _errors(error: ValidationError) -> list[Any]:
    return list(error.errors(include_url=False, include_context=False, include_input=False))
