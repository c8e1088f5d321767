"""The turn: one request, from arrival to record. Every stage returns a new one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from gateway.context.report import Document, PruneReport
from gateway.pool.suiting import BucketPool
from gateway.store.document import TaskDocument
from gateway.telemetry.spans import NO_PARENT, Parent
from worker.protocol import DecodeControls

Endpoint: TypeAlias = Literal["/v1/chat/completions", "/v1/completions"]
Lane: TypeAlias = str
Status: TypeAlias = Literal["ok", "error", "cancelled"]


@dataclass(frozen=True, slots=True)
class Assignment:
    """OpenFeature's words: which variant, by which targeting key, why."""

    lane: Lane = "treatment"
    experiment: str = ""
    experiment_version: int = 0
    unit: str = ""
    """Hash of the targeting key; empty where the lane is not sticky."""
    is_sticky: bool = False
    reason: Literal["default", "split", "override", "not_enrolled", "shadow"] = "default"
    pruning: bool = True
    gravity: bool = True


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the turn ended. Times in seconds, entropies in nats."""

    status: Status = "ok"
    finish_reasons: tuple[str, ...] = ()
    error_code: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    time_to_first_token_s: float | None = None
    latency_s: float = 0.0
    mean_entropy_nats: float | None = None
    mean_gravity: float | None = None
    entropic_time_nats: float | None = None
    """tau, with the net drop and the envelope beside it."""
    net_drop_nats: float | None = None
    envelope_nats: float | None = None
    cost_gmac: float | None = None
    """C: 10^9 multiplications of an answer's steps, a proxy for FLOPs; None where the worker counts none."""
    nats_per_gmac: float | None = None
    """d tau / dC."""
    cached_prompt_tokens: int | None = None
    """Tokens of the prompt that the worker had computed before, for this turn or another."""
    mean_kept_share: float | None = None
    """Mean over steps of the share of KV blocks attended to; None where the task does not drop any."""
    is_estimated: bool = False
    """Whether the entropies are estimates from an opaque worker's log-probabilities, with half-widths."""
    mean_entropy_half_width_nats: float | None = None
    mean_gravity_half_width: float | None = None
    entropic_time_half_width_nats: float | None = None
    seed: int | None = None
    """The seed in force, as the worker reports it: the request's, or the one that the worker drew."""
    text: str = ""
    """The first choice's answer."""


@dataclass(frozen=True)
class Turn:
    """The finished turn *is* the record.

    It has no slots, so that ``grown`` copies one dictionary and not thirty fields: 1 µs against 15.
    """

    id: str
    received_at: float
    """Unix time, seconds."""
    endpoint: Endpoint
    body: Mapping[str, Any]
    """The client's request without ``documents``, ``task`` and ``gravity``."""
    model: str
    is_streaming: bool
    wants_usage: bool
    user: str = ""
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Lower-case names; only those that assignment may read."""
    documents: tuple[Document, ...] = ()
    requested_task: str = ""
    gravity_override: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    question: str = ""
    """The last user message or the prompt: what the documents are judged against."""
    history: tuple[str, ...] = ()
    """The conversation's recent texts before it, oldest first: what an elliptical question is about."""

    caller: str = ""
    """Id of the key that the request came with; empty where none is asked for."""
    priority: int = 0
    """What the caller's key says; the larger is served first, and shed last."""
    parent: Parent = NO_PARENT
    """The trace that the request belongs to, as its client says."""
    shed: tuple[str, ...] = ()
    """The steps of shedding in force when it arrived; see shedding.py."""
    shadow_of: str = ""
    """The turn that this one repeats in the control's way; nobody waits for its answer."""

    # assign
    assignment: Assignment = Assignment()
    # prune, shape
    task: TaskDocument | None = None
    config_sha: str = ""
    warnings: tuple[str, ...] = ()
    """For example: this task's calibration was taken at another temperature."""
    prune_report: PruneReport = PruneReport()
    controls: DecodeControls = DecodeControls()
    upstream_body: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """What goes to the worker."""
    # bucket, dispatch
    expected_s: float | None = None
    bucket: int = 0
    worker: str = ""
    bucket_pool: BucketPool | None = None
    """Whether that worker is for the turn's bucket, for all, or for others; None before there is one."""
    num_attempts: int = 0
    environment: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """What the turn ran on: the worker's model, number format, engine, versions, seeds, KV memory; ours."""
    # relay
    outcome: Outcome = Outcome()

    def grown(self, **stage: Any) -> Turn:
        """Return this turn with what a stage adds. Raises TypeError for what is no field."""
        turn = object.__new__(Turn)
        held = turn.__dict__
        held.update(self.__dict__)
        held.update(stage)
        if len(held) != _NUM_FIELDS:
            raise TypeError(f"a turn has no such field among {', '.join(stage)}")
        return turn


_NUM_FIELDS = len(fields(Turn))
