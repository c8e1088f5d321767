"""The limits of the caller's key: taken before the work, told in headers, settled after it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any

from gateway.errors import RateLimitExceeded, RequestError
from gateway.flow.chunks import num_choices
from gateway.flow.deps import Deps
from gateway.flow.prompt_size import estimated_prompt_tokens
from gateway.flow.relay import Emit
from gateway.flow.turn import Outcome, Turn
from gateway.keys.key import Key
from gateway.keys.memory import Wanted
from gateway.pool.tokens import estimated_tokens

HEADERS = "gravity.headers"
"""Where in the ASGI scope the headers lie that access.py adds to every answer, errors and streams too."""

_MESSAGES = {
    "requests": "The key's requests of this minute are used up.",
    "tokens": "The key's tokens of this minute are used up.",
    "turns": "The key has as many turns open as it may.",
}


async def charge(scope: Any, deps: Deps, key: Key | None, wanted: Wanted) -> None:
    """Take what is wanted from the limits of ``key``. Raises RateLimitExceeded."""
    if key is None or key.limits.is_unlimited:
        return
    taken = await deps.limiter.take(key, wanted)
    scope[HEADERS] = taken.standing.headers()
    if taken.short:
        deps.metrics.key_refusals.labels(taken.short).inc()
        retry_after_s = taken.standing.retry_after_s(taken.short, wanted.num_tokens)
        raise RateLimitExceeded(_MESSAGES[taken.short], retry_after_s=retry_after_s)


def refusals_charged(scope: Any, deps: Deps, key: Key | None) -> AbstractAsyncContextManager[None]:
    """A turn that is refused before it begins is a request like any other."""
    return nullcontext() if key is None or key.limits.is_unlimited else _refusals_charged(scope, deps, key)


@asynccontextmanager
async def _refusals_charged(scope: Any, deps: Deps, key: Key) -> AsyncIterator[None]:
    try:
        yield
    except RequestError:
        await charge(scope, deps, key, Wanted())
        raise


class Meter:
    """Counts one turn's tokens against its key, as they come."""

    def __init__(self, turn: Turn, deps: Deps, key: Key | None) -> None:
        self._turn = turn
        self._deps = deps
        self._key = None if key is None or key.limits.is_unlimited else key
        self._num_prompt = 0
        self._num_seen = 0
        self._num_owed = 0

    def open(self, scope: Any) -> AbstractAsyncContextManager[None]:
        """Hold the turn's place for as long as the block runs. Raises RateLimitExceeded."""
        return nullcontext() if self._key is None else self._held(scope, self._key)

    @asynccontextmanager
    async def _held(self, scope: Any, key: Key) -> AsyncIterator[None]:
        if key.limits.tokens_per_minute is not None:
            self._num_prompt = estimated_prompt_tokens(self._turn)
        lease = self._turn.id
        try:
            await charge(scope, self._deps, key, Wanted(1, self._num_prompt, lease))
        except asyncio.CancelledError:
            self._deps.limiter.end(key, lease, 0)
            raise
        owed = 0
        try:
            yield
        except RequestError:
            # Nothing came of it: the prompt costs nothing either.
            owed = 0 if self._num_seen else -self._num_prompt
            raise
        else:
            owed = self._num_owed
        finally:
            self._deps.limiter.end(key, lease, owed)

    def counting(self, emit: Emit) -> Emit:
        """Return ``emit``, counting an event as a token: higress#2187, whoever asks for usage or does not."""
        key = self._key
        if key is None:
            return emit

        async def counted(data: bytes) -> None:
            self._num_seen += 1
            self._deps.limiter.owe(key, 1)
            await emit(data)

        return counted

    def finish(self, outcome: Outcome) -> None:
        """The answer is whole: from now on what the worker counted holds, or a better guess than events."""
        if self._key is None:
            return
        prompt = outcome.prompt_tokens or self._num_prompt
        guess = estimated_tokens(outcome.text) * num_choices(self._turn.body)
        completion = outcome.completion_tokens or max(guess, 1)
        self._num_owed = prompt - self._num_prompt + completion - self._num_seen
