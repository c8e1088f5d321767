"""The configuration centre of a fleet, in Redis."""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from redis import Redis
from redis.exceptions import ConnectionError, RedisError, ResponseError, TimeoutError, WatchError

from gateway.errors import CentreUnavailable, ConfigError, PublishConflict, UnknownVersion
from gateway.store.centre import Change, Note, Published, Version
from gateway.store.documents import Documents, documents_from_bytes
from gateway.store.exported import Exported, check_stored, exported, read_exported
from gateway.store.head_script import CONFLICT, MAX_CHANGES, MOVE_HEAD
from gateway.store.history_entry import change_of, fields_of
from gateway.store.keys import ConfigKeys
from gateway.store.proposal import Proposal, Rules, check_expected, conflict, proposed
from gateway.store.reference import number_of, sha_of
from gateway.store.spelling import in_todays_schema

DECIDE_S = 5.0
"""How long a publish whose answer was lost asks again what became of it."""
_PAUSE_S = 0.05


class RedisCentre:
    """One namespace. Its methods block for the client's timeouts at most, a publish for ``DECIDE_S`` more."""

    def __init__(self, redis: Redis, namespace: str, rules: Rules, decide_s: float = DECIDE_S) -> None:
        self.namespace = namespace
        self._redis = redis
        self._keys = ConfigKeys(namespace)
        self._rules = rules
        self._decide_s = decide_s

    def place(self) -> tuple[int, str]:
        """Return the head's number and sha without its documents; (0, "") where the namespace is empty."""
        with _answering():
            number, sha = cast("list[bytes | None]", self._redis.hmget(self._keys.head, ["number", "sha"]))
        return (int(number), sha.decode()) if number and sha else (0, "")

    def head(self) -> Version:
        number, sha = self.place()
        if not sha:
            raise UnknownVersion(f"nothing was ever published to the namespace {self.namespace!r}")
        return Version(number, sha, self._documents(sha))

    def find(self, reference: str) -> Version:
        if reference == "head":
            return self.head()
        history = self.history(MAX_CHANGES)
        with _answering():
            stored = cast("list[bytes]", self._redis.hkeys(self._keys.snapshots))
        sha = sha_of(reference, self.place()[1], history, [each.decode() for each in stored])
        return Version(number_of(sha, history), sha, self._documents(sha))

    def history(self, limit: int = 50) -> tuple[Change, ...]:
        with _answering():
            entries = cast("list[Any]", self._redis.xrevrange(self._keys.history, count=limit))
        return tuple(change_of(entry, fields) for entry, fields in entries)

    def publish(
        self, documents: Documents, note: Note, *, expected_sha: str | None = None, is_dry_run: bool = False
    ) -> Published:
        before = self._head_or_none()
        check_expected(before, expected_sha)
        proposal = proposed(before, documents, note, self._rules)
        number, sha = (before.number, before.sha) if before else (0, "")
        if proposal.sha == sha:
            return proposal.as_published(number, sha, is_dry_run)
        if is_dry_run:
            return proposal.as_published(number + 1, sha, is_dry_run)
        return self._move(proposal, note, number, sha)

    def rollback(self, reference: str, note: Note, *, is_dry_run: bool = False) -> Published:
        kind = note.kind if note.kind == "guardrail" else "rollback"
        documents = in_todays_schema(self.find(reference).documents)
        return self.publish(documents, replace(note, kind=kind), is_dry_run=is_dry_run)

    def export(self) -> Mapping[str, Any]:
        head, history = self.head(), self.history(MAX_CHANGES)
        shas = {head.sha, *(change.to_sha for change in history)}
        return exported(self.namespace, head, history, {sha: self._documents(sha) for sha in shas})

    def import_(self, exported: Mapping[str, Any], note: Note) -> Published:
        """As the interface says. A namespace with a history keeps it, and gets the exported head alone."""
        taken = read_exported(exported)
        note = replace(note, kind="import")
        if self.place()[1]:
            return self.publish(taken.head, note)
        return self._take_over(taken, note)

    def _head_or_none(self) -> Version | None:
        with contextlib.suppress(UnknownVersion):
            return self.head()
        return None

    def _documents(self, sha: str) -> Documents:
        with _answering():
            content = cast("bytes | None", self._redis.get(self._keys.snapshot(sha)))
        if content is None:
            raise UnknownVersion(f"the snapshot {sha[:12]} is not stored any more")
        return documents_from_bytes(check_stored(sha, content))

    def _move(self, proposal: Proposal, note: Note, number: int, sha: str) -> Published:
        keys = self._keys
        names = (keys.head, keys.history, keys.snapshots, keys.snapshot(proposal.sha), keys.bell)
        values: tuple[str | bytes, ...] = (
            *(str(number), sha, proposal.sha, proposal.documents.as_bytes(), uuid.uuid4().hex),
            *(str(MAX_CHANGES), keys.snapshot_prefix),
            *fields_of(note, self._rules.clock()),
        )
        status, there, there_sha = self._decided(names, values)
        if status == CONFLICT:
            raise conflict(int(there), there_sha.decode(), sha)
        return proposal.as_published(int(there), sha)

    def _decided(self, names: tuple[str, ...], values: tuple[str | bytes, ...]) -> tuple[int, bytes, bytes]:
        """Run the script until it answers; its second run finds what the first one wrote."""
        deadline = time.monotonic() + self._decide_s
        while True:
            try:
                with _refusals():
                    answer = self._redis.eval(MOVE_HEAD, len(names), *names, *values)
                return cast("tuple[int, bytes, bytes]", tuple(cast("list[Any]", answer)))
            except (ConnectionError, TimeoutError, OSError) as error:
                if time.monotonic() >= deadline:
                    raise CentreUnavailable(
                        f"Redis went away during the publish ({error}): it is not known whether it was made. "
                        "The history says so when Redis is back, and publishing the same again is harmless"
                    ) from error
            time.sleep(_PAUSE_S)

    def _take_over(self, taken: Exported, note: Note) -> Published:
        proposal = proposed(None, taken.head, note, self._rules)
        keys, last = self._keys, taken.history[-1] if taken.history else None
        number, from_sha = (last.number + 1, last.to_sha) if last else (1, "")
        top = Change(number, "import", from_sha, taken.head_sha, note.who, note.why, self._rules.clock())
        with _answering(), self._redis.pipeline() as pipe:
            pipe.watch(keys.head)  # type: ignore[no-untyped-call]
            if pipe.exists(keys.head):
                raise conflict(*self.place(), "")
            pipe.multi()
            for sha in {taken.head_sha, *(change.to_sha for change in taken.history)}:
                pipe.set(keys.snapshot(sha), taken.snapshots[sha])
            for change in (*taken.history, top):
                fields = ("id", uuid.uuid4().hex, "from", change.from_sha, "to", change.to_sha)
                rest = fields_of(Note(change.who, change.why, change.kind, change.is_forced), change.at)
                pairs = iter((*fields, *rest))
                pipe.xadd(keys.history, dict(zip(pairs, pairs, strict=True)), id=f"{change.number}-0")
                pipe.hincrby(keys.snapshots, change.to_sha, 1)
            pipe.hset(keys.head, mapping={"number": str(number), "sha": taken.head_sha})
            pipe.publish(keys.bell, "")
            with _decisive():
                pipe.execute()
        return proposal.as_published(number, from_sha)


@contextlib.contextmanager
def _answering() -> Iterator[None]:
    try:
        yield
    except ResponseError as error:
        raise ConfigError(f"Redis refuses: {error}") from error
    except (RedisError, OSError) as error:
        raise CentreUnavailable(f"Redis does not answer: {error}") from error


@contextlib.contextmanager
def _decisive() -> Iterator[None]:
    """The import is under way: another head means a conflict, and no answer means that it may be made."""
    try:
        yield
    except WatchError as error:
        raise PublishConflict("somebody published to the namespace meanwhile: look at it first") from error
    except (ConnectionError, TimeoutError, OSError) as error:
        raise CentreUnavailable(
            f"Redis went away during the import ({error}): it is not known whether it was made. "
            "The history says so when Redis is back, and importing the same again is harmless"
        ) from error


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Redis answered, and would not: nothing was written, whatever else happens."""
    try:
        yield
    except ResponseError as error:
        raise ConfigError(f"Redis refuses the publish: {error}") from error
