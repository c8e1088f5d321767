"""``gravity eval context`` on three small requests: what it prints, what it writes, how it fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gateway.errors import CommandError
from gateway.evaluation.context import ContextOptions, run_eval_context

METHODS = [
    "ours_balanced",
    "ours_safe",
    "all",
    "top_3",
    "top_5",
    "top_8",
    "top_10",
    "similarity_0.3",
    "mmr_8",
    "embeddings_filter",
    "embeddings_filter_0.3",
    "embeddings_clustering_filter",
]


def eval_context(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gateway.cli", "eval", "context", *map(str, arguments)],
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )


@pytest.fixture(scope="module")
def ran(labelled_file: Path) -> tuple[str, dict[str, Any], Path]:
    """What it printed, the JSON, and the plot."""
    pairs = labelled_file.with_name("pairs.jsonl")
    texts = [f"The harbour tug Gannet was launched at Polruan on 4 May {year}." for year in (2017, 2019)]
    pairs.write_text(json.dumps({"a": texts[0], "b": texts[1], "conflict": True}))
    figures, plot = labelled_file.with_name("figures.json"), labelled_file.with_name("plot.png")
    options = ("--json", figures, "--plot", plot, "--conflicts", pairs, "--seed", "3")
    done = eval_context("--data", labelled_file, labelled_file, *options)
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(figures.read_text()), plot


def test_every_method_has_every_figure_in_every_set(ran: tuple[str, dict[str, Any], Path]) -> None:
    _, found, _ = ran
    assert list(found["sets"]) == ["harbour", "garden"]
    assert found["requests"] == {"harbour": 4, "garden": 2, "overall": 6}  # the file was given twice
    for methods in (*found["sets"].values(), found["overall"]):
        assert list(methods) == METHODS
        for cell in methods.values():
            for measure in ("recall", "full", "tokens", "recall_lenient", "off_topic_dropped"):
                low, high = cell["intervals"][measure]
                assert 0.0 <= low <= cell[measure] <= high <= 1.0
    assert found["sets"]["garden"]["all"]["answer"] is None  # its request names none
    assert found["overall"]["all"]["recall"] == found["overall"]["all"]["tokens"] == 1.0
    assert found["mean_of_sets"]["top_3"]["tokens"] == pytest.approx(
        np.mean([found["sets"][name]["top_3"]["tokens"] for name in found["sets"]])
    )
    assert set(found["methods"]) == set(METHODS)


def test_ours_is_compared_to_every_incumbent(ran: tuple[str, dict[str, Any], Path]) -> None:
    _, found, _ = ran
    for name, compared in found["comparisons"].items():
        assert list(compared) == ["ours_balanced", "ours_safe"]
        ours = found["overall"] if name == "overall" else found["sets"][name]
        for setting, against in compared.items():
            assert list(against["recall_difference"]) == METHODS[2:]
            equal = against["at_equal_tokens"]
            assert equal["tokens"] == pytest.approx(ours[setting]["tokens"])
            assert equal["difference"]["mean"] == pytest.approx(ours[setting]["recall"] - equal["recall"])
            assert equal["is_below"] is (equal["difference"]["mean"] < -1e-6)
            assert against["for_our_recall"]["recall"] >= ours[setting]["recall"]


def test_cost_calibration_and_conflicts_are_there(ran: tuple[str, dict[str, Any], Path]) -> None:
    _, found, _ = ran
    for cost in found["cost"].values():
        assert cost["num_chunks"] == 10  # all the distinct ones there are
        assert cost["uncached_cpu_ms"]["median"] > cost["cached_cpu_ms"]["median"] > 0.0
        assert 0.0 < cost["beside_encoder_cpu_ms"]["median"] < cost["uncached_cpu_ms"]["median"]
        assert cost["cached_wall_ms"]["low"] <= cost["cached_wall_ms"]["median"]
    assert sum(each["num_chunks"] for each in found["calibration"]["bins"]) == 24
    assert found["conflicts"]["contradicting"]["num_reported"] == 1
    assert found["encoder"]["model"] == "all-MiniLM-L6-v2"
    assert found["seed"] == 3


def test_the_tables_fit_a_hundred_columns(ran: tuple[str, dict[str, Any], Path]) -> None:
    printed, _, _ = ran
    assert max(map(len, printed.splitlines())) <= 100
    assert "…" not in printed
    for title in ("harbour: 4 requests", "garden: 2 requests", "overall: 6 requests", "conflicts reported"):
        assert title in printed
    for method in METHODS:
        assert sum(line.split()[:1] == [method] for line in printed.splitlines()) >= 3


def test_the_plot_is_a_picture_with_our_colour_in_it(ran: tuple[str, dict[str, Any], Path]) -> None:
    from matplotlib.image import imread

    _, _, plot = ran
    assert plot.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    pixels = imread(plot)
    assert pixels.shape[1] > 3 * pixels.shape[0] // 2  # three panels in a row
    ours = np.array([0xC2, 0x41, 0x0C]) / 255
    assert (np.abs(pixels[:, :, :3] - ours).max(axis=2) < 0.02).sum() > 100


def test_a_bad_line_is_named_with_status_2(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"question": "Why?", "documents": [{"text": "So."}]}\n')
    refused = eval_context("--data", file)
    assert refused.returncode == 2
    assert refused.stderr == f"gravity: {file}:1: 'relevant' is missing\n"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"plot_file": "plot.svg"}, "plot.svg: a plot is written as .png"),
        ({"json_file": "nowhere/f.json"}, "nowhere/f.json cannot be written: there is no folder nowhere"),
        ({"conflicts_file": "pairs"}, "pairs cannot be read: .*No such file"),
    ],
)
def test_what_would_fail_in_the_end_fails_before_anything_is_computed(
    labelled_file: Path, options: dict[str, Any], complaint: str
) -> None:
    files: dict[str, Any] = {name: Path(file) for name, file in options.items()}
    with pytest.raises(CommandError, match=complaint):
        run_eval_context(ContextOptions((labelled_file,), **files))


def test_a_request_without_documents_is_named(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text('{"id": "r7", "question": "Why?", "documents": []}\n')
    with pytest.raises(CommandError, match="request 'r7' has no documents"):
        run_eval_context(ContextOptions((file,)))


def test_no_set_can_be_mistaken_for_all_of_them(tmp_path: Path) -> None:
    file = tmp_path / "overall.jsonl"
    file.write_text('{"question": "Why?", "documents": [{"text": "So.", "relevant": true}]}\n')
    with pytest.raises(CommandError, match="a set cannot be called 'overall'"):
        run_eval_context(ContextOptions((file,)))


@pytest.mark.parametrize("package", ["langchain_classic", "sklearn", "matplotlib"])
def test_a_package_that_is_not_installed_is_named_with_what_to_install(
    labelled_file: Path, package: str
) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; from gateway.cli import main; main()"
    arguments = ["eval", "context", "--data", str(labelled_file), "--plot", "plot.png"]
    refused = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert refused.returncode == 2
    assert refused.stderr.startswith(f"gravity: {package}")
    assert refused.stderr.endswith("is missing: pip install 'narrative-gravity[evaluation]'\n")
