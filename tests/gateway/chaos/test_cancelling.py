"""``gravity chaos cancelling`` on processes of its own, a few times a phase."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.chaos.cancelling import Leavings

if TYPE_CHECKING:
    from tests.conftest import StartCommand


def test_the_command_measures_every_phase_and_leaves_nothing_behind(
    start_command: StartCommand, tmp_path: Path
) -> None:
    report = tmp_path / "cancelling.json"
    running = start_command(["chaos", "cancelling", "--times", "5", "--json", str(report)], {})
    assert running.process.wait(120.0) in (0, 1), running.output  # 1: a busy machine took over 50 ms once
    found = json.loads(report.read_bytes())
    names = ["before the first token", "mid-stream", "not streamed", "in a retry"]
    assert [(phase["phase"], phase["times"]) for phase in found["phases"]] == [(name, 5) for name in names]
    assert found["left_behind"] == []
    assert found["limit_ms"] == 50.0


def test_one_delay_over_the_limit_is_one_too_many() -> None:
    assert Leavings("mid-stream", (1.0, 50.0)).is_in_time
    assert not Leavings("mid-stream", (1.0, 50.1)).is_in_time
    figures = Leavings("mid-stream", tuple(float(ms) for ms in range(101))).as_json()
    assert (figures["p50_ms"], figures["p99_ms"], figures["max_ms"]) == (50.0, 99.0, 100.0)
