"""``/admin/config`` over real connections: reading, publishing, keys and problems."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import WaitUntil
from tests.openapi import answer_problems, body_problems
from tests.servers.gateway import Gateway, Scripted, StartGateway
from tests.servers.upstream import MODEL

AT = "/admin/config"
ADMIN, CONFIG, READ = "an-admin-key", "a-config-key", "a-read-key"
FOLDER = {
    "tasks/default.yaml": "task_type: default\nsampling: {temperature: 0.7}\n",
    "tasks/story.yaml": "task_type: story\ngravity_strength: 1.2\n",
}
SEED = {"task_type": "quest", "core_semantics": ["dragon"], "gravity_strength": 0.5, "penalize": ["tax"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FOLDER.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def gateway(start_gateway: StartGateway, folder: Path) -> Gateway:
    """A gateway on a namespace of its own in Redis, with all three keys."""
    return start_gateway(
        config_dir=folder,
        config_store="redis",
        config_namespace=f"test-{uuid.uuid4().hex}",
        config_poll_s=0.1,
        state_dir=folder / "state",
        admin_key=ADMIN,
        config_key=CONFIG,
        read_key=READ,
    )


@pytest.fixture
def client(gateway: Gateway) -> Iterator[httpx.Client]:
    """Holds the config key."""
    with httpx.Client(base_url=gateway.url, headers=bearer(CONFIG)) as client:
        yield client


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def story(strength: float) -> str:
    return f"task_type: story\ngravity_strength: {strength}\n"


def test_a_publish_is_answered_with_what_changed_and_soon_serves(
    client: httpx.Client, gateway: Gateway, wait_until: WaitUntil
) -> None:
    listed = client.get(AT)
    head = listed.json()["head"]
    assert listed.headers["etag"] == f'"{head["sha"]}"'
    assert [task["name"] for task in head["tasks"]] == ["default", "story"]
    body = {"documents": [story(1.5), SEED], "why": "stronger"}
    answer = client.post(AT + "/publish", json=body, headers={"If-Match": listed.headers["etag"]})
    assert answer.status_code == 200, answer.text
    published = answer.json()
    assert (published["number"], published["from_sha"]) == (head["number"] + 1, head["sha"])
    assert answer.headers["etag"] == f'"{published["sha"]}"'
    assert {"path": "tasks.story.gravity_strength", "before": 1.2, "after": 1.5} in published["changes"]
    wait_until(lambda: gateway.deps.config.snapshot.sha == published["sha"])
    assert gateway.deps.config.snapshot.tasks["quest"].core_semantics == ("dragon",)
    newest = client.get(AT + "/history", params={"limit": 1}).json()["changes"]
    assert [(change["who"], change["why"]) for change in newest] == [("config key", "stronger")]


def test_a_document_is_shown_as_written_and_in_force_of_any_version(client: httpx.Client) -> None:
    assert (
        client.post(AT + "/publish", json={"documents": [story(2)], "why": "x", "who": "ada"}).status_code
        == 200
    )
    shown = client.get(AT + "/documents/tasks/story").json()
    assert (shown["document"]["gravity_strength"], shown["document"]["sampling"]["temperature"]) == (2.0, 0.7)
    assert shown["origins"]["sampling.temperature"] == "default"
    old = client.get(AT + "/documents/tasks/story", params={"at": "-1", "effective": "false"}).json()
    assert old["document"] == {"task_type": "story", "gravity_strength": 1.2}
    for path in ("/documents/tasks/poem", "/documents/notes/story", "/documents/experiments/story"):
        assert client.get(AT + path).status_code == 404
    assert client.get(AT + "/documents/tasks/story", params={"at": "77"}).status_code == 404
    assert client.get(AT + "/documents/tasks/story", params={"att": "1"}).json()["field"] == "att"


def test_versions_are_compared_and_rolled_back(client: httpx.Client) -> None:
    assert client.post(AT + "/publish", json={"documents": [story(2)], "why": "x"}).status_code == 200
    differ = client.get(AT + "/diff").json()
    change = {"path": "tasks.story.gravity_strength", "before": 1.2, "after": 2.0}
    assert differ["changes"] == [change]
    assert client.get(AT + "/diff", params={"from": "head", "to": "-1"}).json()["changes"][0]["after"] == 1.2
    assert client.post(AT + "/rollback", json={"reference": "99", "why": "x"}).status_code == 404
    back = client.post(AT + "/rollback", json={"reference": "-1", "why": "too strong"}).json()
    assert back["sha"] == differ["from_sha"]
    assert client.get(AT + "/history").json()["changes"][0]["kind"] == "rollback"


def test_validating_and_a_dry_run_change_nothing(client: httpx.Client) -> None:
    before = client.get(AT).json()["head"]["sha"]
    valid = client.post(AT + "/validate", json={"documents": [story(9)]}).json()
    assert valid["changes"] == [{"path": "tasks.story.gravity_strength", "before": 1.2, "after": 9.0}]
    tried = client.post(AT + "/publish", json={"documents": [story(2)], "why": "x", "is_dry_run": True})
    assert tried.json()["is_dry_run"] is True
    assert tried.headers["etag"] == f'"{before}"'
    assert client.get(AT).json()["head"]["sha"] == before


def test_an_invalid_document_is_a_problem_with_file_line_and_field(client: httpx.Client) -> None:
    text = "task_type: story\ngravity_strenght: 2\n"
    for path, more in (("/validate", {}), ("/publish", {"why": "x"})):
        answer = client.post(AT + path, json={"documents": [SEED, text], **more})
        assert answer.status_code == 400
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        where = (problem["file"], problem["line"], problem["field"])
        assert where == ("documents[1]", 2, "gravity_strenght")


def test_a_moved_head_is_a_conflict_that_names_the_head(client: httpx.Client) -> None:
    first = client.get(AT).headers["etag"]
    assert client.post(AT + "/publish", json={"documents": [story(1.5)], "why": "a"}).status_code == 200
    late = client.post(
        AT + "/publish", json={"documents": [story(1.6)], "why": "b"}, headers={"If-Match": first}
    )
    assert late.status_code == 409
    assert late.json()["head"]["sha"] == client.get(AT).json()["head"]["sha"]
    body = {"documents": [story(1.6)], "why": "b", "expected_sha": first.strip('"')}
    assert client.post(AT + "/publish", json=body).status_code == 409
    both = client.post(AT + "/publish", json=body, headers={"If-Match": '"another"'})
    assert (both.status_code, "different heads" in both.json()["detail"]) == (400, True)


def test_a_jump_is_refused_by_its_fields_and_goes_to_a_share(client: httpx.Client) -> None:
    refused = client.post(AT + "/publish", json={"documents": [story(8)], "why": "much"})
    assert refused.status_code == 409
    assert refused.json()["fields"] == ["tasks.story.gravity_strength"]
    shared = client.post(AT + "/publish", json={"documents": [story(8)], "why": "much", "share": 0.1})
    assert shared.status_code == 200
    (experiment,) = client.get(AT).json()["head"]["experiments"]
    assert (experiment["id"], experiment["coverage"]) == ("story-candidate", 0.2)
    for_all = client.post(AT + "/publish", json={"documents": [story(8)], "why": "it did well"})
    assert for_all.status_code == 200
    assert client.get(AT).json()["head"]["experiments"] == []
    forced = client.post(AT + "/publish", json={"documents": [story(1)], "why": "back", "is_forced": True})
    assert forced.status_code == 200


def test_a_namespace_is_exported_and_taken_over(client: httpx.Client) -> None:
    assert client.post(AT + "/publish", json={"documents": [story(2)], "why": "x"}).status_code == 200
    exported = client.get(AT + "/export").json()
    assert client.post(AT + "/publish", json={"documents": [story(1)], "why": "y"}).status_code == 200
    taken = client.post(AT + "/import", json={"exported": exported, "why": "as it was"})
    assert taken.status_code == 200, taken.text
    assert taken.json()["sha"] == exported["head"]["sha"]
    damaged = client.post(AT + "/import", json={"exported": exported | {"format": 9}, "why": "z"})
    assert damaged.status_code == 400


def test_bodies_are_strict(client: httpx.Client) -> None:
    described = client.get("/openapi.json").json()
    cases: list[tuple[str, dict[str, Any], str]] = [
        ("/publish", {"documents": []}, "why"),
        ("/publish", {"documents": [], "why": "  "}, "why"),
        ("/publish", {"documents": [], "why": "x", "forced": True}, "forced"),
        ("/publish", {"documents": [], "why": "x", "is_forced": "yes"}, "is_forced"),
        ("/publish", {"documents": [], "why": "x", "share": 0.6}, "share"),
        ("/publish", {"documents": [5], "why": "x"}, "documents.0"),
        ("/rollback", {"why": "x"}, "reference"),
        ("/import", {"exported": [], "why": "x"}, "exported"),
    ]
    for path, body, field in cases:
        answer = client.post(AT + path, json=body)
        assert (answer.status_code, answer.json()["field"]) == (400, field)
        assert body_problems(described, "POST", f"/admin/config{path}", body) != []


@pytest.mark.parametrize(
    ("document", "status"),
    [
        ("[" * 3_000, 400),
        ("task_type: " + "{a: " * 3_000 + "1" + "}" * 3_000, 400),
        ("a: &a [x, x]\nb: &b [*a, *a]\ntask_type: *b\n", 400),
        ("!!python/object/apply:os.system ['id']", 400),
        ("task_type: 2020-01-01", 400),
        ("? [a, b]\n: c\ntask_type: a\n", 400),
        ("x" * 2**20, 413),
    ],
)
def test_a_hostile_document_is_an_error_of_the_clients(
    scripted: Scripted, document: str, status: int
) -> None:
    answer = scripted.client.post(AT + "/validate", json={"documents": [document]})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_status_tells_of_every_gateway(client: httpx.Client, gateway: Gateway, wait_until: WaitUntil) -> None:
    def views() -> Any:
        return client.get(AT + "/status").json()["fleet"]["replicas"]

    (view,) = wait_until(views)
    status = client.get(AT + "/status").json()
    assert status["own"]["sha"] == status["fleet"]["sha"] == gateway.deps.config.snapshot.sha
    assert view["report"]["replica_id"] == status["replica_id"]
    assert (view["has_drifted"], view["report"]["last_error"]) == (False, None)
    assert view["report"]["age_s"] >= 0


def test_a_calibration_for_a_model_that_is_not_served_is_a_warning(
    start_gateway: StartGateway, start_upstream: Callable[..., Any], folder: Path
) -> None:
    text = f"{FOLDER['tasks/story.yaml']}calibration: {{model: elsewhere, temperature: 0.7, s_mean: 0.1}}\n"
    (folder / "tasks" / "story.yaml").write_text(text)
    gateway = start_gateway(start_upstream().url, config_dir=folder)
    status = httpx.get(gateway.url + "/admin/config/status").json()
    said = f"The task 'story' was calibrated with the model 'elsewhere'; served is {MODEL}."
    assert status["own_warnings"] == [said]


def test_each_key_has_its_scope(gateway: Gateway) -> None:
    cases: list[tuple[str | None, str, str, int]] = [
        (None, "GET", "", 401),
        ("wrong", "POST", "/publish", 401),
        (READ, "GET", "", 200),
        (READ, "GET", "/status", 200),
        (READ, "POST", "/publish", 403),
        (READ, "POST", "/rollback", 403),
        (CONFIG, "GET", "/history", 200),
        (CONFIG, "POST", "/validate", 200),
        (ADMIN, "POST", "/validate", 200),
    ]
    refusals = set()
    for key, method, path, status in cases:
        headers = {} if key is None else bearer(key)
        body: dict[str, Any] | None = {"documents": []} if method == "POST" else None
        answer = httpx.request(method, gateway.url + AT + path, headers=headers, json=body)
        assert answer.status_code == status, (key, method, path)
        if status != 200:
            refusals.add((status, answer.json()["code"], answer.json()["detail"]))
    assert refusals == {
        (401, "invalid_api_key", "A valid key is required."),
        (403, "insufficient_scope", "The read key does not allow this."),
    }


def test_the_config_key_opens_nothing_else_of_admin(gateway: Gateway) -> None:
    answer = httpx.get(gateway.url + "/admin/turns/none", headers=bearer(CONFIG))
    assert (answer.status_code, answer.json()["code"]) == (403, "insufficient_scope")


def test_answers_have_the_shape_that_is_described(client: httpx.Client) -> None:
    described = client.get("/openapi.json").json()
    for path in ("", "/diff", "/history", "/status", "/export"):
        if path == "/diff":
            assert client.post(AT + "/publish", json={"documents": [story(2)], "why": "x"}).status_code == 200
        answer = client.get(AT + path)
        assert answer_problems(described, "GET", f"/admin/config{path}", 200, answer.json()) == []
    template = "/admin/config/documents/{kind}/{name}"
    shown = client.get(AT + "/documents/tasks/story").json()
    assert answer_problems(described, "GET", template, 200, shown) == []
    sent: tuple[tuple[str, dict[str, Any]], ...] = (
        ("/validate", {"documents": [SEED, story(2.5)]}),
        ("/publish", {"documents": [story(2.5)], "why": "x"}),
        ("/publish", {"documents": [story(9)], "why": "x"}),
        ("/publish", {"documents": ["task_type: [}"], "why": "x"}),
        ("/rollback", {"reference": "-1", "why": "x"}),
    )
    for path, body in sent:
        assert body_problems(described, "POST", f"/admin/config{path}", body) == []
        answer = client.post(AT + path, json=body)
        status, content = answer.status_code, answer.json()
        assert answer_problems(described, "POST", f"/admin/config{path}", status, content) == []


def test_a_store_that_is_away_is_a_503_and_status_still_answers(
    start_gateway: StartGateway, start_valkey: Callable[[], Any], folder: Path
) -> None:
    valkey = start_valkey()
    gateway = start_gateway(
        redis_url=valkey.url, config_dir=folder, config_store="redis", state_dir=folder / "state"
    )
    serving = gateway.deps.config.snapshot.sha
    valkey.end()
    url = gateway.url + AT
    away = httpx.get(url)
    assert (away.status_code, away.headers["retry-after"], away.json()["code"]) == (
        503,
        "5",
        "store_unavailable",
    )
    status = httpx.get(url + "/status")
    assert status.status_code == 200
    assert status.json()["own"]["sha"] == serving
    assert "does not answer" in status.json()["fleet"]["problem"]
