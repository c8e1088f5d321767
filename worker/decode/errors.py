"""What can be wrong with a request's decoding parameters."""

from __future__ import annotations


class ControlError(ValueError):
    """The client asked for something that cannot be decoded: a 400, with the name of the field."""

    def __init__(self, message: str, *, param: str) -> None:
        super().__init__(message)
        self.param = param
