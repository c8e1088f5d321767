"""A configuration with an experiment, and what a real Valkey has of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml
from redis import Redis

from gateway.outcomes.entry import Exposure, TurnOutcome, decode_entry, outcomes_key


@dataclass(frozen=True, slots=True)
class Trial:
    """One experiment of its own for a test; its stream is in the session's Valkey."""

    id: str
    folder: Path
    redis: Redis

    @classmethod
    def begin(cls, folder: Path, redis: Redis, **fields: Any) -> Trial:
        """Write a folder with the tasks ``default`` and ``gentle`` and the experiment."""
        trial = cls(f"trial-{uuid4().hex[:8]}", folder, redis)
        document: dict[str, Any] = {
            "id": trial.id,
            "version": 2,
            "enrol_seed": "enrol",
            "arm_seed": "arm",
            "arms": [
                {"name": "treatment", "start": 0.0},
                {"name": "control", "start": 0.5, "pruning": False, "gravity": False},
            ],
            **fields,
        }
        documents = {
            "tasks/default": {"task_type": "default"},
            "tasks/gentle": {"task_type": "gentle", "sampling": {"temperature": 0.25}},
            f"experiments/{trial.id}": document,
        }
        for name, content in documents.items():
            path = folder / f"{name}.yaml"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(yaml.safe_dump(content))
        return trial

    def entries(self) -> list[Any]:
        found: Any = self.redis.xrange(outcomes_key(self.id, 2))
        return [decode_entry(fields) for _, fields in found]

    def exposures(self) -> list[Exposure]:
        return [entry for entry in self.entries() if isinstance(entry, Exposure)]

    def outcomes(self) -> list[TurnOutcome]:
        return [entry for entry in self.entries() if isinstance(entry, TurnOutcome)]

    def outcome_of(self, turn_id: str) -> TurnOutcome | None:
        return next((each for each in self.outcomes() if each.turn_id == turn_id), None)
