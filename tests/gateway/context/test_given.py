"""A request's encodings: one pass of the encoder, whatever the client sent along."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np
import pytest

from gateway.context.embed import Encoder
from gateway.context.given import encode_request, text_of
from gateway.context.remote import RemoteSettings
from gateway.context.report import Document
from tests.servers.embeddings import SERVED_MODEL, EmbeddingServer

Documents = tuple[Document, ...]


@pytest.fixture
async def encoder(embedding_server: EmbeddingServer) -> AsyncIterator[Encoder]:
    encoder = Encoder(RemoteSettings(embedding_server.url, SERVED_MODEL, cache_bytes=0))
    await encoder.warm()
    embedding_server.received.clear()
    yield encoder
    await encoder.aclose()


async def with_embeddings(encoder: Encoder, documents: Documents, *positions: int) -> Documents:
    encoded = await encoder.encode([text_of(document) for document in documents])
    return tuple(
        replace(document, embedding=tuple(encoding.vector.tolist())) if index in positions else document
        for index, (document, encoding) in enumerate(zip(documents, encoded.encodings, strict=True))
    )


async def test_question_history_and_documents_are_one_pass(
    encoder: Encoder, embedding_server: EmbeddingServer, question: str, observatory: Documents
) -> None:
    encoded = await encode_request(encoder, [question, "an earlier one"], observatory)
    [call] = embedding_server.received
    assert call.inputs == [question, "an earlier one", *map(text_of, observatory)]
    assert (len(encoded.asked), len(encoded.chunks)) == (2, len(observatory))
    assert encoded.space == "foreign"
    assert encoded.note == ""


async def test_of_what_came_with_an_embedding_only_the_probe_is_encoded(
    encoder: Encoder, embedding_server: EmbeddingServer, question: str, observatory: Documents
) -> None:
    plain = await encode_request(encoder, [question], observatory)
    sent = await with_embeddings(encoder, observatory, 0, 1, 3)
    embedding_server.received.clear()
    encoded = await encode_request(encoder, [question], sent)
    [call] = embedding_server.received
    own = [text_of(document) for index, document in enumerate(observatory) if index not in (0, 1, 3)]
    probe = observatory[0]  # the shortest of the three
    assert call.inputs == [question, *own, text_of(probe), probe.text]
    assert encoded.note == ""
    for one, other in zip(encoded.chunks, plain.chunks, strict=True):
        assert one.vector == pytest.approx(other.vector, abs=1e-5)


async def test_embeddings_of_another_model_cost_a_second_pass_and_are_left(
    encoder: Encoder, embedding_server: EmbeddingServer, question: str, observatory: Documents
) -> None:
    foreign = tuple(np.random.default_rng(1).standard_normal(384).tolist())
    sent = (replace(observatory[0], embedding=foreign), *observatory[1:])
    encoded = await encode_request(encoder, [question], sent)
    assert "not the encoder's own" in encoded.note
    assert [len(call.inputs) for call in embedding_server.received] == [10, 1]
    assert encoded.chunks[0].vector == pytest.approx(
        (await encoder.encode([text_of(observatory[0])])).encodings[0].vector, abs=1e-5
    )


async def test_embeddings_of_another_length_are_not_even_tried(
    encoder: Encoder, embedding_server: EmbeddingServer, question: str, observatory: Documents
) -> None:
    sent = tuple(replace(document, embedding=(1.0, 0.0)) for document in observatory)
    encoded = await encode_request(encoder, [question], sent)
    assert "another length" in encoded.note
    assert [len(call.inputs) for call in embedding_server.received] == [9]
