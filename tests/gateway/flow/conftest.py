"""A turn to change, for the stages that need no server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gateway.flow.turn import Turn

MakeTurn = Callable[..., Turn]


@pytest.fixture
def make_turn() -> MakeTurn:
    """A streaming chat turn for model ``m``; the arguments replace its fields."""

    def make(**changes: Any) -> Turn:
        plain = Turn(
            id="turn-1",
            received_at=1_700_000_000.0,
            endpoint="/v1/chat/completions",
            body={"messages": [{"role": "user", "content": "hello"}]},
            model="m",
            is_streaming=True,
            wants_usage=False,
            config_sha="abc",
        )
        return replace(plain, **changes)

    return make
