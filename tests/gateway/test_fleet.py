"""Three gateways and one Redis: what is published reaches all of them, and no request notices."""

from __future__ import annotations

import json
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis import Redis

from gateway.configure.speech import tell_people
from gateway.configure.status import run_status
from gateway.stack.target import Target
from gateway.store.keys import ConfigKeys
from gateway.store.versions import canonical_json, content_sha
from tests.conftest import WaitUntil
from tests.servers.gateway import CHAT, Gateway, StartGateway, events_of
from tests.servers.upstream import MODEL, Pause, Script, Upstream, chunk, events

CONVERGED_S = 2.0
NUM_EACH = 4
"""Answers that each client waits for before the publish and after it."""
STREAM = Script([events(chunk("a"), done=False), Pause(0.05), events(chunk("b"), chunk(finish="stop"))])
OLD_TEMPERATURE, NEW_TEMPERATURE = 0.5, 0.6


def story(temperature: float) -> str:
    return f"task_type: story\nsampling: {{temperature: {temperature}}}\n"


@dataclass(frozen=True, slots=True)
class Fleet:
    """Gateways of one namespace; ``start`` adds one more."""

    gateways: list[Gateway]
    start: Callable[[str], Gateway]
    namespace: str
    folder: Path
    redis_url: str

    def publish(self, temperature: float) -> str:
        """Publish through the first gateway; return the new sha."""
        body = {"documents": [story(temperature)], "why": "a test"}
        answer = httpx.post(self.gateways[0].url + "/admin/config/publish", json=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["sha"])

    def serve(self, sha: str) -> bool:
        return all(gateway.deps.config.snapshot.sha == sha for gateway in self.gateways)

    def reports(self, gateway: Gateway) -> Mapping[str, Any]:
        """What ``gateway`` says of all of them, by their names."""
        fleet = httpx.get(gateway.url + "/admin/config/status").json()["fleet"]
        return {view["report"]["replica_id"]: view for view in fleet["replicas"]}


@pytest.fixture
def fleet(upstream: Upstream, start_gateway: StartGateway, tmp_path: Path, valkey_url: str) -> Fleet:
    upstream.plays(STREAM)
    folder = tmp_path / "configs"
    (folder / "tasks").mkdir(parents=True)
    (folder / "tasks" / "default.yaml").write_text("task_type: default\n")
    (folder / "tasks" / "story.yaml").write_text(story(OLD_TEMPERATURE))
    namespace = f"fleet-{uuid.uuid4().hex}"

    def start(name: str) -> Gateway:
        return start_gateway(
            upstream.url,
            config_dir=folder,
            config_store="redis",
            config_namespace=namespace,
            config_poll_s=0.5,
            state_dir=tmp_path / name,
            replica_id=name,
        )

    return Fleet([start(name) for name in "abc"], start, namespace, folder, valkey_url)


@dataclass(slots=True)
class Client:
    """Sends one request after the other to one gateway until told to stop."""

    gateway: Gateway
    stop: threading.Event
    answers: list[tuple[str, list[Any]]] = field(default_factory=list)
    """What was asked, and the events of the answer."""

    def run(self) -> None:
        with httpx.Client(base_url=self.gateway.url, timeout=30.0) as http:
            while not self.stop.is_set():
                asked = uuid.uuid4().hex
                message = {"role": "user", "content": asked}
                body = {"model": MODEL, "messages": [message], "task": "story", "stream": True}
                answer = http.post(CHAT, json=body)
                assert answer.status_code == 200, answer.text
                self.answers.append((asked, events_of(answer.content)))

    def shas(self) -> list[str]:
        return [sha_of(streamed) for _, streamed in self.answers]


def sha_of(streamed: list[Any]) -> str:
    return next(str(event["gravity"]["config_sha"]) for event in streamed if "gravity" in event)


@pytest.fixture
def clients(fleet: Fleet) -> Iterator[list[Client]]:
    """One client a gateway, at work from the beginning to the end."""
    stop = threading.Event()
    clients = [Client(gateway, stop) for gateway in fleet.gateways]
    with ThreadPoolExecutor(len(clients)) as threads:
        running = [threads.submit(client.run) for client in clients]
        try:
            yield clients
        finally:
            stop.set()
            for each in running:
                each.result()


def test_a_publish_under_load_reaches_all_and_mixes_no_request(
    fleet: Fleet, clients: list[Client], upstream: Upstream, wait_until: WaitUntil
) -> None:
    """litellm#37188"""
    old = fleet.gateways[0].deps.config.snapshot.sha
    wait_until(lambda: all(len(client.answers) >= NUM_EACH for client in clients))
    new = fleet.publish(NEW_TEMPERATURE)
    wait_until(lambda: fleet.serve(new), timeout_s=CONVERGED_S)
    wait_until(lambda: all(client.shas().count(new) >= NUM_EACH for client in clients))
    temperatures = {old: OLD_TEMPERATURE, new: NEW_TEMPERATURE}
    sent = {body["messages"][-1]["content"]: body["temperature"] for _, body in list(upstream.received)}
    for client in clients:
        assert {old, new} == set(client.shas())
        for asked, streamed in list(client.answers):
            assert streamed[-1] == "[DONE]"
            assert "".join(text_of(event) for event in streamed[:-1]) == "ab"
            assert sent[asked] == temperatures[sha_of(streamed)]
            assert len({event["system_fingerprint"] for event in streamed[:-1]}) == 1


def text_of(event: Mapping[str, Any]) -> str:
    return "".join(choice["delta"].get("content") or "" for choice in event["choices"])


def test_a_gateway_that_was_down_during_a_publish_converges_at_its_start(
    fleet: Fleet, tmp_path: Path, wait_until: WaitUntil
) -> None:
    old = fleet.gateways[0].deps.config.snapshot.sha
    shutil.copytree(tmp_path / "a", tmp_path / "late")  # what it served when it went down
    assert old in next((tmp_path / "late").iterdir()).read_text()
    new = fleet.publish(NEW_TEMPERATURE)
    late = fleet.start("late")
    assert late.deps.config.snapshot.sha == new
    wait_until(lambda: {view["report"]["sha"] for view in fleet.reports(late).values()} == {new})
    assert set(fleet.reports(late)) == {"a", "b", "c", "late"}
    assert not any(view["has_drifted"] for view in fleet.reports(late).values())


def test_a_bad_document_in_the_store_serves_nowhere_and_every_gateway_says_why(
    fleet: Fleet, wait_until: WaitUntil, capsys: pytest.CaptureFixture[str]
) -> None:
    old = fleet.gateways[0].deps.config.snapshot.sha
    head = {"tasks": {"default": {"task_type": "default", "gravity_strength": 99}}, "experiments": {}}
    keys, bad = ConfigKeys(fleet.namespace), content_sha(head)
    with Redis.from_url(fleet.redis_url) as redis:  # another program than ours wrote it
        redis.set(keys.snapshot(bad), canonical_json(head))
        redis.hset(keys.head, mapping={"number": "2", "sha": bad})
        redis.publish(keys.bell, "")

    def errors() -> list[Any]:
        return [view["report"]["last_error"] for view in fleet.reports(fleet.gateways[0]).values()]

    wait_until(lambda: len(errors()) == 3 and all("gravity_strength" in (each or "") for each in errors()))
    assert fleet.serve(old)
    views = fleet.reports(fleet.gateways[2])
    assert all(view["has_drifted"] and view["report"]["sha"] == old for view in views.values())
    assert run_status(Target("redis", fleet.folder, fleet.redis_url, fleet.namespace), tell_people) == 1
    printed = capsys.readouterr().out
    assert "the head is invalid" in printed
    assert printed.count("DRIFTED, serves ") == 3
    assert printed.count("  error: ") == 3
    listed = httpx.get(fleet.gateways[0].url + "/admin/config")
    assert (listed.status_code, listed.json()["field"]) == (409, "gravity_strength")
    back = httpx.post(
        fleet.gateways[1].url + "/admin/config/rollback", json={"reference": "-1", "why": "it is broken"}
    )
    assert back.status_code == 200, back.text
    wait_until(lambda: not any(errors()))
    assert json.loads(back.content)["sha"] == old
    assert fleet.serve(old)
