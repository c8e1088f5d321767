"""What an experiment's end makes of the documents, in a folder and in Redis."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from redis import Redis

from gateway.errors import PublishConflict
from gateway.outcomes.guardrail import end
from gateway.outcomes.ledger import Experiment
from gateway.outcomes.rollback import before_first_active, restored, stopped, tasks_of
from gateway.store.centre import ConfigCentre, Note, Published
from gateway.store.document import ExperimentDocument
from gateway.store.documents import Documents
from gateway.store.folder_centre import FolderCentre
from gateway.store.proposal import Rules
from gateway.store.redis_centre import RedisCentre

DEFAULT = {"schema_version": 2, "task_type": "default"}
BEFORE = {"schema_version": 2, "task_type": "rag_qa", "gravity_strength": 1.0}
HARMFUL = {**BEFORE, "gravity_strength": 8.0}
CANDIDATE = {**HARMFUL, "task_type": "rag_qa_candidate"}
EXPERIMENT: Mapping[str, Any] = {
    "schema_version": 2,
    "id": "gain",
    "tasks": ["rag_qa"],
    "enrol_seed": "enrol",
    "arm_seed": "arm",
    "arms": [
        {"name": "treatment", "start": 0.0, "task": "rag_qa_candidate"},
        {"name": "control", "start": 0.5},
    ],
}
DOCUMENT = ExperimentDocument.model_validate(EXPERIMENT)
GAIN = Experiment("gain", 1)
WHY = "gain, version 1: treatment breaks a guardrail"


def documents(rag_qa: Mapping[str, Any] = BEFORE, *more: Mapping[str, Any], **experiments: Any) -> Documents:
    tasks = {str(task["task_type"]): task for task in (DEFAULT, rag_qa, *more)}
    return Documents(tasks, experiments)


@pytest.fixture(params=["folder", "redis"])
def centre(request: pytest.FixtureRequest, tmp_path: Path, valkey_url: str) -> Iterator[ConfigCentre]:
    """A centre that serves the two tasks as they were before."""
    if request.param == "redis":
        with Redis.from_url(valkey_url) as redis:
            shared = RedisCentre(redis, f"rollback-{uuid4().hex[:8]}", Rules())
            publish(shared, documents())
            yield shared
        return
    (tmp_path / "tasks").mkdir()
    for task in (DEFAULT, BEFORE):
        (tmp_path / "tasks" / f"{task['task_type']}.yaml").write_text(yaml.safe_dump(task))
    folder = FolderCentre(tmp_path, Rules())
    yield folder


def publish(centre: ConfigCentre, wanted: Documents) -> Published:
    return centre.publish(wanted, Note("ada", "a test wants it", is_forced=True))


def test_what_an_experiment_names_are_its_tasks_and_its_arms() -> None:
    assert tasks_of(DOCUMENT) == ("rag_qa", "rag_qa_candidate")


def test_old_tasks_come_back_new_ones_go_and_nothing_else_moves() -> None:
    other = {"task_type": "other", "description": "later"}
    now = documents(HARMFUL, CANDIDATE, other, gain=EXPERIMENT)
    back = restored(stopped(now, "gain"), documents(), DOCUMENT)
    assert back.tasks == {"default": DEFAULT, "rag_qa": BEFORE, "other": other}
    assert back.experiments == {"gain": {**EXPERIMENT, "is_active": False}}
    assert now.experiments == {"gain": EXPERIMENT}


def test_roll_back_undoes_the_experiment_alone_and_the_history_says_why(centre: ConfigCentre) -> None:
    publish(centre, documents(HARMFUL, CANDIDATE, gain=EXPERIMENT))
    later = {**DEFAULT, "description": "somebody else's, later"}
    now = centre.head().documents
    publish(centre, Documents({**now.tasks, "default": later}, now.experiments))
    assert end(centre, DOCUMENT, "roll_back", WHY)
    found = centre.head().documents
    assert found.tasks.keys() == {"default", "rag_qa"}
    assert found.tasks["rag_qa"]["gravity_strength"] == 1.0
    assert found.tasks["default"]["description"] == "somebody else's, later"
    assert found.experiments["gain"]["is_active"] is False
    last = centre.history(1)[0]
    assert (last.kind, last.who, last.is_forced) == ("guardrail", "guardrail", True)
    assert last.why.startswith(WHY)
    assert "rag_qa, rag_qa_candidate are again what they were" in last.why


def test_stop_leaves_the_tasks_as_they_are(centre: ConfigCentre) -> None:
    publish(centre, documents(HARMFUL, CANDIDATE, gain=EXPERIMENT))
    assert end(centre, DOCUMENT, "stop", WHY)
    found = centre.head().documents
    assert found.tasks.keys() == {"default", "rag_qa", "rag_qa_candidate"}
    assert found.experiments["gain"]["is_active"] is False
    assert centre.history(1)[0].why == WHY


def test_what_has_ended_or_is_another_version_is_left_alone(centre: ConfigCentre) -> None:
    publish(centre, documents(HARMFUL, CANDIDATE, gain={**EXPERIMENT, "version": 2}))
    assert not end(centre, DOCUMENT, "roll_back", WHY)
    second = ExperimentDocument.model_validate({**EXPERIMENT, "version": 2})
    assert end(centre, second, "roll_back", WHY)
    assert not end(centre, second, "roll_back", WHY)
    assert [change.kind for change in centre.history(2)].count("guardrail") == 1


def test_the_past_is_from_before_the_first_time_it_was_active(centre: ConfigCentre) -> None:
    prepared = publish(centre, documents(BEFORE, CANDIDATE, gain={**EXPERIMENT, "is_active": False}))
    publish(centre, documents(BEFORE, CANDIDATE, gain=EXPERIMENT))
    publish(centre, documents(HARMFUL, CANDIDATE, gain={**EXPERIMENT, "is_active": False}))
    publish(centre, documents(HARMFUL, CANDIDATE, gain=EXPERIMENT))
    found = before_first_active(centre, GAIN)
    assert found is not None
    assert found.sha == prepared.sha


def test_an_experiment_that_began_with_the_namespace_is_stopped_and_nothing_is_undone(
    valkey_url: str,
) -> None:
    with Redis.from_url(valkey_url) as redis:
        centre = RedisCentre(redis, f"rollback-{uuid4().hex[:8]}", Rules())
        publish(centre, documents(HARMFUL, CANDIDATE, gain=EXPERIMENT))
        assert before_first_active(centre, GAIN) is None
        assert end(centre, DOCUMENT, "roll_back", WHY)
        assert centre.head().documents.tasks["rag_qa"]["gravity_strength"] == 8.0
        assert centre.history(1)[0].why == (
            f"{WHY}; what was in force before it is not known, so rag_qa, rag_qa_candidate stay as they are"
        )


def test_an_experiment_switched_on_by_hand_goes_back_to_the_last_version_that_is_known(
    tmp_path: Path,
) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "experiments").mkdir()
    centre = FolderCentre(tmp_path, Rules())
    (tmp_path / "tasks" / "default.yaml").write_text(yaml.safe_dump(DEFAULT))
    known = publish(centre, documents())
    (tmp_path / "tasks" / "rag_qa_candidate.yaml").write_text(yaml.safe_dump(CANDIDATE))
    (tmp_path / "experiments" / "gain.yaml").write_text(yaml.safe_dump(dict(EXPERIMENT)))
    found = before_first_active(centre, GAIN)
    assert found is not None
    assert found.sha == known.sha
    assert end(centre, DOCUMENT, "roll_back", WHY)
    assert centre.head().documents.tasks.keys() == {"default", "rag_qa"}


class Contested:
    """A centre where somebody else publishes just before we do, so often."""

    def __init__(self, centre: ConfigCentre, num_times: int) -> None:
        self._centre = centre
        self._num_times = num_times
        self.namespace = centre.namespace

    def __getattr__(self, name: str) -> Any:
        return getattr(self._centre, name)

    def publish(self, documents: Documents, note: Note, *, expected_sha: str | None = None) -> Published:
        if self._num_times:
            self._num_times -= 1
            now = self._centre.head().documents
            other = {**now.tasks["default"], "description": f"{self._num_times} to come"}
            publish(self._centre, Documents({**now.tasks, "default": other}, now.experiments))
        return self._centre.publish(documents, note, expected_sha=expected_sha)


def test_a_publish_at_the_same_moment_is_kept_and_the_end_tried_again_once(centre: ConfigCentre) -> None:
    publish(centre, documents(HARMFUL, CANDIDATE, gain=EXPERIMENT))
    twice: Any = Contested(centre, 2)
    with pytest.raises(PublishConflict):
        end(twice, DOCUMENT, "roll_back", WHY)
    assert "is_active" not in centre.head().documents.experiments["gain"]
    once: Any = Contested(centre, 1)
    assert end(once, DOCUMENT, "roll_back", WHY)
    found = centre.head().documents
    assert found.tasks["default"]["description"] == "0 to come"
    assert found.tasks["rag_qa"]["gravity_strength"] == 1.0
