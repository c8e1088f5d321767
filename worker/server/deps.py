"""What the routes need, put together once by ``app.py``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from worker.engine.loop import EngineLoop
from worker.server.inbox import Inbox
from worker.server.metrics import Metrics
from worker.server.parse import UnknownFields
from worker.server.prompts import PromptEncoder
from worker.server.roster import Roster
from worker.settings import WorkerSettings
from worker.trace import TraceWriter


@dataclass(frozen=True, slots=True)
class Deps:
    """Everything that outlives a request. Frozen; what changes does so inside the parts."""

    settings: WorkerSettings
    engine: EngineLoop
    model_name: str
    environment: Mapping[str, Any]
    fingerprint: str
    """The environment's hash."""
    prompts: PromptEncoder
    inbox: Inbox
    roster: Roster
    metrics: Metrics
    trace: TraceWriter | None
    unknown_fields: UnknownFields
    new_id: Callable[[], str]
    new_seed: Callable[[], int]
    now_s: Callable[[], float]
    """Unix time."""
    clock_s: Callable[[], float]
    """Monotonic."""
    started_at_s: float


def deps_of(request: Request) -> Deps:
    deps: Deps = request.app.state.deps
    return deps
