"""The documentation names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.replay.comparison import TOLERANCES
from gateway.settings import GatewaySettings
from worker.settings import WorkerSettings

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]


def sources() -> str:
    return "\n".join(
        path.read_text() for package in ("gateway", "worker") for path in (ROOT / package).rglob("*.py")
    )


def test_every_redis_key_has_a_row_with_an_owner_that_exists() -> None:
    table = (ROOT / "docs" / "redis.md").read_text()
    rows = [line for line in table.splitlines() if line.startswith("| `ng:")]
    documented = {re.findall(r"`(ng:\{?[a-z:]+)", row)[0] for row in rows}
    # In an f-string a brace of a hash tag is written twice.
    used = {key.replace("{{", "{") for key in re.findall(r"\"(ng:(?:\{\{)?[a-z:]+)", sources())}
    assert used
    assert used == documented
    for row in rows:
        owner = re.findall(r"`((?:gateway|worker)/[a-z_/]+\.py)`", row)[0]
        assert (ROOT / owner).is_file()


def test_every_setting_that_a_page_names_exists() -> None:
    known = {f"NG_{name.upper()}" for name in GatewaySettings.model_fields}
    known |= {f"NG_WORKER_{name.upper()}" for name in WorkerSettings.model_fields}
    known |= {"NG_CACHE_DIR", "NG_NAME", "NG_NAME_FILE"}
    for page in PAGES:
        named = set(re.findall(r"\bNG_[A-Z_]+\b", page.read_text()))
        assert named <= known, f"{page.name}: {named - known}"


def test_every_setting_of_the_encoders_is_documented_with_its_default() -> None:
    page = (ROOT / "docs" / "encoders.md").read_text()
    for name, field in GatewaySettings.model_fields.items():
        if not name.startswith("encoder_") or name.endswith("_file"):
            continue
        row = next(line for line in page.splitlines() if line.startswith(f"| `NG_{name.upper()}`"))
        default = "–" if field.default is None else str(field.default).removesuffix(".0")
        assert row.split("|")[2].strip() == default


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"`((?:gateway|worker|configs|deploy|docs|tests)/[\w./-]*)`", page.read_text())
    for name in named:
        assert (ROOT / name).exists(), name


def test_the_tolerances_of_replay_are_the_documented_ones() -> None:
    design = (ROOT / "docs" / "design.md").read_text()
    for dtype, tolerance in TOLERANCES.items():
        k = (
            f"1 + {tolerance.k_share:.0%}, jumps in {tolerance.k_jump_share:.0%}"
            if tolerance.k_share
            else "1"
        )
        numbers = (tolerance.entropy_nats, tolerance.gravity, tolerance.logprob)
        row = f"| {dtype} | " + " | ".join(f"{number:g}" for number in numbers) + f" | {k} |"
        assert row in design
