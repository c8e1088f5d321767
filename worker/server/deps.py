"""What the routes need, put together once by ``app.py``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request

from worker.engine.loop import EngineLoop
from worker.server.generation import EngineRoom
from worker.server.metrics import Metrics
from worker.server.parse import UnknownFields
from worker.server.prompts import PromptEncoder
from worker.server.roster import Roster
from worker.settings import WorkerSettings
from worker.trace import TraceWriter


@dataclass(frozen=True, slots=True)
class Deps:
    settings: WorkerSettings
    engine: EngineLoop
    model_name: str
    fingerprint: str
    prompts: PromptEncoder
    room: EngineRoom
    roster: Roster
    metrics: Metrics
    trace: TraceWriter | None
    unknown_fields: UnknownFields
    new_id: Callable[[], str]
    new_seed: Callable[[], int]
    now_s: Callable[[], float]
    """Unix time."""
    started_at_s: float


def deps_of(request: Request) -> Deps:
    deps: Deps = request.app.state.deps
    return deps
