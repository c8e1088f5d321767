"""The typed configuration documents: one task, one experiment."""

from __future__ import annotations

import itertools
import re
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from worker.protocol import (
    AdaptiveControls,
    DriftFeedback,
    GravityStage,
    KVBlockControls,
    Probability,
    SpeculationControls,
    Steps,
    TemperatureControls,
    ThemeVector,
    Word,
    check_blocks_or_drafts,
)

SCHEMA_VERSION: Literal[2] = 2
"""Of the documents that this program writes; older ones are migrated when they are read (``migrate.py``)."""

Keep: TypeAlias = Literal["balanced", "safe"] | Probability
TokenBudget: TypeAlias = Annotated[int, Field(ge=16, le=1_000_000)]
Order: TypeAlias = Literal["as_sent", "relevance", "ends"]


class ConfigModel(BaseModel):
    """The editing schema: unknown fields are typos and are rejected. Stored snapshots are read tolerantly."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class GravitySection(ConfigModel):
    """How the pull of ``core_semantics`` and ``penalize`` is applied; the meaning is GravityControls'."""

    boost_weight: Annotated[float, Field(ge=0.0, le=10.0)] = 0.2
    penalty_weight: Annotated[float, Field(ge=0.0, le=10.0)] = 1.0
    mode: Literal["bias", "mask"] = "bias"
    plausible: Probability = 0.05
    max_bias_nats: Annotated[float, Field(gt=0.0, le=20.0)] = 3.0
    vector: ThemeVector | None = None
    decay: Literal["none", "linear", "half_life"] = "linear"
    half_life_steps: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    stages: Annotated[tuple[GravityStage, ...], Field(max_length=16)] = ()
    drift: DriftFeedback | None = None
    repetition_brake: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    theme_keywords: Annotated[int, Field(ge=0, le=64)] = 8
    """How many words of the pruned context's theme join core_semantics for this request."""


class ContextSection(ConfigModel):
    """What stays of the documents."""

    pruning: bool = True
    keep: Keep = "balanced"
    """Which documents stay: as few as answer nearly every question, more so that next to nothing is lost,
    or those from this keep-probability on."""
    token_budget: TokenBudget | None = None
    order: Order = "as_sent"
    template: str = "[{id}] {title}\n{text}"
    """One document; {id}, {title} and {text} are filled in, an empty title leaves no gap."""
    preamble: str = "Answer from these documents."
    encoder: Literal["auto", "local", "remote"] = "auto"
    """Whose vectors judge the documents. auto: the gateway's own encoder for the scripts that it knows, the
    remote one, where one is set up, for the others."""

    @field_validator("template")
    @classmethod
    def _shows_the_text(cls, template: str) -> str:
        unknown = set(re.findall(r"\{(\w+)\}", template)) - {"id", "title", "text"}
        if unknown or "{text}" not in template:
            raise ValueError("a template has {text}, and of other fields {id} and {title} alone")
        return template


class SamplingSection(ConfigModel):
    """Defaults for what the client leaves out."""

    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


class CalibrationSection(ConfigModel):
    """Where the entropies of this task were measured, and what they were. Never inherited."""

    model: str
    temperature: Annotated[float, Field(ge=0.0, le=10.0)]
    s_mean: Probability
    """Expected s before this task has any history."""
    num_prompts: Annotated[int, Field(ge=1)] | None = None
    num_steps: Annotated[int, Field(ge=1)] | None = None
    measured_at: str | None = None
    """UTC, ISO 8601."""


class BucketSection(ConfigModel):
    """Edges of expected s between the buckets; n edges make n + 1 buckets."""

    edges: Annotated[tuple[Probability, ...], Field(max_length=63)] = (0.03, 0.08, 0.15)

    @model_validator(mode="after")
    def _ascending(self) -> BucketSection:
        if any(a >= b for a, b in zip(self.edges, self.edges[1:], strict=False)):
            raise ValueError("bucket edges must ascend")
        return self


class OpaqueSection(ConfigModel):
    """What is asked of workers that know no controls, beside what the client asked for."""

    logprobs: bool = True
    """The likeliest tokens of each step, from which H is estimated."""
    logit_bias: bool = True
    """The words of gravity, as a bias that neither decays nor spares the implausible."""


class TaskDocument(ConfigModel):
    """One task: ``configs/tasks/NAME.yaml``. The first five fields are the seed's own words.

    What a task leaves out it inherits from the task ``default``, field by field (``lineage.py``).
    """

    schema_version: Literal[2] = SCHEMA_VERSION
    task_type: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
    core_semantics: Annotated[tuple[Word, ...], Field(max_length=256)] = ()
    penalize: Annotated[tuple[Word, ...], Field(max_length=256)] = ()
    gravity_strength: Annotated[float, Field(ge=0.0, le=20.0)] = 0.0
    decay_after_steps: Steps | None = None
    description: str = ""
    adaptive: AdaptiveControls | None = None
    gravity: GravitySection = GravitySection()
    temperature: TemperatureControls = TemperatureControls()
    context: ContextSection = ContextSection()
    sampling: SamplingSection = SamplingSection()
    calibration: CalibrationSection | None = None
    buckets: BucketSection = BucketSection()
    opaque: OpaqueSection = OpaqueSection()
    speculation: SpeculationControls = SpeculationControls()
    kv_blocks: KVBlockControls = KVBlockControls()

    @model_validator(mode="after")
    def _blocks_or_drafts(self) -> TaskDocument:
        check_blocks_or_drafts(self.kv_blocks, self.speculation)
        return self


MetricName = Annotated[str, Field(pattern=r"^(feedback:)?[a-z][a-z0-9_]{0,63}$")]
"""A metric of ``gateway/lab/metrics.py``, or ``feedback:NAME`` for what clients report."""
Better: TypeAlias = Literal["higher", "lower"]


class Arm(ConfigModel):
    """One lane of an experiment. ``start`` is fixed for ever, and coverage moves none of them."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,31}$")]
    start: Probability
    """Where in [0, 1) the arm begins; it ends where the next begins. Another hash says who is enrolled."""
    pruning: bool = True
    gravity: bool = True
    """False sends no controls that steer: H, G and k are measured all the same."""
    task: str | None = None
    """Another task document than the request's own."""


class Guardrail(ConfigModel):
    """A metric that no arm may make worse than the control by more than ``margin``."""

    metric: MetricName
    better: Better
    margin: Annotated[float, Field(ge=0.0, le=1e6)] = 0.0
    """In the metric's own unit. Broken where the whole interval of the difference lies beyond it."""
    action: Literal["report", "stop", "roll_back"] = "stop"
    """stop: the experiment ends. roll_back: its arms' tasks also become what they were before it began."""


class ExperimentDocument(ConfigModel):
    """One experiment: ``configs/experiments/NAME.yaml``.

    Arms and seeds never change inside one ``version``: another version is another experiment.
    """

    schema_version: Literal[2] = SCHEMA_VERSION
    id: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]
    version: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    description: str = ""
    is_active: bool = True
    tasks: tuple[str, ...] = ()
    """Tasks it applies to; empty means all."""
    coverage: Probability = 1.0
    enrol_seed: str
    """Seed of "in the experiment?"."""
    arm_seed: str
    """Seed of "which arm?"."""
    unit_header: str | None = None
    """Whose value keeps its lane; without it ``user``, else the conversation."""
    arms: Annotated[tuple[Arm, ...], Field(min_length=1, max_length=16)]
    control_arm: str | None = None
    """The arm that the others are compared with: by default the one named "control", else the first."""
    primary_metric: MetricName = "latency_s"
    primary_better: Better = "lower"
    guardrails: Annotated[tuple[Guardrail, ...], Field(max_length=16)] = ()
    shadow_share: Probability = 0.0
    """Share of the other arms' turns that the control also answers, in the background; both are kept."""

    @property
    def control(self) -> Arm:
        """The arm that the others are compared with."""
        wanted = self.control_arm or "control"
        return next((arm for arm in self.arms if arm.name == wanted), self.arms[0])

    @model_validator(mode="after")
    def _consistent(self) -> ExperimentDocument:
        starts = [arm.start for arm in self.arms]
        if starts[0] != 0.0 or any(a >= b for a, b in itertools.pairwise(starts)):
            raise ValueError("arm starts must begin at 0 and ascend")
        names = {arm.name for arm in self.arms}
        if len(names) != len(self.arms):
            raise ValueError("arm names must differ")
        if self.control_arm is not None and self.control_arm not in names:
            raise ValueError(f"control_arm: there is no arm {self.control_arm!r}")
        if self.enrol_seed == self.arm_seed:
            raise ValueError("enrol_seed and arm_seed must differ, or enrolment and arm correlate")
        return self
