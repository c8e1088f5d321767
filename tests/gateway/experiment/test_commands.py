"""``gravity experiment list`` and ``report`` in this process, on a real folder and a real Valkey."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import typer

from gateway.cli import app
from gateway.errors import ExperimentError
from tests.gateway.experiment.conftest import NUM_UNITS, Recorded

Gravity = Callable[..., str]


@pytest.fixture
def gravity(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, valkey_url: str, recorded: Recorded
) -> Gravity:
    """Run ``gravity experiment …`` and return what it prints."""
    for name in ("NG_CONFIG_DIR", "NG_CONFIG_STORE", "NG_CONFIG_NAMESPACE", "NG_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str) -> str:
        capsys.readouterr()
        options = ("--config", str(recorded.folder), "--redis", valkey_url)
        status = typer.main.get_command(app)(["experiment", *arguments, *options], standalone_mode=False)
        assert status == 0
        return capsys.readouterr().out

    return run


def test_the_report_begins_with_the_verdict_and_shows_what_it_rests_on(
    gravity: Gravity, recorded: Recorded
) -> None:
    lines = gravity("report", recorded.id).splitlines()
    assert lines[0] == f"experiment {recorded.id}, version 1 (active)"
    assert re.fullmatch(
        r"treatment is better: latency 0\.\d\d\d? s shorter \[0\.\d+, 0\.\d+\], \d\d% of control's .* s; "
        r"60 and 60 units",
        lines[2],
    )
    text = "\n".join(lines)
    assert (
        "guardrail: treatment keeps it: share of errors may be higher than in control by 10 percent" in text
    )
    assert "sizes: treatment 60 units of 60 expected, control 60 units of 60 expected; fits" in text
    table = [
        re.split(r" {2,}", line) for line in lines if line.startswith(("latency", "share of", "feedback"))
    ]
    assert [row[:5] for row in table[:3]] == [
        ["latency", "lower", "treatment", "60", "60"],
        ["latency", "lower", "control", "60", "60"],
        ["share of errors", "lower", "treatment", "60", "60"],
    ]
    assert table[-1][:5] == ["feedback 'useful'", "higher", "control", "30", "30"]
    assert "minus control" in text
    assert "95 % interval" in text


def test_the_report_is_also_a_file(gravity: Gravity, recorded: Recorded, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    gravity("report", recorded.id, "--version", "1", "--json", str(file))
    written = json.loads(file.read_text())
    assert (written["experiment"], written["version"]) == (recorded.id, 1)
    assert written["verdict"]["kind"] == "better"
    (comparison,) = written["metrics"][0]["comparisons"]
    assert -0.65 < comparison["difference"]["low"] < comparison["difference"]["high"] < -0.35
    assert sum(written["sample_ratio"]["counts"].values()) == NUM_UNITS


def test_the_list_has_a_line_for_each(gravity: Gravity, recorded: Recorded) -> None:
    (row,) = (line for line in gravity("list").splitlines() if recorded.id in line)
    assert re.sub(r"\s+", " ", row) == (
        f"{recorded.id} 1 active all 100% treatment 50%, control 50% latency_s {NUM_UNITS * 5 // 2}"
    )


def test_an_unknown_experiment_is_an_error_that_says_so(gravity: Gravity) -> None:
    with pytest.raises(ExperimentError, match="there is no experiment nothing"):
        gravity("report", "nothing")


def test_a_redis_that_is_away_is_an_error_that_names_it(
    gravity: Gravity, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = typer.main.get_command(app)
    nowhere = "redis://someone:secret@127.0.0.1:1/0"
    with pytest.raises(ExperimentError, match=r"redis://127.0.0.1:1/0 does not answer") as error:
        command(
            ["experiment", "list", "--config", str(recorded.folder), "--redis", nowhere],
            standalone_mode=False,
        )
    assert "secret" not in str(error.value)
