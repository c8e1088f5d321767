"""The other encoder: a server that speaks OpenAI's ``POST /v1/embeddings``."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import httpx
import numpy as np
import orjson
from numpy.typing import NDArray

from gateway.addresses import Network
from gateway.context.checked_transport import CheckedTransport
from gateway.context.cooldown import Cooldown
from gateway.context.encoding import Encoding, Vectors
from gateway.context.windows import WINDOW_BYTES, windows
from gateway.errors import EncoderError

MAX_INPUTS = 64
"""Texts in one call; some servers take no more."""
MAX_ANSWER_BYTES = 64 * 2**20
_RETRIED = frozenset({429, 500, 502, 503, 504})
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 2.0
_CONNECT_S = 3.0
_AWAY_S = 5.0
_LARGE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class RemoteSettings:
    """A server's address, without ``/v1``, and what it calls its model."""

    url: str
    model: str
    api_key: str = field(default="", repr=False)
    """Sent as a bearer token, where there is one."""
    timeout_s: float = 10.0
    """For one call."""
    cache_bytes: int = 256 * 2**20
    allowed_networks: tuple[Network, ...] = ()
    """Where it may be although such addresses are out of bounds."""


class RemoteSource:
    """Encodes by asking a server. No redirect is followed and no proxy of the environment used."""

    def __init__(self, settings: RemoteSettings, clock: Callable[[], float]) -> None:
        headers = {"Content-Type": "application/json"}
        if settings.api_key:
            headers["Authorization"] = f"Bearer {settings.api_key}"
        self._timeout_s = settings.timeout_s
        self._model = settings.model
        self._endpoint = f"{settings.url}/v1/embeddings"
        self._client = httpx.AsyncClient(
            headers=headers,
            timeout=httpx.Timeout(None, connect=_CONNECT_S),  # the whole call is timed below
            follow_redirects=False,
            trust_env=False,
            transport=CheckedTransport(settings.allowed_networks),
        )
        self._failure = Cooldown(_AWAY_S, clock)
        self.dimension: int | None = None

    @property
    def fingerprint(self) -> str:
        """Of the address, the model's name there and the window; the server tells no more of itself."""
        identity = f"{self._endpoint} {self._model} {self.dimension} {WINDOW_BYTES}"
        return hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()

    def start(self) -> None:
        """Nothing is loaded here."""

    async def warm(self) -> None:
        """Learn the length of the server's vectors from a first one. Raises EncoderError."""
        if self.dimension is None:
            self.dimension = (await self._vectors(["text"])).shape[1]

    async def encode(self, texts: Sequence[str]) -> tuple[list[Encoding], float]:
        """Encode ``texts``, long ones by their windows. Returns its milliseconds too. Raises EncoderError."""
        await self.warm()
        started = time.perf_counter()
        pieces = await _cut(texts)
        inputs = [piece for each in pieces for piece in each]
        batches = [
            await self._vectors(inputs[start : start + MAX_INPUTS])
            for start in range(0, len(inputs), MAX_INPUTS)
        ]
        rows = np.concatenate(batches) if batches else np.zeros((0, 1), np.float32)
        edges = np.cumsum([len(each) for each in pieces])[:-1]
        encodings = [Encoding.of_parts(parts) for parts in np.split(rows, edges)] if pieces else []
        return encodings, (time.perf_counter() - started) * 1e3

    def close(self) -> None:
        """Connections end with ``aclose``."""

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _vectors(self, inputs: Sequence[str]) -> Vectors:
        """Return the vectors [inputs, d] of one call."""
        if self._failure.reason:
            raise EncoderError(self._failure.reason)
        asked = {"model": self._model, "input": list(inputs), "encoding_format": "base64"}
        answer = await self._answer(orjson.dumps(asked))
        if len(answer) > _LARGE_BYTES:
            rows = await asyncio.to_thread(read_vectors, answer, len(inputs))
        else:
            rows = read_vectors(answer, len(inputs))
        if self.dimension is not None and rows.shape[1] != self.dimension:
            raise EncoderError("the remote encoder's vectors have changed their length")
        return rows

    async def _answer(self, body: bytes) -> bytes:
        """Post ``body``; a server that is busy or away is asked once more, then left alone for a while."""
        try:
            return await self._post(body)
        except _Away as first:
            await asyncio.sleep(first.pause_s)
        try:
            return await self._post(body)
        except _Away as second:
            self._failure.begin(str(second))
            raise

    async def _post(self, body: bytes) -> bytes:
        try:
            async with (
                asyncio.timeout(self._timeout_s),
                self._client.stream("POST", self._endpoint, content=body) as response,
            ):
                if response.status_code != httpx.codes.OK:
                    raise _refusal(response)
                answer = bytearray()
                async for chunk in response.aiter_bytes():
                    answer += chunk
                    if len(answer) > MAX_ANSWER_BYTES:
                        raise EncoderError("the remote encoder's answer is too large")
                return bytes(answer)
        except TimeoutError as error:
            message = "the remote encoder took too long"
            self._failure.begin(message)
            raise EncoderError(message) from error
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise _Away(f"the remote encoder cannot be reached ({type(error).__name__})") from error


async def _cut(texts: Sequence[str]) -> list[list[str]]:
    """Cut each text into what the server can read at once."""
    if sum(map(len, texts)) > _LARGE_BYTES:
        return await asyncio.to_thread(lambda: [windows(text) for text in texts])
    return [windows(text) for text in texts]


class _Away(EncoderError):
    """The server may answer if it is asked again after ``pause_s``."""

    def __init__(self, message: str, pause_s: float = _FIRST_PAUSE_S) -> None:
        super().__init__(message)
        self.pause_s = max(0.0, min(pause_s, _LONGEST_PAUSE_S))


def read_vectors(answer: bytes, num_inputs: int) -> Vectors:
    """Return the vectors [num_inputs, d] of an answer, in the order of ``index`` and of length 1.

    Raises EncoderError where the answer is not exactly that.
    """
    try:
        data = orjson.loads(answer)["data"]
        rows = {entry["index"]: _row(entry["embedding"]) for entry in data}
    except (ValueError, TypeError, KeyError) as error:
        raise EncoderError("the remote encoder's answer is no list of embeddings") from error
    if len(data) != num_inputs or set(rows) != set(range(num_inputs)):
        raise EncoderError(f"the remote encoder answered {len(data)} embeddings for {num_inputs} texts")
    if len({row.shape for row in rows.values()}) != 1:
        raise EncoderError("the remote encoder's vectors differ in length")
    table = np.stack([rows[index] for index in range(num_inputs)])
    with np.errstate(over="ignore"):
        lengths = np.linalg.norm(table, axis=1, keepdims=True)
    if not np.isfinite(lengths).all() or not lengths.all():
        raise EncoderError("the remote encoder's vectors are not finite, or zero")
    vectors: Vectors = (table / lengths).astype(np.float32)
    return vectors


def _row(embedding: object) -> NDArray[np.float64]:
    """Read one embedding, a list of numbers or the base64 of little-endian float32."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), "<f4").astype(np.float64)
    row: NDArray[np.float64] = np.asarray(embedding, np.float64)
    if row.ndim != 1:
        raise ValueError("an embedding is one row of numbers")
    return row


def _refusal(response: httpx.Response) -> EncoderError:
    message = f"the remote encoder answered {response.status_code}"
    if response.status_code not in _RETRIED:
        return EncoderError(message)
    try:
        return _Away(message, float(response.headers.get("retry-after", _FIRST_PAUSE_S)))
    except ValueError:  # a date
        return _Away(message)
