"""Every error of the gateway: one tree, which is also the table of answers.

GatewayError                     status  type                    code
├── ConfigError                  –       (a broken document; an answer under /admin/config alone)
│   ├── UnknownVersion           –       (404 there)
│   ├── PublishConflict          –       (409 there)
│   ├── PublishRefused           –       (409 there)
│   └── CentreUnavailable        –       (503 there)
├── EncoderError                 –       (pruning is left out for the request; never leaves as an answer)
├── CommandError                 –       (the command line; a message and an exit status)
│   ├── StackError               –       (a process cannot run)
│   ├── DemoError                –       (the demo did not go as it should)
│   ├── ExampleError             –       (an example's worker refused)
│   ├── TraceError               –       (a turn's steps are not all there)
│   └── ReplayError              –       (a turn cannot be replayed)
│       └── ReplayWorkerLost     –       (nor can any other)
└── RequestError
    ├── InvalidRequest           400     invalid_request_error   invalid_value
    │   ├── InvalidJson          400     invalid_request_error   invalid_json
    │   └── ContextTooLong       400     invalid_request_error   context_length_exceeded
    ├── AuthenticationFailed     401     authentication_error    invalid_api_key
    ├── InsufficientScope        403     permission_error        insufficient_scope
    ├── NotFound                 404     invalid_request_error   not_found
    │   └── ModelNotFound        404     invalid_request_error   model_not_found
    ├── MethodNotAllowed         405     invalid_request_error   method_not_allowed
    ├── Conflict                 409     invalid_request_error   conflict
    ├── RequestTimedOut          408     invalid_request_error   request_timeout
    ├── RequestTooLarge          413     invalid_request_error   request_too_large
    │   ├── UrlTooLong           414     invalid_request_error   request_too_large
    │   └── HeadTooLarge         431     invalid_request_error   request_too_large
    ├── QueueFull                429     rate_limit_error        queue_full
    ├── RateLimitExceeded        429     rate_limit_error        rate_limit_exceeded
    ├── InternalError            500     server_error            internal_error
    ├── UpstreamError            502     server_error            upstream_error
    │   ├── WorkerUnreachable    502     server_error            upstream_error
    │   └── UpstreamDenied       502     server_error            upstream_error
    ├── Unavailable              503     server_error            unavailable
    │   ├── NoWorkers            503     server_error            no_workers
    │   ├── ShuttingDown         503     server_error            shutting_down
    │   ├── StoreUnavailable     503     server_error            store_unavailable
    │   └── EncoderUnavailable   503     server_error            encoder_unavailable
    ├── UpstreamTimeout          504     server_error            upstream_timeout
    │   └── TurnTimeout          504     server_error            upstream_timeout
    └── UpstreamRejected         the worker's own 4xx, passed on
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar


class GatewayError(Exception):
    """Anything that the gateway raises on purpose."""


class ConfigError(GatewayError):
    """A configuration document cannot be used. ``file`` and ``line`` say where, as far as it is known.

    ``fields`` are paths such as ``tasks.rag_qa.gravity_strength``, where a guard has named some.
    """

    def __init__(
        self, message: str, *, file: str = "", line: int | None = None, fields: tuple[str, ...] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.file = file
        self.line = line
        self.fields = fields


class UnknownVersion(ConfigError):
    """No snapshot of the namespace goes by this name."""


class PublishConflict(ConfigError):
    """The head has moved since the change was made: look at the new head and publish again."""


class PublishRefused(ConfigError):
    """A guard holds the change back; the message says which, and how to publish all the same."""


class CentreUnavailable(ConfigError):
    """The configuration store does not answer; nothing is known to have changed."""


class EncoderError(GatewayError):
    """The encoder could not be loaded or could not encode; the message says why."""


class CommandError(GatewayError):
    """A command cannot do what it was asked; the message says why and what to change.

    Its exit status is 2: 1 means that the command ran and found something wrong.
    """


class StackError(CommandError):
    """A process of the stack cannot run."""


class DemoError(CommandError):
    """The demo did not go as it should."""


class ExampleError(CommandError):
    """The worker refused an example's request."""


class TraceError(CommandError):
    """A turn's steps cannot be read, or are not all there."""


class CalibrationError(CommandError):
    """A task's entropies cannot be measured."""


class ExperimentError(CommandError):
    """An experiment cannot be reported on."""


class ReplayError(CommandError):
    """The replay cannot run at all, which is not the same as a replay that differs."""


class ReplayWorkerLost(ReplayError):
    """The worker that replays does not answer any more: no other turn can be replayed either."""


class RequestError(GatewayError):
    """An error that a client is told about.

    ``param`` is the name of the field at fault, never its value; ``retry_after_s`` becomes ``Retry-After``;
    ``details`` are what a problem under /admin tells beside RFC 9457's own members.
    """

    status: int = 500
    type: str = "server_error"
    code: str = "internal_error"
    default_message: ClassVar[str] = "The gateway failed."

    def __init__(
        self,
        message: str = "",
        *,
        param: str | None = None,
        retry_after_s: float | None = None,
        details: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.message = message or self.default_message
        self.param = param
        self.retry_after_s = retry_after_s
        self.details = details
        super().__init__(self.message)

    def as_body(self) -> dict[str, Any]:
        """The OpenAI error object."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


class InvalidRequest(RequestError):
    """The client wrote something that cannot be served."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_value"
    default_message = "The request is not valid."


class InvalidJson(InvalidRequest):
    """The body is not JSON: bad syntax, bad UTF-8, a lone surrogate, NaN, an infinite number, too deep."""

    code = "invalid_json"
    default_message = "The body is not valid JSON."


class ContextTooLong(InvalidRequest):
    """Prompt and answer do not fit the model's context."""

    code = "context_length_exceeded"
    default_message = "The prompt does not fit the model's context."


class AuthenticationFailed(RequestError):
    """A key that is missing, wrong or expired: one body for all three."""

    status = 401
    type = "authentication_error"
    code = "invalid_api_key"
    default_message = "A valid key is required."


class InsufficientScope(RequestError):
    """The caller may not do this."""

    status = 403
    type = "permission_error"
    code = "insufficient_scope"
    default_message = "The caller is not allowed to do this."


class NotFound(RequestError):
    """There is nothing under this path or id."""

    status = 404
    type = "invalid_request_error"
    code = "not_found"
    default_message = "There is nothing here."


class ModelNotFound(NotFound):
    """No worker serves this model."""

    code = "model_not_found"
    default_message = "No worker serves this model."


class Conflict(RequestError):
    """The request was made against a state that is no more, or a guard holds it back."""

    status = 409
    type = "invalid_request_error"
    code = "conflict"
    default_message = "The state has changed meanwhile."


class MethodNotAllowed(RequestError):
    """The path exists, the method does not."""

    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"
    default_message = "The method is not allowed here."


class RequestTooLarge(RequestError):
    """The body is over the limit."""

    status = 413
    type = "invalid_request_error"
    code = "request_too_large"
    default_message = "The body is too large."


class UrlTooLong(RequestTooLarge):
    """The path with its query is over the limit."""

    status = 414
    default_message = "The URL is too long."


class HeadTooLarge(RequestTooLarge):
    """The headers are over the limit."""

    status = 431
    default_message = "The headers are too large."


class RequestTimedOut(RequestError):
    """The client took too long to send its request."""

    status = 408
    type = "invalid_request_error"
    code = "request_timeout"
    default_message = "The request did not arrive in time."


class QueueFull(RequestError):
    """The workers have no room now."""

    status = 429
    type = "rate_limit_error"
    code = "queue_full"
    default_message = "The workers are busy; try again shortly."


class RateLimitExceeded(RequestError):
    """The key has used up what it may use in a minute, or has as many turns open as it may."""

    status = 429
    type = "rate_limit_error"
    code = "rate_limit_exceeded"
    default_message = "The key's limit is reached."


class InternalError(RequestError):
    """A fault of the gateway itself."""


class UpstreamError(RequestError):
    """A worker failed: it did not answer, died, or sent what is not an answer."""

    status = 502
    code = "upstream_error"
    default_message = "The worker failed."


class WorkerUnreachable(UpstreamError):
    """No connection to the worker could be made at all."""


class UpstreamDenied(UpstreamError):
    """A worker refused with a 4xx that its client cannot mend, such as for a key of ours.

    It may be about this one request, so it says nothing about the worker's health; what is wrong with every
    request is found by the probes.
    """


class Unavailable(RequestError):
    """The gateway cannot serve this now."""

    status = 503
    code = "unavailable"
    default_message = "The service is not available now."


class NoWorkers(Unavailable):
    """No worker is ready."""

    code = "no_workers"
    default_message = "No worker is ready."


class ShuttingDown(Unavailable):
    """The gateway is going away and the time for open streams is over."""

    code = "shutting_down"
    default_message = "The gateway is shutting down."


class StoreUnavailable(Unavailable):
    """Redis does not answer."""

    code = "store_unavailable"
    default_message = "The store does not answer."


class EncoderUnavailable(Unavailable):
    """Documents cannot be judged now, and judging them is all that was asked for."""

    code = "encoder_unavailable"
    default_message = "The encoder is not available now."


class UpstreamTimeout(RequestError):
    """A worker did not answer in time."""

    status = 504
    code = "upstream_timeout"
    default_message = "The worker did not answer in time."


class TurnTimeout(UpstreamTimeout):
    """The turn's answer had not begun when its own deadline came; the message says what it waited for."""

    default_message = "No answer had begun in time."


class UpstreamRejected(RequestError):
    """A worker refused the request for a reason of the client's; its words are passed on."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        type: str = "invalid_request_error",
        code: str = "invalid_value",
        param: str | None = None,
    ) -> None:
        super().__init__(message, param=param)
        self.status = status
        self.type = type
        self.code = code
