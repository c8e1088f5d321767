"""What is compared: who is sent where, and whether tasks draft; the tasks, and their workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, cast, get_args

from gateway.bench.naming import names_in
from gateway.bench.serve.driving import MODEL
from gateway.bench.serve.mix import JSON, OPEN, SHORT
from gateway.errors import CommandError

Routing: TypeAlias = Literal["buckets", "load", "random"]
Drafts: TypeAlias = Literal["entropy", "fixed"]

SURE, UNSURE = "sure", "unsure"
GATEWAYS: Mapping[str, tuple[str, ...]] = {
    "buckets": (SURE, UNSURE),
    "load": (SURE, UNSURE),
    SURE: (SURE,),
    UNSURE: (UNSURE,),
}
"""By name, the workers that each has. A client that draws between the last two sends at random."""
BUCKETS: Mapping[str, tuple[int, ...]] = {SURE: (0, 1, 2), UNSURE: (3,)}
"""What each of the two workers is for, where turns go by buckets."""
MAX_DRAFTS: Mapping[str, int] = {SURE: 16, UNSURE: 0}
EXPECTED_S: Mapping[str, float] = {SHORT: 0.034, JSON: 0.010, OPEN: 0.206}
"""By kind, as the tasks rag_qa, structured_output and open_writing are calibrated: buckets 1, 0 and 3."""
TEMPERATURES: Mapping[str, float] = {SHORT: 0.4, JSON: 0.2, OPEN: 0.9}
MAX_TOKENS: Mapping[str, int] = {SHORT: 24, JSON: 72, OPEN: 128}


@dataclass(frozen=True, slots=True)
class Arm:
    """Who chooses between the workers.

    ``buckets``: a gateway where they are for buckets. ``load``: one where they are not. ``random``: a coin.
    """

    name: str
    routing: Routing
    drafts: bool = True

    @property
    def gateways(self) -> tuple[str, ...]:
        """The names of the gateways that its requests go to, each as likely as the others."""
        return (SURE, UNSURE) if self.routing == "random" else (self.routing,)


BY_BUCKETS, BY_LOAD, BY_CHANCE = Arm("buckets", "buckets"), Arm("load", "load"), Arm("random", "random")
WITHOUT_DRAFTS = Arm("no drafts", "load", drafts=False)
ARMS = (BY_BUCKETS, BY_LOAD, BY_CHANCE, WITHOUT_DRAFTS)
COMPARED = ((BY_BUCKETS, BY_CHANCE), (BY_BUCKETS, BY_LOAD), (BY_LOAD, WITHOUT_DRAFTS))
"""Pairs of arms whose ratios are told."""


def arms_named(names: str) -> tuple[Arm, ...]:
    """Return these arms, comma-separated. Raises CommandError."""
    wanted = names_in(names, (arm.name for arm in ARMS))
    return tuple(arm for arm in ARMS if arm.name in wanted)


def drafts_named(name: str) -> Drafts:
    """Return how tasks draft. Raises CommandError."""
    for mode in get_args(Drafts):
        if name == mode:
            return cast("Drafts", mode)
    raise CommandError(f"--drafts {name}: it is entropy or fixed")


def kinds_of(shares: Mapping[str, float]) -> Mapping[str, float]:
    """Return the shares as they are. Raises CommandError for a kind that has no task here."""
    unknown = sorted(set(shares) - set(EXPECTED_S))
    if unknown:
        raise CommandError(f"--mix: there is no task for {unknown[0]!r}; kinds are {', '.join(EXPECTED_S)}")
    return shares


def task_of(kind: str, arm: Arm) -> str:
    """Return the name of the task that a request of ``kind`` names in ``arm``."""
    return f"{kind}_drafted" if arm.drafts else kind


def write_tasks(folder: Path, drafts: Drafts, max_draft: int) -> None:
    """Write two tasks for each kind, one of which drafts, into a configuration folder."""
    (folder / "tasks").mkdir(parents=True)
    speculation = f"speculation: {{mode: {drafts}, max_draft: {max_draft}}}\n"
    documents = {"default": "task_type: default\n"}
    for kind, expected_s in EXPECTED_S.items():
        temperature = TEMPERATURES[kind]
        plain = (
            f"sampling: {{temperature: {temperature}, max_tokens: {MAX_TOKENS[kind]}}}\n"
            f"calibration: {{model: {MODEL}, temperature: {temperature}, s_mean: {expected_s}}}\n"
        )
        documents[kind] = f"task_type: {kind}\n{plain}"
        documents[f"{kind}_drafted"] = f"task_type: {kind}_drafted\n{plain}{speculation}"
    for name, content in documents.items():
        (folder / "tasks" / f"{name}.yaml").write_text(content)
