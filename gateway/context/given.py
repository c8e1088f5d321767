"""A request's encodings: the vectors that the client sent where they are the encoder's own, else its."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from gateway.context.embed import Encoder
from gateway.context.encoding import Encoding, Space
from gateway.context.report import Document, Passage

_SAME_SPACE = 0.9


@dataclass(frozen=True, slots=True)
class RequestEncodings:
    """All that one request is judged by, in one space."""

    asked: tuple[Encoding, ...]
    chunks: tuple[Encoding, ...]
    space: Space
    encode_ms: float
    num_cache_hits: int
    note: str
    """Why the embeddings sent are not used; empty where they are, or none were sent."""


async def encode_request(
    encoder: Encoder, asked: Sequence[str], documents: Sequence[Document]
) -> RequestEncodings:
    """Encode the texts ``asked`` and the ``documents`` in one pass. Raises EncoderError.

    An embedding of the right length may come from another model: one of them is encoded here to compare.
    Where it does, a second pass encodes the documents that came with one.
    """
    given, note = _of_right_length(encoder, documents)
    probed = min(given, key=lambda position: len(documents[position].text), default=None)
    probes = [] if probed is None else [text_of(documents[probed]), documents[probed].text]
    own = {position: text_of(each) for position, each in enumerate(documents) if position not in given}
    encoded = await encoder.encode([*asked, *own.values(), *probes])
    encode_ms = encoded.encode_ms
    num_hits = encoded.num_hits(len(asked) + len(own))
    rows = iter(encoded.encodings)
    of_asked = tuple(islice(rows, len(asked)))
    fresh = dict(zip(own, rows, strict=False))  # the probes are left
    if probed is not None and not any(_is_alike(row, given[probed]) for row in rows):
        note = "The embeddings sent are not the encoder's own and were not used."
        encoded = await encoder.encode([text_of(documents[position]) for position in given])
        fresh |= zip(given, encoded.encodings, strict=True)
        encode_ms += encoded.encode_ms
        num_hits += encoded.num_hits()
        given = {}
    chunks = [given[position] if position in given else fresh[position] for position in range(len(documents))]
    space: Space = "vectors" if given and encoder.space == "full" else encoder.space
    if space != "full":
        chunks = [each.without_tokens() for each in chunks]
    return RequestEncodings(of_asked, tuple(chunks), space, encode_ms, num_hits, note)


def text_of(document: Passage) -> str:
    """Return what is encoded of ``document``, and read of it by whatever else judges it."""
    return f"{document.title}. {document.text}" if document.title.strip() else document.text


def _of_right_length(encoder: Encoder, documents: Sequence[Document]) -> tuple[dict[int, Encoding], str]:
    """Return the embeddings sent that may be the encoder's, by position, and a note where none can be."""
    sent = {position: each.embedding for position, each in enumerate(documents) if each.embedding is not None}
    given = {
        position: Encoding.of_vector(embedding)
        for position, embedding in sent.items()
        if len(embedding) == encoder.dimension
    }
    if sent and not given:
        return {}, "The embeddings sent have another length than the encoder's and were not used."
    return given, ""


def _is_alike(probe: Encoding, given: Encoding) -> bool:
    return float(probe.vector @ given.vector) >= _SAME_SPACE
