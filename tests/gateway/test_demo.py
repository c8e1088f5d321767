"""``gravity demo`` as a newcomer runs it: real processes, no terminal, 80 columns."""

from __future__ import annotations

import re
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from gateway.demo.corpus import (
    ANSWER_WORDS,
    DOCUMENTS,
    MARROW_LARK,
    NIGHT_CROSSING,
    NIGHT_CROSSING_COPY,
    OFF_THEME,
)

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = (
    "1  Three processes",
    "2  A question and its documents",
    "3  The answer, as it comes",
    "4  Every token, read back from Redis",
    "5  The same question in the control lane, unpruned",
    "6  The first turn, replayed from its trace",
)


@pytest.fixture(scope="module")
def demo(start_command: Any) -> Any:
    # Settings of this machine that would spoil it: no texts kept, lanes for the key alone, another Redis.
    elsewhere = {"NG_REDIS_URL": "redis://127.0.0.1:1/0", "NG_ADMIN_KEY": "not-for-the-demo"}
    running = start_command(["demo"], {"COLUMNS": "80", "NG_TEXT_RETENTION": "none", **elsewhere})
    assert running.process.wait(170) == 0, running.output
    return running


@pytest.fixture(scope="module")
def sections(demo: Any) -> dict[str, str]:
    """The text of each section, by its title."""
    titles = [title for title in SECTIONS if title in demo.output]
    assert titles == list(SECTIONS)
    found: dict[str, str] = {}
    rest = demo.output
    for title, following in zip(SECTIONS, (*SECTIONS[1:], None), strict=True):
        rest = rest.partition(title)[2]
        found[title] = rest.partition(following)[0] if following else rest
    return found


def test_three_processes_run_and_none_is_left(demo: Any, sections: dict[str, str], is_running: Any) -> None:
    processes = dict(re.findall(r"^(\w+) +process (\d+)$", sections[SECTIONS[0]], re.MULTILINE))
    assert set(processes) == {"valkey", "worker", "gateway"}
    assert not any(is_running(int(pid)) for pid in processes.values())
    assert demo.output.rstrip().endswith("all processes have ended")


def test_every_document_is_shown_with_verdict_score_and_reason(sections: dict[str, str]) -> None:
    rows = {
        name: (verdict, float(score), why)
        for verdict, name, score, why in re.findall(
            r"^(keep|drop) +([\w-]+) +([01]\.\d\d) +\d+ +(.+)$", sections[SECTIONS[1]], re.MULTILINE
        )
    }
    assert set(rows) == {chunk.id for chunk in DOCUMENTS}
    assert rows[NIGHT_CROSSING.id][0] == rows[MARROW_LARK.id][0] == "keep"
    assert rows[NIGHT_CROSSING_COPY.id][0] == "drop"
    assert rows[NIGHT_CROSSING_COPY.id][2].startswith("duplicate")
    assert all(rows[chunk.id][0] == "drop" for chunk in OFF_THEME)
    assert all(rows[chunk.id][2].startswith("off theme") for chunk in OFF_THEME)


def test_the_turn_says_tokens_lane_task_config_and_bucket(sections: dict[str, str]) -> None:
    text = sections[SECTIONS[1]]
    before, after = map(int, re.findall(r"(\d+) before, (\d+) after", text)[0])
    assert 0 < after < before / 2
    assert re.search(r"^lane +treatment$", text, re.MULTILINE)
    assert re.search(r"^task +rag_qa$", text, re.MULTILINE)
    assert re.search(r"^config sha +[0-9a-f]{64}$", text, re.MULTILINE)
    edges = yaml.safe_load((ROOT / "configs/tasks/rag_qa.yaml").read_text()).get("buckets", {}).get("edges")
    bucket = int(re.findall(r"^bucket +(\d+)", text, re.MULTILINE)[0])
    assert 0 <= bucket <= len(edges or (0.10, 0.15, 0.20))


def test_the_answer_comes_from_the_document_two_hops_away(sections: dict[str, str]) -> None:
    answer = sections[SECTIONS[2]].lower()
    assert any(word in answer for word in ANSWER_WORDS)


def test_every_token_of_the_answer_has_a_row_and_three_charts_follow(sections: dict[str, str]) -> None:
    text = sections[SECTIONS[3]]
    steps = [int(step) for step in re.findall(r"^ *(\d+) .+ [+-]\d\.\d\d +-?\d+\.\d\d$", text, re.MULTILINE)]
    assert steps == list(range(len(steps)))
    assert len(steps) == answer_tokens(sections)[0]
    assert [title in text for title in ("H  entropy, nats", "G  gravity", "k  candidates")] == [True] * 3
    assert text.count("│") == 3 * 4


def answer_tokens(sections: dict[str, str]) -> tuple[int, int]:
    found = re.findall(r"^answer tokens +(\d+) +(\d+)$", sections[SECTIONS[4]], re.MULTILINE)
    return int(found[0][0]), int(found[0][1])


def test_both_lanes_stand_side_by_side(sections: dict[str, str]) -> None:
    text = sections[SECTIONS[4]]
    assert re.search(r"^ +treatment +control$", text, re.MULTILINE)
    rows = {
        name.strip(): (float(one), float(other))
        for name, one, other in re.findall(
            r"^([a-zA-Z ]+?)  +([\d.]+)(?: \w+)? +([\d.]+)(?: \w+)?$", text, re.MULTILINE
        )
    }
    assert rows["documents"][1] == len(DOCUMENTS)
    assert rows["documents"][0] < len(DOCUMENTS) / 2
    assert rows["prompt tokens"][0] < rows["prompt tokens"][1] / 2
    for lane in (0, 1):
        assert 0 < rows["time to first token"][lane] <= rows["total"][lane]


def test_the_replay_is_equal_to_the_record(sections: dict[str, str]) -> None:
    text = sections[SECTIONS[5]]
    assert f"equal: {answer_tokens(sections)[0]} steps within the tolerance" in text
    assert re.findall(r"^(H|G|k|logprob) ", text, re.MULTILINE) == ["H", "G", "k", "logprob"]


def test_it_fits_80_columns_and_has_no_escape_codes(demo: Any, sections: dict[str, str]) -> None:
    printed = demo.output.replace(sections[SECTIONS[2]], "\n")  # the model's own text comes as it comes
    assert max(map(len, printed.splitlines())) <= 80
    assert "\x1b" not in demo.output


def test_it_fails_with_a_readable_reason(start_command: Any) -> None:
    running = start_command(["demo"], {"NG_CONFIG_DIR": "/no/such/folder"})
    assert running.process.wait(120) == 2
    assert "gravity: the configuration in /no/such/folder is invalid" in running.output
    assert "Traceback" not in running.output


def test_an_interrupt_leaves_nothing(start_command: Any, wait_until: Any, is_running: Any) -> None:
    running = start_command(["demo"], {})
    wait_until(lambda: "starting an embedded Valkey" in running.output, timeout_s=30)
    running.signal(signal.SIGINT)
    assert running.process.wait(40) == 128 + signal.SIGINT
    assert not any(is_running(int(pid)) for pid in re.findall(r"process (\d+)", running.output))
