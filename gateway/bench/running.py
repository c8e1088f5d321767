"""A target that runs, under load: whatever goes wrong there is told with its name and with what was asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from gateway.bench.load import Measured, Run
from gateway.bench.loader import Loader
from gateway.bench.usage import Usage
from gateway.errors import CommandError
from gateway.stack.child import Child


@dataclass(frozen=True, slots=True)
class Running:
    """``usage`` is None for the upstream itself, whose processor time is not anybody's cost."""

    name: str
    port: int
    child: Child
    usage: Usage | None

    async def carry_out(self, run: Run, loader: Loader, phase: str) -> Measured:
        """Raises CommandError with the target's name, ``phase``, and its last output where it has ended."""
        try:
            measured = await loader.carry_out(run)
        except CommandError as error:
            raise CommandError(f"{self.name}, {phase}: {error}{self._last_words()}") from error
        if not measured.latencies_ms:
            failed = f"not one request was answered ({measured.num_failed} failed)"
            raise CommandError(f"{self.name}, {phase}: {failed}{self._last_words()}")
        return measured

    def _last_words(self) -> str:
        return f"; it has ended:\n{self.child.last_output[-2000:]}" if self.child.has_ended else ""


@contextmanager
def alone(target: Running, running: Sequence[Running]) -> Iterator[None]:
    """Let all others but the upstream stand still meanwhile.

    What a proxy does while nobody asks it anything (health checks, timers, collecting garbage) takes caches
    and cores from the one that is measured.
    """
    others = [each.child for each in running if each is not target and each.usage is not None]
    for child in others:
        child.pause()
    try:
        yield
    finally:
        for child in others:
            child.go_on()
