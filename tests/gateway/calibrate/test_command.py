"""``gravity calibrate`` against the real worker, from the prompts to the published document."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from redis import Redis
from typer.testing import CliRunner

from gateway.calibrate.command import CalibrateOptions, run_calibrate
from gateway.calibrate.measure import Plan
from gateway.calibrate.publish import PublishPlan
from gateway.cli import app
from gateway.errors import CalibrationError
from gateway.settings import GatewaySettings
from gateway.store.centre import Note
from tests.servers.gateway import REPOSITORY, Gateway
from worker.protocol import unpack_steps

PLAN = Plan("rag_qa", max_tokens=6, num_parallel=4)
PROMPTS = "Name a colour.\nWhat is a leek?\nCount to three.\n" + '{"prompt": "One, two,", "max_tokens": 4}\n'


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.txt"
    file.write_text(PROMPTS)
    return file


@pytest.fixture
def configs(tmp_path: Path) -> Path:
    return shutil.copytree(REPOSITORY / "configs", tmp_path / "configs")


def to(folder: Path, why: str = "the first measurement", *, is_forced: bool = False) -> PublishPlan:
    settings = GatewaySettings(config_dir=folder, config_store="files")
    return PublishPlan(settings, Note("ida", why, is_forced=is_forced))


def task_in(folder: Path) -> dict[str, Any]:
    task: dict[str, Any] = yaml.safe_load((folder / "tasks" / "rag_qa.yaml").read_text())
    return task


def test_a_task_is_measured_shown_plotted_and_published(
    real_gateway: Gateway,
    prompts: Path,
    configs: Path,
    tmp_path: Path,
    valkey_url: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = task_in(configs)
    known = turns_in(valkey_url)
    options = CalibrateOptions(
        PLAN,
        prompts,
        real_gateway.url,
        json_file=tmp_path / "found.json",
        plot_file=tmp_path / "found.png",
        publish=to(configs, is_forced=True),
    )
    assert run_calibrate(options) == 0
    found = json.loads((tmp_path / "found.json").read_bytes())
    assert (found["task"], found["model"], found["temperature"]) == ("rag_qa", "SmolLM2-135M-Instruct", 0.4)
    assert (found["num_prompts"], found["failures"]) == (4, [])
    # The same from the traces themselves.
    entropies, normalised = steps_of(valkey_url, turns_in(valkey_url) - known)
    assert found["num_steps"] == len(entropies)
    assert found["s"]["percentiles"] == pytest.approx(
        np.percentile(normalised, found["percentiles"]).tolist(), abs=1e-5
    )
    assert found["proposal"]["k_max"] == round(4 * math.exp(np.percentile(entropies, 95)))
    after = task_in(configs)
    assert after["adaptive"] == before["adaptive"] | {
        name: found["proposal"][name] for name in ("s_low", "s_high", "k_min", "k_max")
    }
    assert (
        after["calibration"].items()
        >= {
            "model": "SmolLM2-135M-Instruct",
            "temperature": 0.4,
            "s_mean": found["proposal"]["s_mean"],
            "num_prompts": 4,
            "num_steps": found["num_steps"],
        }.items()
    )
    assert after["gravity_strength"] == before["gravity_strength"]
    assert (tmp_path / "found.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr()
    assert "95th percentile of s" in printed.out
    assert "published as version" in printed.out
    assert "4/4" in printed.err


def turns_in(valkey_url: str) -> set[bytes]:
    with Redis.from_url(valkey_url) as redis:
        return set(redis.scan_iter("ng:trace:*"))


def steps_of(valkey_url: str, keys: set[bytes]) -> tuple[list[float], list[float]]:
    with Redis.from_url(valkey_url) as redis:
        entries: list[Mapping[bytes, bytes]] = [fields for key in keys for _, fields in redis.xrange(key)]
    steps = [step for fields in entries if b"end" not in fields for step in unpack_steps(fields)[2]]
    # Nothing steered what was measured.
    assert {step.k for step in steps} == {49_152}
    assert {step.bias_nats for step in steps} == {0.0}
    return [step.entropy_nats for step in steps], [step.normalised_entropy for step in steps]


def test_a_guard_holds_a_jump_back_and_nothing_is_lost(
    real_gateway: Gateway, tmp_path: Path, configs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = task_in(configs)
    file, json_file = tmp_path / "one.txt", tmp_path / "found.json"
    # So sure a text that a few candidates are proposed, whatever is drawn.
    count = "One, two, three, four, five, six, seven, eight, nine, ten. "
    file.write_text(json.dumps({"prompt": count * 3 + "One, two, three, four, five,", "max_tokens": 4}))
    options = CalibrateOptions(
        PLAN, file, real_gateway.url, json_file=json_file, publish=to(configs, "no force")
    )
    with pytest.raises(CalibrationError, match=r"nothing is published: .*adaptive\.k_m"):
        run_calibrate(options)
    assert task_in(configs) == before
    assert json.loads(json_file.read_bytes())["num_prompts"] == 1
    assert "proposed:" in capsys.readouterr().out


def test_what_cannot_be_measured_says_why(
    real_gateway: Gateway, prompts: Path, free_port: Any, tmp_path: Path
) -> None:
    def run(plan: Plan = PLAN, url: str = real_gateway.url, **fields: Any) -> None:
        run_calibrate(CalibrateOptions(plan, prompts, url, **fields))

    with pytest.raises(CalibrationError, match="There is no such task"):
        run(Plan("no_such_task", max_tokens=4))
    with pytest.raises(CalibrationError, match="No worker serves the model 'other'"):
        run(Plan("rag_qa", max_tokens=4, model="other"))
    with pytest.raises(CalibrationError, match="names no model"):
        run(url=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(CalibrationError, match=r"is written as \.png"):
        run(plot_file=tmp_path / "plot.pdf")
    with pytest.raises(CalibrationError, match="there is no such folder"):
        run(json_file=tmp_path / "missing" / "found.json")


def test_the_command_starts_a_stack_of_its_own(
    start_command: Any, prompts: Path, tmp_path: Path, worker_environment: Mapping[str, str]
) -> None:
    file = tmp_path / "found.json"
    arguments = ["calibrate", "default", "--prompts", str(prompts), "--max-tokens", "3", "--json", str(file)]
    environment = {name: value for name, value in worker_environment.items() if "REDIS" not in name}
    environment["NG_PRELOAD_ENCODER"] = "false"  # no prompt has documents
    running = start_command([*arguments, "--temperature", "0.7"], environment)
    assert running.process.wait(120) == 0, running.output
    found = json.loads(file.read_bytes())
    assert (found["task"], found["temperature"], found["num_prompts"]) == ("default", 0.7, 4)


def test_publishing_needs_a_reason(prompts: Path) -> None:
    asked = CliRunner().invoke(app, ["calibrate", "rag_qa", "--prompts", str(prompts), "--publish"])
    assert isinstance(asked.exception, CalibrationError)
    assert "--why" in str(asked.exception)
