"""One experiment with data in the session's Valkey, and its document in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from redis import Redis

from gateway.outcomes.entry import Exposure, Feedback, TurnOutcome, encode_entry, outcomes_key

NUM_UNITS = 120


@dataclass(frozen=True, slots=True)
class Recorded:
    """``id`` is of an experiment in ``folder`` whose treatment answers half a second sooner."""

    id: str
    folder: Path


@pytest.fixture(scope="session")
def recorded(valkey_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    folder = tmp_path_factory.mktemp("configs")
    name = f"report-{uuid4().hex[:8]}"
    for kind in ("tasks", "experiments"):
        (folder / kind).mkdir()
    (folder / "tasks" / "default.yaml").write_text("task_type: default\n")
    (folder / "experiments" / f"{name}.yaml").write_text(
        f"id: {name}\nenrol_seed: a\narm_seed: b\nprimary_metric: latency_s\n"
        "arms: [{name: treatment, start: 0}, {name: control, start: 0.5, pruning: false}]\n"
        "guardrails: [{metric: error, better: lower, margin: 0.1}]\n"
    )
    key = outcomes_key(name, 1)
    with Redis.from_url(valkey_url) as redis:
        write(redis, key)
        yield Recorded(name, folder)
        redis.delete(key)


def write(redis: Redis, key: str) -> None:
    """Units in turn in each arm, one turn each, every other with feedback."""
    random = np.random.default_rng(1)
    pipe = redis.pipeline(transaction=False)
    entries: list[Any] = []
    for number in range(NUM_UNITS):
        arm, unit = ("treatment", "control")[number % 2], f"unit-{number}"
        latency = random.normal(2.0 if arm == "control" else 1.5, 0.2)
        entries.append(Exposure(unit, arm, 1_000.0 + number))
        entries.append(
            TurnOutcome(f"turn-{number}", unit, arm, 1_000.0 + number, {"latency_s": latency, "error": 0.0})
        )
        if number % 4 < 2:
            entries.append(Feedback(f"turn-{number}", "useful", float(number % 8 == 0), 2_000.0))
    for entry in entries:
        fields: Any = encode_entry(entry)
        pipe.xadd(key, fields)
    pipe.execute()
