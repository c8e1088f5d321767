"""An encoder with what it has encoded before, in process and in Redis, and with what it is encoding now."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from gateway.context.encoding import BUNDLED_ENCODER, Encoding, Precision, Space, Vectors
from gateway.context.encoding_cache import EncodingCache
from gateway.context.local import LocalSource
from gateway.context.remote import RemoteSettings, RemoteSource
from gateway.context.shared_cache import SharedCache, shared_key
from gateway.context.source import EncodingSource
from gateway.context.words import is_latin
from gateway.telemetry.metrics import Metrics

Tier: TypeAlias = Literal["process", "redis", "encoder"]
"""Where an encoding came from."""

_LARGE_CHARS = 500_000
"""Hashing more than this would hold up the event loop for longer than a millisecond."""


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """EncoderSettings() is the bundled all-MiniLM-L6-v2 on one thread."""

    model: str = BUNDLED_ENCODER
    """The bundled encoder's name, a folder, or an id in the local Hugging Face cache."""
    precision: Precision = "auto"
    num_threads: int = 1
    cache_bytes: int = 256 * 2**20
    reads: Literal["latin", "any"] = "latin"
    """The scripts that the model knows."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """The encodings of one request's texts, in their order."""

    encodings: tuple[Encoding, ...]
    tiers: tuple[Tier, ...]
    encode_ms: float
    """Wall time in the encoder; 0 where the caches had everything."""

    @property
    def num_cache_hits(self) -> int:
        return self.num_hits()

    def num_hits(self, first: int | None = None) -> int:
        """Return how many of the ``first`` texts, or of all, were in one of the caches."""
        return sum(tier != "encoder" for tier in self.tiers[:first])


@dataclass(slots=True)
class _Flight:
    """Texts on their way through Redis and encoder, for one request or several that want the same."""

    task: asyncio.Task[_Landed]
    keys: tuple[bytes, ...]
    num_waiting: int = 0


@dataclass(frozen=True, slots=True)
class _Landed:
    found: Mapping[bytes, tuple[Encoding, Tier]]
    encode_ms: float


class Encoder:
    """Encodes texts, none of them twice."""

    def __init__(
        self,
        settings: EncoderSettings | RemoteSettings,
        shared: SharedCache | None = None,
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self._source = _open(settings, clock)
        self._name = "remote" if isinstance(settings, RemoteSettings) else "local"
        self._cache = EncodingCache(settings.cache_bytes)
        self._shared = shared
        self._metrics = metrics or Metrics()
        self._flights: dict[bytes, _Flight] = {}

    def start(self) -> None:
        """Begin to load the model, without waiting; ``warm`` tells how it went."""
        self._source.start()

    async def warm(self) -> None:
        """Wait until texts can be encoded. Raises EncoderError."""
        await self._source.warm()

    @property
    def dimension(self) -> int | None:
        """Length of the vectors; None before it is warm."""
        return self._source.dimension

    @property
    def is_sharing(self) -> bool:
        """Whether encodings are on their way to Redis."""
        return self._shared is not None and self._shared.is_writing

    @property
    def space(self) -> Space:
        """What its encodings are to the selector, which knows the bundled encoder's scale alone."""
        return "full" if self.settings.model == BUNDLED_ENCODER and self._name == "local" else "foreign"

    def can_read(self, text: str) -> bool:
        """Tell whether it knows the script. Of a server that is taken for granted."""
        reads_all = isinstance(self.settings, RemoteSettings) or self.settings.reads == "any"
        return reads_all or is_latin(text)

    async def encode(self, texts: Sequence[str]) -> Encoded:
        """Encode ``texts``, those not cached in one pass. Raises EncoderError."""
        await self._source.warm()
        keys = await _hashed(texts)
        known: dict[bytes, tuple[Encoding, Tier]] = {}
        missing: dict[bytes, str] = {}
        for key, text in zip(keys, texts, strict=True):
            entry = self._cache.get(key)
            if entry is None:
                missing[key] = text
            else:
                known[key] = entry, "process"
        encode_ms = 0.0
        for landed in await self._land(missing):
            known |= landed.found
            encode_ms += landed.encode_ms
        encodings, tiers = zip(*(known[key] for key in keys), strict=True) if keys else ((), ())
        for tier in tiers:
            self._metrics.encodings.labels(self._name, tier).inc()
        return Encoded(encodings, tiers, encode_ms)

    async def until_idle(self) -> None:
        """Return once nobody waits for an encoding."""
        while self._flights:
            await asyncio.wait({flight.task for flight in self._flights.values()})

    async def vectors_of(self, texts: Sequence[str]) -> list[Vectors]:
        """Return each text's vector [d], of unit length. Raises EncoderError.

        For texts that come once: what has been encoded before is used, and nothing is kept or shared.
        """
        await self._source.warm()
        found = {text: self._cache.get(key) for key, text in zip(await _hashed(texts), texts, strict=True)}
        missing = [text for text, entry in found.items() if entry is None]
        fresh = dict(zip(missing, (await self._source.encode(missing))[0], strict=True)) if missing else {}
        return [(found[text] or fresh[text]).vector for text in texts]

    def close(self) -> None:
        """End the thread; what waits for it is cancelled."""
        self._source.close()

    async def aclose(self) -> None:
        """End the thread and the connections, and stop sharing."""
        await self._source.aclose()
        if self._shared is not None:
            await self._shared.aclose()

    async def _land(self, missing: Mapping[bytes, str]) -> list[_Landed]:
        """Join the flights that carry ``missing``, and begin one for what is on none."""
        new = {key: text for key, text in missing.items() if key not in self._flights}
        if new:
            self._begin(new)
        joined = list({id(self._flights[key]): self._flights[key] for key in missing}.values())
        for flight in joined:
            flight.num_waiting += 1
        try:
            # Shielded: a request that goes away does not take the texts of others with it.
            return [await asyncio.shield(flight.task) for flight in joined]
        finally:
            for flight in joined:
                flight.num_waiting -= 1
                if not flight.num_waiting and not flight.task.done():
                    self._forget(flight)
                    flight.task.cancel()

    def _begin(self, new: Mapping[bytes, str]) -> None:
        flight = _Flight(asyncio.create_task(self._fly(new), name="encode"), tuple(new))
        self._flights |= dict.fromkeys(new, flight)
        flight.task.add_done_callback(lambda _: self._forget(flight))

    def _forget(self, flight: _Flight) -> None:
        if flight.task.done() and not flight.task.cancelled():
            flight.task.exception()  # those who wait have it; without them nobody has to be told
        for key in flight.keys:
            if self._flights.get(key) is flight:
                del self._flights[key]

    async def _fly(self, missing: Mapping[bytes, str]) -> _Landed:
        """Take from Redis what is there, encode the rest in one pass, and keep both."""
        found: dict[bytes, tuple[Encoding, Tier]] = {}
        fingerprint, dimension = self._source.fingerprint, self._source.dimension
        if self._shared is not None and dimension is not None:
            names = {key: shared_key(fingerprint, key) for key in missing}
            read = await self._shared.get(list(names.values()), dimension)
            found = {key: (read[name], "redis") for key, name in names.items() if name in read}
        rest = {key: text for key, text in missing.items() if key not in found}
        fresh, encode_ms = await self._source.encode(list(rest.values())) if rest else ([], 0.0)
        for key, encoding in zip(rest, fresh, strict=True):
            found[key] = encoding, "encoder"
            if self._shared is not None:
                self._shared.put(shared_key(fingerprint, key), encoding)
        for key, (encoding, _) in found.items():
            self._cache.put(key, encoding)
        return _Landed(found, encode_ms)


async def _hashed(texts: Sequence[str]) -> list[bytes]:
    """Return 16 bytes a text that no other text has."""
    if sum(map(len, texts)) > _LARGE_CHARS:
        return await asyncio.to_thread(lambda: [encoding_name(text) for text in texts])
    return [encoding_name(text) for text in texts]


def encoding_name(text: str) -> bytes:
    """Return what a text's encoding is kept under: 128 bits of blake2b."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _open(settings: EncoderSettings | RemoteSettings, clock: Callable[[], float]) -> EncodingSource:
    if isinstance(settings, RemoteSettings):
        return RemoteSource(settings, clock)
    return LocalSource(settings.model, settings.precision, settings.num_threads, clock)
