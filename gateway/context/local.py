"""The encoder of this process: on its own thread, so that the event loop never waits for it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from gateway.context.cooldown import Cooldown
from gateway.context.encoding import EncoderModel, Encoding, EncodingStopped, Precision
from gateway.errors import EncoderError

_RETRY_LOAD_S = 60.0


class LocalSource:
    """A model that is loaded and run on one thread."""

    def __init__(
        self, model: str, precision: Precision, num_threads: int, clock: Callable[[], float]
    ) -> None:
        self._source = model
        self._precision = precision
        self._num_threads = num_threads
        self._failure = Cooldown(_RETRY_LOAD_S, clock)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="encoder")
        self._model: EncoderModel | None = None

    def start(self) -> None:
        """Begin to load the model, without waiting; ``warm`` tells how it went."""
        self._thread.submit(self._loaded)

    async def warm(self) -> None:
        """Wait until the model is loaded. Raises EncoderError."""
        if self._model is None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._loaded)

    @property
    def dimension(self) -> int | None:
        return self._model.dimension if self._model else None

    @property
    def fingerprint(self) -> str:
        """Of the weights themselves, wherever they were read from; empty before they are."""
        return self._model.fingerprint if self._model else ""

    async def encode(self, texts: Sequence[str]) -> tuple[list[Encoding], float]:
        """Encode all ``texts`` in one pass. Returns its milliseconds as well. Raises EncoderError."""
        stop = threading.Event()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._encode, texts, stop)
        except asyncio.CancelledError:
            stop.set()  # the thread is wanted by others
            raise

    def close(self) -> None:
        """End the thread; what waits for it is cancelled."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def aclose(self) -> None:
        self.close()

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
        if self._failure.reason:
            raise EncoderError(self._failure.reason)
        try:
            self._model = EncoderModel(self._source, self._precision, self._num_threads)
        except (ImportError, OSError, ValueError, RuntimeError) as error:
            message = f"encoder {self._source!r} cannot be loaded: {error}"
            self._failure.begin(message)
            raise EncoderError(message) from error
        return self._model
