"""Everything that the worker answers with an error, and the status that each becomes.

::

    WorkerError                       500  server_error           internal_error
    ├── RequestError                  400  invalid_request_error  invalid_value     the client's mistake
    │   ├── InvalidJsonError          400                         invalid_json
    │   ├── ContextTooLongError       400                         context_length_exceeded
    │   ├── NoSuchRouteError          404                         not_found
    │   ├── WrongMethodError          405                         method_not_allowed
    │   ├── ModelNotServedError       404                         model_not_found
    │   ├── RequestTimedOutError      408                         request_timeout
    │   └── BodyTooLargeError         413                         request_too_large
    │       ├── UrlTooLongError       414                         request_too_large
    │       └── HeadTooLargeError     431                         request_too_large
    ├── QueueFullError                429  rate_limit_error       queue_full        with Retry-After
    ├── DrainingError                 503  server_error           shutting_down     with Retry-After
    ├── GenerationFailedError         500  server_error           engine_error      that request alone
    └── ClientLeftError               499  server_error           client_left       nobody reads it

The OpenAI SDK retries 408, 409, 429 and 5xx: a client's mistake is none of these, a slow line's 408 apart.
"""

from __future__ import annotations

from typing import Any, ClassVar


class WorkerError(Exception):
    """The worker failed in a way that is not the client's; the message is safe to show."""

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: str = "internal_error"
    retry_after_s: ClassVar[int | None] = None

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        """Name of the request's field that is wrong; never its value."""
        if code is not None:
            self.code = code

    def body(self) -> dict[str, Any]:
        """The error in OpenAI's shape."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


class RequestError(WorkerError):
    """A field of the request is missing, of the wrong kind, or out of range."""

    status = 400
    type = "invalid_request_error"
    code = "invalid_value"


class InvalidJsonError(RequestError):
    """The body is not one JSON object in UTF-8."""

    code = "invalid_json"


class ContextTooLongError(RequestError):
    """Prompt and completion do not fit into the model's context."""

    code = "context_length_exceeded"


class NoSuchRouteError(RequestError):
    """No such path."""

    status = 404
    code = "not_found"


class WrongMethodError(RequestError):
    """The path exists, the method does not."""

    status = 405
    code = "method_not_allowed"


class ModelNotServedError(RequestError):
    """The request names a model that this worker does not serve."""

    status = 404
    code = "model_not_found"


class BodyTooLargeError(RequestError):
    """The body is larger than the limit."""

    status = 413
    code = "request_too_large"


class UrlTooLongError(BodyTooLargeError):
    """The path with its query is over the limit."""

    status = 414


class HeadTooLargeError(BodyTooLargeError):
    """The headers are over the limit."""

    status = 431


class RequestTimedOutError(RequestError):
    """The client took too long to send its request; its connection is closed."""

    status = 408
    code = "request_timeout"


class QueueFullError(WorkerError):
    """As many sequences wait as may wait."""

    status = 429
    type = "rate_limit_error"
    code = "queue_full"
    retry_after_s = 1


class DrainingError(WorkerError):
    """The worker is shutting down."""

    status = 503
    code = "shutting_down"
    retry_after_s = 5


class GenerationFailedError(WorkerError):
    """The engine gave up this request; its neighbours went on."""

    code = "engine_error"


class ClientLeftError(WorkerError):
    """The client closed its connection; its work is cancelled and nothing is answered."""

    status = 499
    code = "client_left"
