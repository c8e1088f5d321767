"""Which field of a request a worker blames."""

from __future__ import annotations

import re

from gateway.errors import RequestError
from gateway.flow.turn import Turn

_END_OF_NAME = re.compile(r"[.\[]")


def forget_what_is_no_field(error: RequestError, turn: Turn) -> None:
    """Take out a ``param`` that names nothing the worker was sent: there are workers that write the field's
    value there, which may be the prompt (vllm#12886)."""
    if error.param is not None and _END_OF_NAME.split(error.param, maxsplit=1)[0] not in turn.upstream_body:
        error.param = None
