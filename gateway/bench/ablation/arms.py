"""The arms: what is on in each, as the gateway's tasks and the worker's settings say it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gateway.bench.naming import names_in

MAX_TOKENS = 48
_PLAIN = f"""\
gravity_strength: 0
sampling: {{temperature: 0.4, max_tokens: {MAX_TOKENS}}}
"""
_STEERED = f"""\
gravity_strength: 1.2
decay_after_steps: 64
adaptive: {{k_min: 3, k_max: 40, p_min: 0.85, p_max: 0.98, s_low: 0.0, s_high: 0.142, curve: geometric,
  smoothing: 0.3, spike_window: 8}}
gravity: {{theme_keywords: 8, repetition_brake: 0.8}}
sampling: {{temperature: 0.4, max_tokens: {MAX_TOKENS}}}
"""
_PRUNED = "context: {pruning: true, keep: balanced}\n"
_KV_BLOCKS = "kv_blocks: {mode: entropy, score: attention, threshold: 1, min_blocks: 4}\n"


@dataclass(frozen=True, slots=True)
class Arm:
    """One more part than the arm before. ``task`` is one of the gateway's, ``scheduler`` the worker's."""

    name: str
    task: str
    scheduler: str


BASELINE = Arm("baseline", "unpruned", "fcfs")
ARMS = (
    BASELINE,
    Arm("+context", "pruned", "fcfs"),
    Arm("+sampling", "steered", "fcfs"),
    Arm("+scheduling", "steered", "entropic"),
    Arm("+KV blocks", "choosing", "entropic"),
    Arm("+speculation", "speculating", "entropic"),  # in place of KV blocks: they exclude each other
)


def arms_named(names: str) -> tuple[Arm, ...]:
    """Return these arms, comma-separated, and the baseline, always. Raises CommandError."""
    wanted = names_in(names, (arm.name for arm in ARMS))
    return tuple(arm for arm in ARMS if arm is BASELINE or arm.name in wanted)


_TASKS = {
    "unpruned": _PLAIN + "context: {pruning: false}\n",
    "pruned": _PLAIN + _PRUNED,
    "steered": _STEERED + _PRUNED,
    "choosing": _STEERED + _PRUNED + _KV_BLOCKS,
    "speculating": _STEERED + _PRUNED + "speculation: {mode: entropy}\n",
}


def write_tasks(folder: Path) -> None:
    """Write the task documents of all arms into a configuration folder."""
    (folder / "tasks").mkdir(parents=True)
    for name, text in (*_TASKS.items(), ("default", _TASKS["unpruned"])):
        content = f"task_type: {name}\ndescription: An arm of the ablation.\n{text}"
        (folder / "tasks" / f"{name}.yaml").write_text(content)
