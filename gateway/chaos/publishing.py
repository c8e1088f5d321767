"""Publishes a configuration again and again through the centre, and remembers what was acknowledged."""

from __future__ import annotations

import asyncio
import itertools
import threading
from dataclasses import dataclass, field, replace

from gateway.errors import CentreUnavailable, PublishConflict
from gateway.flow.dry_build import dry_build
from gateway.settings import GatewaySettings
from gateway.store.centre import Change, ConfigCentre, Note
from gateway.store.opening import open_centre

PAUSE_S = 1.0
TASK = "rag_qa"
ALL = 1_000_000


@dataclass(slots=True)
class Publisher:
    """``acknowledged`` has the number and the sha of each publish that was said to be done."""

    centre: ConfigCentre
    acknowledged: list[tuple[int, str]] = field(default_factory=list)
    num_not_answered: int = 0
    _publishing: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def open(cls, settings: GatewaySettings) -> Publisher:
        return cls(open_centre(settings, dry_build))

    async def run(self) -> None:
        """Publish until cancelled; a publish that has begun goes on, and ``problems`` waits for it."""
        while True:
            await asyncio.shield(asyncio.to_thread(self.publish))
            await asyncio.sleep(PAUSE_S)

    def publish(self) -> None:
        """Change one description. What the centre does not answer may have been carried out or not."""
        with self._publishing:
            self._publish()

    def _publish(self) -> None:
        try:
            head = self.centre.head()
            task = {**head.documents.tasks[TASK], "description": f"Publish after {head.number}."}
            documents = replace(head.documents, tasks={**head.documents.tasks, TASK: task})
            done = self.centre.publish(documents, Note("chaos", "a run"), expected_sha=head.sha)
        except (CentreUnavailable, PublishConflict):
            self.num_not_answered += 1
            return
        self.acknowledged.append((done.number, done.sha))

    def problems(self) -> list[str]:
        """Return what is wrong with the history, the head and the acknowledged publishes."""
        with self._publishing:
            changes = sorted(self.centre.history(ALL), key=lambda change: change.number)
            head = self.centre.head()
        known = {(change.number, change.to_sha) for change in changes}
        lost = [number for number, sha in self.acknowledged if (number, sha) not in known]
        found = [f"publish {number} was acknowledged and is not in the history" for number in lost]
        if changes and (head.number, head.sha) != (changes[-1].number, changes[-1].to_sha):
            found.append(f"the head is {head.number}, the history ends with {changes[-1].number}")
        return found + broken_links(changes)


def broken_links(changes: list[Change]) -> list[str]:
    """Return where a history, the oldest first, is no chain: numbers that skip, another sha before."""
    return [
        f"change {after.number} does not follow {before.number}"
        for before, after in itertools.pairwise(changes)
        if after.number != before.number + 1 or after.from_sha != before.to_sha
    ]
