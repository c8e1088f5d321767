"""The encoder beside the event loop: its own thread, a bounded cache, and one kind of error."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from gateway.context.encoding import BUNDLED_ENCODER, EncoderModel, Encoding, EncodingStopped, Precision
from gateway.errors import EncoderError

_RETRY_LOAD_S = 60.0


@dataclass(frozen=True, slots=True)
class EncoderSettings:
    """EncoderSettings() is the bundled all-MiniLM-L6-v2 on one thread."""

    model: str = BUNDLED_ENCODER
    """The bundled encoder's name, a folder, or an id in the local Hugging Face cache."""
    precision: Precision = "auto"
    num_threads: int = 1
    cache_bytes: int = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Encoded:
    """The encodings of one request's texts, in their order."""

    encodings: tuple[Encoding, ...]
    num_cache_hits: int
    encode_ms: float
    """Wall time in the encoder; 0 where the cache had everything."""


class EncodingCache:
    """Least recently used encodings by hash of (model, text), bounded in bytes."""

    def __init__(self, model: str, max_bytes: int) -> None:
        self._model = model.encode()
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._entries: OrderedDict[bytes, Encoding] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    def key(self, text: str) -> bytes:
        return hashlib.blake2b(
            text.encode("utf-8", "surrogatepass"), key=self._model[:64], digest_size=16
        ).digest()

    def get(self, key: bytes) -> Encoding | None:
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def put(self, key: bytes, encoding: Encoding) -> None:
        """Keep ``encoding``, unless it alone is over the bound; the oldest leave until the bound holds."""
        if key in self._entries or encoding.num_bytes > self._max_bytes:
            return
        self._entries[key] = encoding
        self._num_bytes += encoding.num_bytes
        while self._num_bytes > self._max_bytes:
            _, oldest = self._entries.popitem(last=False)
            self._num_bytes -= oldest.num_bytes


class Encoder:
    """Encodes texts on its own thread, where the model is loaded as well."""

    def __init__(self, settings: EncoderSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self.settings = settings
        self._clock = clock
        self._cache = EncodingCache(settings.model, settings.cache_bytes)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="encoder")
        self._model: EncoderModel | None = None
        self._load_failure: tuple[float, str] | None = None

    def start(self) -> None:
        """Begin to load the model, without waiting; ``warm`` tells how it went."""
        self._thread.submit(self._loaded)

    async def warm(self) -> None:
        """Wait until the model is loaded. Raises EncoderError."""
        if self._model is None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._loaded)

    @property
    def dimension(self) -> int | None:
        """Length of the vectors; None before the model is loaded."""
        return self._model.dimension if self._model else None

    async def encode(self, texts: Sequence[str]) -> Encoded:
        """Encode ``texts``, those not cached in one pass. Raises EncoderError."""
        keys = [self._cache.key(text) for text in texts]
        known = {key: entry for key in keys if (entry := self._cache.get(key)) is not None}
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        num_hits = sum(key in known for key in keys)
        encode_ms = 0.0
        if missing:
            fresh, encode_ms = await self._on_thread(list(missing.values()))
            for key, encoding in zip(missing, fresh, strict=True):
                self._cache.put(key, encoding)
                known[key] = encoding
        return Encoded(tuple(known[key] for key in keys), num_hits, encode_ms)

    def close(self) -> None:
        """End the thread; what waits for it is cancelled."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _on_thread(self, texts: Sequence[str]) -> tuple[list[Encoding], float]:
        stop = threading.Event()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._encode, texts, stop)
        except asyncio.CancelledError:
            stop.set()  # the thread is wanted by others
            raise

    def _encode(self, texts: Sequence[str], stop: threading.Event) -> tuple[list[Encoding], float]:
        model = self._loaded()
        started = time.perf_counter()
        try:
            encodings = model.encode(texts, stop)
        except EncodingStopped as error:
            raise EncoderError("nobody waits for the encodings") from error
        except (RuntimeError, ValueError, IndexError, MemoryError) as error:
            raise EncoderError(f"the encoder failed: {error}") from error
        return encodings, (time.perf_counter() - started) * 1e3

    def _loaded(self) -> EncoderModel:
        """Return the model, loading it once; a failed load is not tried again for a minute."""
        if self._model is not None:
            return self._model
        if self._load_failure is not None and self._clock() - self._load_failure[0] < _RETRY_LOAD_S:
            raise EncoderError(self._load_failure[1])
        try:
            self._model = EncoderModel(
                self.settings.model, self.settings.precision, self.settings.num_threads
            )
        except (ImportError, OSError, ValueError, RuntimeError) as error:
            message = f"encoder {self.settings.model!r} cannot be loaded: {error}"
            self._load_failure = (self._clock(), message)
            raise EncoderError(message) from error
        return self._model
