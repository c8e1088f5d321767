"""``gravity bench ablation``: its questions, its figures from known turns, and the whole of it, in short."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from gateway.bench.ablation.arms import ARMS, BASELINE, arms_named, write_tasks
from gateway.bench.ablation.figures import ArmBlock, Turn, arm_figures
from gateway.bench.ablation.questions import QUESTIONS, documents, is_right
from gateway.errors import CommandError
from gateway.store.watch import ConfigStore


def block(latency_s: float, right: int, wrong: int = 0) -> ArmBlock:
    answered = [
        Turn(latency_s, is_right, 10, 100, 3.0, 1.5) for is_right in (True,) * right + (False,) * wrong
    ]
    return ArmBlock(tuple(answered), elapsed_s=2 * latency_s, cpu_s=latency_s)


def test_every_question_has_its_answer_in_one_text_of_twenty() -> None:
    texts = documents((0, 0, 0))
    assert len(texts) == len({text["title"] for text in texts}) == 20
    for question in QUESTIONS:
        assert sum(is_right(question, text["text"]) for text in texts) == 1, question
        assert not is_right(question, question.text)


def test_texts_come_in_an_order_of_their_own() -> None:
    assert documents((0, 0, 0)) == documents((0, 0, 0))
    assert documents((0, 0, 0)) != documents((0, 0, 1))


def test_every_arm_has_its_task(tmp_path: Path) -> None:
    write_tasks(tmp_path / "configs")
    tasks = ConfigStore.open(tmp_path / "configs").snapshot.tasks
    assert {arm.task for arm in ARMS} <= set(tasks)
    assert not tasks[BASELINE.task].context.pruning
    assert tasks["pruned"].context.pruning
    assert tasks["pruned"].adaptive is None
    assert tasks["steered"].adaptive is not None
    assert {task.sampling.temperature for task in tasks.values() if task.sampling} == {0.4}


def test_figures_are_ratios_to_the_baseline_of_the_same_block() -> None:
    baseline, pruned = [block(4.0, 1, 1), block(8.0, 1, 1)], [block(2.0, 1, 1), block(2.0, 2)]
    figures = arm_figures(pruned, baseline)
    assert figures.values["latency_s"].mean == pytest.approx(2.0)
    latency, rate = figures.ratios["latency_s"], figures.ratios["answer_rate"]
    assert latency is not None
    assert [latency.mean, latency.low, latency.high] == pytest.approx([1 / 3, 1 / 4, 1 / 2])
    assert rate is not None
    assert rate.mean == pytest.approx(1.5)
    throughput = figures.ratios["requests_per_s"]
    assert throughput is not None
    assert throughput.mean == pytest.approx((2 / 4 + 2 / 4) / (2 / 8 + 2 / 16))
    assert figures.values["nats_per_gmac"].mean == pytest.approx(2.0)


def test_arms_are_chosen_by_name_and_the_baseline_is_always_there() -> None:
    assert [arm.name for arm in arms_named("+scheduling, +context")] == [
        "baseline",
        "+context",
        "+scheduling",
    ]
    with pytest.raises(CommandError, match=r"no arm '\+bogus'; there are baseline, \+context"):
        arms_named("+context,+bogus")


def test_a_ratio_to_nothing_is_left_out() -> None:
    assert arm_figures([block(1.0, 1)], [block(1.0, 0, 1)]).ratios["answer_rate"] is None


@pytest.mark.timeout(420)  # a gateway and a worker
def test_the_whole_ablation_runs(tmp_path: Path) -> None:
    report_file = tmp_path / "ablation.json"
    options = [
        "--blocks",
        "1",
        "--questions",
        "1",
        "--clients",
        "1",
        "--arms",
        "+context",
        "--json",
        str(report_file),
    ]
    ended = subprocess.run(
        [sys.executable, "-m", "gateway.cli", "bench", "ablation", *options],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    arms = orjson.loads(report_file.read_bytes())["arms"]
    assert list(arms) == ["baseline", "+context"]
    for arm in arms.values():
        assert arm["values"]["nats_per_gmac"]["mean"] > 0.0
        assert arm["values"]["cpu_s"]["mean"] > 0.0
    assert arms["baseline"]["ratios"]["latency_s"]["mean"] == 1.0
    assert arms["+context"]["ratios"]["prompt_tokens"]["mean"] < 0.5
