"""Which experiments there are, from a real folder with a history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.errors import UnknownVersion
from gateway.outcomes.experiments import experiments_in_force, find_experiment
from gateway.settings import GatewaySettings
from gateway.store.centre import ConfigCentre, Note
from gateway.store.documents import Documents
from gateway.store.opening import open_centre

TASKS = {"default": {"task_type": "default"}}


def experiment(name: str, **changes: Any) -> dict[str, Any]:
    arms = [{"name": "treatment", "start": 0.0}, {"name": "control", "start": 0.5}]
    plain = {"id": name, "tasks": ["default"], "enrol_seed": "a", "arm_seed": "b", "arms": arms}
    return {**plain, **changes}


def publish(centre: ConfigCentre, *experiments: dict[str, Any]) -> None:
    documents = Documents(TASKS, {each["id"]: each for each in experiments})
    centre.publish(documents, Note("test", "a test", is_forced=True))


@pytest.fixture
def centre(tmp_path: Path) -> ConfigCentre:
    """A folder where "gain" went from version 1 to 2, and "old" came and went."""
    found = open_centre(GatewaySettings(config_dir=tmp_path))
    publish(found, experiment("gain", coverage=0.1))
    publish(found, experiment("gain", coverage=0.5), experiment("old", is_active=False))
    publish(found, experiment("gain", version=2), experiment("another", is_active=False))
    return found


def test_those_in_force_are_listed_by_id(centre: ConfigCentre) -> None:
    assert [(each.id, each.version) for each in experiments_in_force(centre)] == [("another", 1), ("gain", 2)]


def test_the_newest_version_is_the_heads(centre: ConfigCentre) -> None:
    found = find_experiment(centre, "gain")
    assert (found.version, found.is_active) == (2, True)


def test_an_earlier_version_is_as_it_was_last_and_is_over(centre: ConfigCentre) -> None:
    found = find_experiment(centre, "gain", 1)
    assert (found.version, found.coverage, found.is_active) == (1, 0.5, False)


def test_an_experiment_that_was_taken_out_is_found(centre: ConfigCentre) -> None:
    assert find_experiment(centre, "old").id == "old"


@pytest.mark.parametrize(("name", "version"), [("never", None), ("gain", 3)])
def test_what_never_was_is_unknown(centre: ConfigCentre, name: str, version: int | None) -> None:
    with pytest.raises(UnknownVersion, match=name):
        find_experiment(centre, name, version)
