"""Encodings over a real Valkey: encoders share, and a store that is away costs a moment and nothing else."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Protocol

import numpy as np
import pytest
from redis.asyncio import Redis

from gateway.context.decide import PruneOptions, PruneQuery
from gateway.context.embed import Encoder, EncoderSettings
from gateway.context.encoding import Encoding
from gateway.context.pruner import Pruner
from gateway.context.remote import RemoteSettings
from gateway.context.report import Document
from gateway.context.shared_cache import (
    KEY_PREFIX,
    MAX_READERS,
    MAX_WAITING_BYTES,
    SharedCache,
    SharedSettings,
)
from gateway.telemetry.metrics import Metrics
from tests.conftest import RunningProcess, StartValkey
from tests.pruning import count_words
from tests.servers.embeddings import SERVED_MODEL, EmbeddingServer

PATIENT = SharedSettings(ttl_s=600, timeout_s=10.0)
"""However busy the machine is."""
TEXTS = ["The kiln is fired with birch.", "Glaze runs where it is thick. It cracks where it cools fast."]


class Sharing:
    """A gateway's part in this: an encoder, its cache in Redis, and what it counts."""

    def __init__(
        self, redis: Redis, encoder: EncoderSettings | RemoteSettings, limits: SharedSettings = PATIENT
    ) -> None:
        self.metrics = Metrics()
        self.cache = SharedCache(redis, limits, self.metrics)
        self.encoder = Encoder(encoder, self.cache, self.metrics)

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"gravity_{name}_total", labels) or 0.0

    async def written(self) -> None:
        """Wait until all that was to be shared is."""
        await written(self.cache)


async def written(cache: SharedCache) -> None:
    async with asyncio.timeout(10.0):
        while cache.is_writing:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class Share(Protocol):
    """Starts a gateway's part; all end with the test."""

    def __call__(
        self, encoder: EncoderSettings | RemoteSettings, limits: SharedSettings = PATIENT
    ) -> Sharing: ...


@pytest.fixture
async def share(redis: Redis) -> AsyncIterator[Share]:
    started: list[Sharing] = []

    def start(encoder: EncoderSettings | RemoteSettings, limits: SharedSettings = PATIENT) -> Sharing:
        started.append(Sharing(redis, encoder, limits))
        return started[-1]

    yield start
    for sharing in started:
        await sharing.encoder.aclose()


@pytest.fixture(scope="module")
def valkey(start_valkey: StartValkey) -> Iterator[RunningProcess]:
    running = start_valkey()
    yield running
    running.end()


@pytest.fixture
async def redis(valkey: RunningProcess) -> AsyncIterator[Redis]:
    client = Redis.from_url(valkey.url, socket_timeout=1.0)
    await client.flushall()
    yield client
    await client.aclose()


@pytest.fixture
def served(embedding_server: EmbeddingServer) -> RemoteSettings:
    return RemoteSettings(embedding_server.url, SERVED_MODEL)


def long_encoding() -> Encoding:
    """An encoding of 3,000 tokens: more than 1 MiB."""
    one = Encoding.of_vector([1.0] + [0.0] * 383)
    tokens = np.zeros((3_000, 384), np.float16)
    return replace(one, tokens=tokens, token_ids=np.zeros(3_000, np.int32))


async def test_what_one_gateway_encoded_another_does_not_encode_again(share: Share) -> None:
    one, other = (share(EncoderSettings(precision="fp32")) for _ in range(2))
    encoded = await one.encoder.encode(TEXTS)
    assert encoded.tiers == ("encoder", "encoder")
    await one.written()
    shared = await other.encoder.encode(TEXTS)
    assert shared.tiers == ("redis", "redis")
    assert shared.encode_ms == 0.0
    for mine, theirs in zip(encoded.encodings, shared.encodings, strict=True):
        assert np.array_equal(mine.vector, theirs.vector)
        assert np.array_equal(mine.sentences, theirs.sentences)
        assert np.array_equal(mine.token_ids, theirs.token_ids)
        assert theirs.tokens.astype(float) == pytest.approx(mine.tokens.astype(float), abs=0.004)
    assert (await other.encoder.encode(TEXTS)).tiers == ("process", "process")
    assert other.count("encodings", encoder="local", source="redis") == 2.0
    assert other.count("encodings", encoder="local", source="process") == 2.0
    assert other.count("encodings", encoder="local", source="encoder") == 0.0


async def test_keys_expire_and_name_the_encoder_not_the_text(
    redis: Redis, share: Share, served: RemoteSettings
) -> None:
    sharing = share(served)
    await sharing.encoder.encode(TEXTS)
    await sharing.written()
    keys = [str(key, "ascii") if isinstance(key, bytes) else key for key in await redis.keys()]
    assert len(keys) == 2
    prefixes = {key.rpartition(":")[0] for key in keys}
    assert len(prefixes) == 1
    assert prefixes.pop().startswith(KEY_PREFIX)
    lifetimes = [await redis.ttl(key) for key in keys]
    assert all(590 <= lifetime <= 600 for lifetime in lifetimes)


async def test_encoders_do_not_take_each_others_encodings(
    redis: Redis, share: Share, served: RemoteSettings, embedding_server: EmbeddingServer
) -> None:
    one, other = share(served), share(RemoteSettings(embedding_server.url, "another"))
    await one.encoder.encode(TEXTS)
    await one.written()
    assert (await other.encoder.encode(TEXTS)).num_cache_hits == 0


async def test_a_corrupt_value_is_a_miss_and_is_replaced(
    redis: Redis, share: Share, served: RemoteSettings
) -> None:
    one, other, third = (share(served) for _ in range(3))
    await one.encoder.encode(TEXTS)
    await one.written()
    for key, value in zip(sorted(await redis.keys()), (b"no encoding at all", b""), strict=True):
        await redis.set(key, value)
    assert (await other.encoder.encode(TEXTS)).tiers == ("encoder", "encoder")
    await other.written()
    assert (await third.encoder.encode(TEXTS)).tiers == ("redis", "redis")


async def test_a_key_of_another_type_is_a_miss(redis: Redis, share: Share, served: RemoteSettings) -> None:
    one, other = share(served), share(served)
    await one.encoder.encode(TEXTS[:1])
    await one.written()
    key = (await redis.keys())[0]
    await redis.delete(key)
    await redis.lpush(key, "not a string")
    assert (await other.encoder.encode(TEXTS[:1])).tiers == ("encoder",)


async def test_a_very_long_text_is_not_shared(redis: Redis, share: Share, served: RemoteSettings) -> None:
    sharing = share(served)
    sharing.cache.put("long", long_encoding())
    await sharing.written()
    assert await redis.keys() == []


async def test_a_store_that_hangs_costs_its_timeout_once(
    valkey: RunningProcess, redis: Redis, share: Share, served: RemoteSettings
) -> None:
    sharing = share(served, SharedSettings(timeout_s=0.2))
    await sharing.encoder.warm()
    await redis.ping()
    valkey.signal(signal.SIGSTOP)
    try:
        started = time.monotonic()
        landed = await sharing.cache.get(["ng:embedding:any"], 384)
        elapsed_s = time.monotonic() - started
        assert landed == {}
        assert 0.2 <= elapsed_s < 5.0
        for text in TEXTS:  # left alone from now on
            assert (await sharing.encoder.encode([text])).tiers == ("encoder",)
    finally:
        valkey.signal(signal.SIGCONT)
    assert sharing.count("encoding_cache_failures") == 1.0
    assert sharing.count("encodings_not_shared") == 2.0


async def test_a_store_is_asked_again_after_a_while(valkey: RunningProcess, redis: Redis) -> None:
    now = [100.0]
    metrics = Metrics()
    cache = SharedCache(redis, SharedSettings(timeout_s=0.1), metrics, clock=lambda: now[0])
    valkey.signal(signal.SIGSTOP)
    try:
        await cache.get(["ng:embedding:any"], 384)
    finally:
        valkey.signal(signal.SIGCONT)
    cache.put("one", Encoding.of_vector([1.0] * 384))
    assert not cache.is_writing
    now[0] += 5.1
    cache.put("one", Encoding.of_vector([1.0] * 384))
    await written(cache)
    assert await redis.exists("one") == 1
    await cache.aclose()


async def test_many_requests_at_once_leave_connections_to_others(valkey: RunningProcess) -> None:
    metrics = Metrics()
    client = Redis.from_url(valkey.url, max_connections=MAX_READERS + 1)
    cache = SharedCache(client, PATIENT, metrics)
    await asyncio.gather(
        *(cache.get([f"ng:embedding:{n}"], 384) for n in range(4 * MAX_READERS)), client.ping()
    )
    assert metrics.registry.get_sample_value("gravity_encoding_cache_failures_total") == 0.0
    await cache.aclose()
    await client.aclose()


async def test_without_redis_pruning_goes_on(start_valkey: StartValkey, served: RemoteSettings) -> None:
    gone = start_valkey()
    gone.end()
    client = Redis.from_url(gone.url, socket_connect_timeout=1.0)
    sharing = Sharing(client, served)
    pruner = Pruner(sharing.encoder, timeout_s=60.0)
    query = PruneQuery("What fires the kiln?", tuple(Document(str(n), text) for n, text in enumerate(TEXTS)))
    report = await pruner.prune(query, PruneOptions(), count_words)
    assert "Not pruned" not in report.note
    assert report.verdicts[0].is_kept
    assert report.verdicts[0].reason != "unpruned"
    assert sharing.count("encoding_cache_failures") >= 1.0
    await pruner.aclose()
    await client.aclose()


async def test_what_does_not_fit_the_queue_is_dropped_and_counted(
    redis: Redis, share: Share, served: RemoteSettings
) -> None:
    sharing = share(served)
    large = long_encoding()
    shareable = replace(large, tokens=large.tokens[:2_000], token_ids=large.token_ids[:2_000])
    num_fit = MAX_WAITING_BYTES // shareable.num_bytes
    for n in range(num_fit + 2):  # without a pause: the writer has had no turn
        sharing.cache.put(f"queued-{n}", shareable)
    assert sharing.cache.num_waiting == num_fit
    assert sharing.count("encodings_not_shared") == 2.0
