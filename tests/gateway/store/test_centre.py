"""What both stores promise."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from redis import Redis

from gateway.errors import ConfigError, PublishConflict, PublishRefused, UnknownVersion
from gateway.store.centre import ConfigCentre, FieldChange, Note
from gateway.store.documents import Documents
from gateway.store.folder_centre import FolderCentre
from gateway.store.proposal import Rules
from gateway.store.redis_centre import RedisCentre
from gateway.store.snapshot import Snapshot
from tests.gateway.store.conftest import MakeDocuments

WHY = Note("bert", "for a reason")


def strength(centre: ConfigCentre, reference: str = "head") -> float:
    return float(centre.find(reference).documents.tasks["default"]["gravity_strength"])


def is_chain(centre: ConfigCentre) -> bool:
    history = centre.history(1000)[::-1]
    numbers = [change.number for change in history]
    links = all(one.to_sha == other.from_sha for one, other in pairwise(history))
    return numbers == list(range(1, len(history) + 1)) and links and history[-1].to_sha == centre.head().sha


def test_a_publish_moves_the_head_and_says_what_changed(
    centre: ConfigCentre, make_documents: MakeDocuments
) -> None:
    before = centre.head()
    published = centre.publish(make_documents(1.25), WHY, expected_sha=before.sha)
    assert (before.number, published.number) == (1, 2)
    assert (published.from_sha, published.sha) == (before.sha, make_documents(1.25).sha)
    assert published.changes == (FieldChange("tasks.default.gravity_strength", 0.5, 1.25),)
    head = centre.head()
    assert (head.number, head.sha, head.documents) == (2, published.sha, make_documents(1.25))
    change = centre.history()[0]
    assert (change.number, change.kind, change.who, change.why) == (2, "publish", "bert", "for a reason")
    assert is_chain(centre)


def test_what_was_made_from_an_older_head_conflicts(
    centre: ConfigCentre, make_documents: MakeDocuments
) -> None:
    old = centre.head().sha
    centre.publish(make_documents(0.75), WHY)
    with pytest.raises(PublishConflict, match="version 2"):
        centre.publish(make_documents(0.875), WHY, expected_sha=old)
    assert strength(centre) == 0.75


def test_of_two_who_publish_at_once_one_loses(centre: ConfigCentre, make_documents: MakeDocuments) -> None:
    sha = centre.head().sha

    def attempt(value: float) -> str:
        try:
            return centre.publish(make_documents(value), WHY, expected_sha=sha).sha
        except PublishConflict:
            return "lost"

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(attempt, (0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3)))
    assert results.count("lost") == 7
    assert centre.head().sha in results
    assert is_chain(centre)
    assert centre.head().number == 2


def test_the_same_again_writes_nothing(centre: ConfigCentre, make_documents: MakeDocuments) -> None:
    again = centre.publish(make_documents(0.5), WHY)
    assert (again.number, again.from_sha, again.changes) == (1, again.sha, ())
    assert len(centre.history()) == 1


def test_a_dry_run_tells_all_and_writes_nothing(centre: ConfigCentre, make_documents: MakeDocuments) -> None:
    calibrated = make_documents(0.75, t={"calibration": {"model": "m", "temperature": 0.3, "s_mean": 0.1}})
    told = centre.publish(calibrated, WHY, is_dry_run=True)
    assert told.is_dry_run
    assert (told.number, told.sha) == (2, calibrated.sha)
    assert FieldChange("tasks.t.calibration.model", None, "m") in told.changes
    assert "0.3" in told.warnings[0]
    assert len(centre.history()) == 1
    assert strength(centre) == 0.5


def test_a_guard_holds_a_jump_back_until_it_is_forced(
    centre: ConfigCentre, make_documents: MakeDocuments
) -> None:
    with pytest.raises(PublishRefused, match="0\\.5 -> 8"):
        centre.publish(make_documents(8.0), WHY)
    assert len(centre.history()) == 1
    centre.publish(make_documents(8.0), Note("bert", "a test of the brakes", is_forced=True))
    assert centre.history()[0].is_forced
    centre.rollback("1", Note("bert", "enough"))  # as far back, and free
    assert strength(centre) == 0.5


def test_what_is_invalid_is_never_published(centre: ConfigCentre, make_documents: MakeDocuments) -> None:
    for bad in (
        make_documents(99.0),
        make_documents(0.5, t={"gravity_strenght": 1}),
        Documents({}, {}),
        make_documents(0.5, t={"task_type": "another"}),
        make_documents(0.5, t={"description": "x" * 2**22}),
    ):
        with pytest.raises(ConfigError):
            centre.publish(bad, Note("bert", "by force", is_forced=True))
    assert len(centre.history()) == 1
    assert strength(centre) == 0.5


def test_what_cannot_be_built_is_never_published(
    tmp_path: Path, redis: Redis, namespace: str, make_documents: MakeDocuments
) -> None:
    """production-stack, read in its source: the third of three parts fails."""

    def third_fails(snapshot: Snapshot) -> None:
        if "third" in snapshot.tasks:
            raise ConfigError("cannot be built", file="tasks/third")

    rules = Rules(dry_build=third_fails)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "default.yaml").write_text("task_type: default\n")
    for centre in (FolderCentre(tmp_path, rules), RedisCentre(redis, namespace, rules)):
        centre.publish(make_documents(0.5), WHY)
        with pytest.raises(ConfigError, match="cannot be built"):
            centre.publish(make_documents(0.6, second={}, third={}), WHY)
        assert centre.head().documents == make_documents(0.5)
        assert len(centre.history()) == 1


def test_versions_go_by_several_names(centre: ConfigCentre, make_documents: MakeDocuments) -> None:
    for value in (0.75, 1.0):
        centre.publish(make_documents(value), WHY)
    second = make_documents(0.75).sha
    for reference, value in (("head", 1.0), ("3", 1.0), ("-1", 0.75), ("-2", 0.5), ("1", 0.5)):
        assert strength(centre, reference) == value
    assert centre.find(second[:7]).number == 2
    for reference in ("4", "-9", second[:6] + "z", second[:3], "abcdef0123", "main", ""):
        with pytest.raises(UnknownVersion):
            centre.find(reference)


def test_a_rollback_is_a_new_publish_of_old_content(
    centre: ConfigCentre, make_documents: MakeDocuments
) -> None:
    first = centre.head().sha
    centre.publish(make_documents(0.75, extra={}), WHY)
    assert centre.rollback("-1", WHY, is_dry_run=True).is_dry_run
    assert centre.head().number == 2
    rolled = centre.rollback("-1", WHY)
    assert (rolled.number, rolled.sha) == (3, first)
    assert FieldChange("tasks.extra.task_type", "extra", None) in rolled.changes
    assert [change.kind for change in centre.history()] == ["rollback", "publish", "publish"]
    assert centre.history(1)[0].from_sha == make_documents(0.75, extra={}).sha
    assert is_chain(centre)


def test_a_namespace_moves_from_one_store_into_the_other(
    folder_centre: FolderCentre, redis_centre: RedisCentre, tmp_path: Path, make_documents: MakeDocuments
) -> None:
    for value in (0.5, 0.75):
        redis_centre.publish(make_documents(value, extra={"penalize": ["é", "on", "1e3"]}), WHY)
    exported = json.loads(json.dumps(redis_centre.export()))
    taken = folder_centre.import_(exported, Note("carla", "moved"))
    assert (taken.number, taken.sha) == (3, redis_centre.head().sha)
    assert folder_centre.head().documents == redis_centre.head().documents
    assert folder_centre.history()[1:] == redis_centre.history()
    assert strength(folder_centre, "1") == 0.5
    folder_centre.rollback("1", WHY)
    assert strength(folder_centre) == 0.5
    there = RedisCentre(redis_centre._redis, f"{redis_centre.namespace}-back", Rules())
    there.import_(json.loads(json.dumps(folder_centre.export())), Note("carla", "back again"))
    assert there.head().sha == folder_centre.head().sha
    assert there.history()[1:] == folder_centre.history()
    assert there.head().number == 5
    assert strength(there, "2") == 0.75


def test_an_import_over_a_history_keeps_it(centre: ConfigCentre, make_documents: MakeDocuments) -> None:
    exported = dict(centre.export())
    centre.publish(make_documents(0.75), WHY)
    taken = centre.import_(exported, Note("carla", "from the other stage"))
    assert (taken.number, taken.sha) == (3, make_documents(0.5).sha)
    assert [change.kind for change in centre.history()] == ["import", "publish", "publish"]
    assert is_chain(centre)


def test_a_damaged_export_is_refused(centre: ConfigCentre) -> None:
    whole = json.dumps(centre.export())
    sha = centre.head().sha
    damages = [
        (centre.head().documents.as_bytes().decode(), '{"experiments":{},"tasks":{}}'),
        (sha, "0" * 64),
        ('"gravity_strength":0.5', '"gravity_strength":0.6'),
    ]
    for old, new in damages:
        inside = json.dumps(old)[1:-1]
        assert inside in whole
        with pytest.raises(ConfigError, match="damaged"):
            centre.import_(json.loads(whole.replace(inside, json.dumps(new)[1:-1], 1)), WHY)
    with pytest.raises(ConfigError, match="format"):
        centre.import_({}, WHY)
    assert len(centre.history()) == 1
