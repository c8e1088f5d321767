"""The texts of a recorded turn's tokens, as a worker that runs already reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import httpx
from redis.asyncio import Redis

from gateway.errors import ReplayError
from gateway.replay.recorded import RecordedTurn, read_turn
from gateway.replay.worker import WorkerPlan, replay_choice, worker_of
from gateway.trace.show import TokenTexts
from gateway.trace.steps import ChoiceSteps


def token_texts(turn_id: str, candidates: Sequence[str]) -> TokenTexts:
    """Return what asks the first able of ``candidates``; it knows nothing where none is, or no text."""

    async def texts(redis: Redis, choices: Sequence[ChoiceSteps]) -> Mapping[int, Sequence[str]]:
        try:
            turn = await read_turn(redis, turn_id)
            async with worker_of(turn.model, WorkerPlan(candidates)) as client:
                return {choice.choice: await _texts(client, turn, choice) for choice in choices}
        except ReplayError:
            return {}

    return texts


async def _texts(client: httpx.AsyncClient, turn: RecordedTurn, choice: ChoiceSteps) -> Sequence[str]:
    tokens = [step.token_id for step in choice.steps]
    return (await replay_choice(client, turn, choice.choice, tokens)).pieces if tokens else ()
