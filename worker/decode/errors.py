"""What can be wrong with a request's decoding parameters."""

from __future__ import annotations

from worker.errors import RequestError


class ControlError(RequestError):
    """The client asked for something that cannot be decoded; ``param`` names the field."""
