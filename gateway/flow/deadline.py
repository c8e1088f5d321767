"""One deadline for all that comes before an answer's first byte: pruning, the queue, every attempt.

Each of these has a limit of its own; without this one their sum is what a client may wait for.
"""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import TYPE_CHECKING

from gateway.errors import TurnTimeout
from gateway.flow.tally import Tally
from gateway.flow.turn import Turn
from gateway.telemetry.logs import log

if TYPE_CHECKING:
    from gateway.flow.deps import Deps

logger = logging.getLogger(__name__)


class Deadline:
    """A block that raises TurnTimeout where it lasts longer than the turn may and was not ``met``."""

    def __init__(self, turn: Turn, deps: Deps, tally: Tally) -> None:
        self._turn_id = turn.id
        self._tally = tally
        self._limit_s = deps.settings.begin_timeout_s
        if not turn.is_streaming:  # its first byte comes with its last
            self._limit_s = max(self._limit_s, deps.settings.request_timeout_s)
        self._timer = asyncio.timeout(self._limit_s)
        self._is_prepared = False

    def prepared(self) -> None:
        """The documents are judged; what remains is a worker's."""
        self._is_prepared = True

    def met(self) -> None:
        """The answer has begun: from now on it may take as long as it takes."""
        self._timer.reschedule(None)

    async def __aenter__(self) -> Deadline:
        await self._timer.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            await self._timer.__aexit__(kind, error, traceback)
        except TimeoutError:
            why = self._why()
            log(logger, logging.WARNING, "turn_timed_out", turn=self._turn_id, reason=why)
            raise TurnTimeout(f"No answer had begun within {self._limit_s:g} s: {why}.") from None

    def _why(self) -> str:
        num_asked = self._tally.num_attempts
        if not self._is_prepared:
            return "its documents were still being judged"
        if num_asked == 0:
            return "it still waited for a place at a worker"
        return f"{num_asked} {'worker was' if num_asked == 1 else 'workers were'} asked, and none answered"
