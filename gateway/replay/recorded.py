"""A recorded turn as replay needs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from redis.asyncio import Redis

from gateway.errors import ReplayError
from gateway.flow.record import turn_key


@dataclass(frozen=True, slots=True)
class Decoding:
    """A request as a worker decodes it: the body of ``endpoint``, with the seed in force."""

    endpoint: str
    request: Mapping[str, Any]


class RecordedOutcome(BaseModel):
    """How it ended, as far as replay asks."""

    model_config = ConfigDict(extra="ignore")

    status: Literal["ok", "error", "cancelled"]
    seed: int | None = None


class RecordedTurn(BaseModel):
    """The fields of ``ng:turn:ID`` that say what was sent to the worker."""

    model_config = ConfigDict(extra="ignore")

    id: str
    text_retention: str
    endpoint: Literal["/v1/chat/completions", "/v1/completions"]
    model: str
    upstream_body: dict[str, Any]
    outcome: RecordedOutcome
    environment: dict[str, Any] = {}
    """What it was computed with; empty in records from before it was kept."""

    @property
    def num_choices(self) -> int:
        return int(self.upstream_body.get("n") or 1)

    def request(self) -> dict[str, Any]:
        """Return what was sent, with the seed that the worker drew where the client gave none."""
        if self.upstream_body.get("seed") is None and self.outcome.seed is not None:
            return self.upstream_body | {"seed": self.outcome.seed}
        return self.upstream_body

    def decoding(self) -> Decoding:
        """Return the same with its endpoint."""
        return Decoding(self.endpoint, self.request())


async def read_turn(redis: Redis, turn_id: str) -> RecordedTurn:
    """Raise ReplayError where there is no such turn, or its text was not kept."""
    content = await redis.get(turn_key(turn_id))
    if content is None:
        raise ReplayError(f"there is no turn {turn_id!r}: a wrong id, another Redis, or its lifetime is over")
    try:
        turn = RecordedTurn.model_validate_json(content)
    except ValidationError as error:
        raise ReplayError(f"the record of turn {turn_id!r} cannot be read: {error}") from error
    if "messages" not in turn.upstream_body and "prompt" not in turn.upstream_body:
        raise ReplayError(
            f"the text of turn {turn_id!r} was not kept (retention {turn.text_retention!r}): "
            "only turns recorded under NG_TEXT_RETENTION=full can be replayed"
        )
    return turn
