"""One worker as the gateway sees it: what it can do, how busy it is, whether it may be used."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import Any

from gateway.errors import RequestError
from gateway.pool.breaker import Breaker, Verdict
from gateway.pool.capabilities import Capabilities, Level
from gateway.pool.client import WorkerClient
from gateway.pool.patience import BeginTimes
from gateway.pool.roster import Registration

NOTHING: Mapping[str, Any] = MappingProxyType({})
AFFINITY = 0.5
"""How many open requests one bucket of distance is worth."""


class Worker:
    """Changed by probes (what it is, whether it answers) and by leases (how busy it is); never both."""

    def __init__(
        self,
        client: WorkerClient,
        breaker: Breaker,
        gateway_environment: Mapping[str, Any] = NOTHING,
        buckets: Collection[int] = (),
    ) -> None:
        self.name = client.url
        self.name_hash = int.from_bytes(blake2b(client.url.encode(), digest_size=8).digest())
        self.client = client
        self.breaker = breaker
        self.level: Level = "opaque"
        self.models: Mapping[str, int | None] = MappingProxyType({})
        self.vocabulary_sizes: Mapping[str, int] = MappingProxyType({})
        self.environment: Mapping[str, Any] = MappingProxyType({"gateway": gateway_environment})
        """What a turn runs on here: ``{"gateway": …, "worker": …}``, one mapping that all its turns share."""
        self.is_known = False
        """Whether it has ever told its models."""
        self.is_reachable = False
        self.is_draining = False
        """It gets no new requests; open ones finish."""
        self.buckets = self._settled_buckets = frozenset(buckets)
        """What it is for; empty for every bucket."""
        self.reason = "not asked yet"
        """Why it is not used; empty where it is."""
        self.num_in_flight = 0
        self.concurrency = 0
        """The most requests of this gateway that it gets at once; 0 for any number."""
        self.num_served = 0
        self.num_begun = 0
        """Answers that have begun: its signs of life."""
        self._begin_times: dict[tuple[str, bool], BeginTimes] = {}
        self.on_end: Callable[[], None] = nobody
        """Called when one of its requests has ended, after it is counted out."""
        self._sum_of_buckets = 0

    @property
    def is_ready(self) -> bool:
        return self.is_reachable and not self.is_draining and self.breaker.allows

    @property
    def has_room(self) -> bool:
        return self.concurrency == 0 or self.num_in_flight < self.concurrency

    def cost(self, bucket: int) -> float:
        """Open requests, plus the distance of ``bucket`` to the mean of theirs: like goes to like."""
        if self.num_in_flight == 0:
            return 0.0
        distance = abs(bucket - self._sum_of_buckets / self.num_in_flight)
        return self.num_in_flight + AFFINITY * distance

    def follow(self, entry: Registration | None) -> None:
        """Take over what is registered of it; without anything what the settings say stands."""
        self.is_draining = entry is not None and entry.drains
        self.buckets = frozenset(entry.buckets) if entry and entry.buckets else self._settled_buckets

    def answered(self, capabilities: Capabilities) -> None:
        """A probe succeeded."""
        self.level = capabilities.level
        self.models = capabilities.models
        for kind in [kind for kind in self._begin_times if kind[0] not in self.models]:
            del self._begin_times[kind]
        self.vocabulary_sizes = capabilities.vocabulary_sizes
        if capabilities.environment != self.environment.get("worker"):
            known = {**self.environment, "worker": capabilities.environment}
            self.environment = MappingProxyType(known)
        self.is_known = True
        self.is_reachable = True
        self.reason = ""

    def failed_probe(self, error: RequestError) -> None:
        """A probe failed, or no connection could be made: out, until a probe succeeds."""
        self.is_reachable = False
        self.reason = error.message

    def begin_times(self, model: str, *, is_streaming: bool) -> BeginTimes:
        """What answers of one kind took to begin here; of one that is not streamed, the whole of it."""
        return self._begin_times.setdefault((model, is_streaming), BeginTimes())

    def take(self, bucket: int) -> Lease:
        """Count a request in."""
        return Lease(self, bucket)


class Lease:
    """One request at one worker, from before it is sent until its last byte."""

    def __init__(self, worker: Worker, bucket: int) -> None:
        self._worker = worker
        self._bucket = bucket
        self._is_trial = worker.breaker.begin()
        self._has_ended = False
        worker.num_in_flight += 1
        worker.num_served += 1
        worker._sum_of_buckets += bucket

    def end(self, verdict: Verdict) -> None:
        """Count the request out and tell the breaker how it went. Once; later calls do nothing."""
        if self._has_ended:
            return
        self._has_ended = True
        self._worker.num_in_flight -= 1
        self._worker._sum_of_buckets -= self._bucket
        self._worker.breaker.end(verdict, is_trial=self._is_trial)
        self._worker.on_end()


def nobody() -> None:
    """Nobody waits for a worker's requests to end."""
