"""Loads a model from a folder into the form that the engine runs, with its tokenizer and vocabulary."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from worker.decode.vocabulary import Vocabulary
from worker.engine.architecture import Architecture, UnsupportedArchitectureError
from worker.engine.checkpoint import Checkpoint
from worker.engine.hf import TransformersModel
from worker.engine.huge_pages import move_to_huge_pages
from worker.engine.kv import KVBlocks, KVStore
from worker.engine.linear import Packed
from worker.engine.model import Decoder, Embeddings, LanguageModel, Memory, Precision
from worker.engine.native.attention import NativeAttention
from worker.engine.native.kernels import fit
from worker.engine.policy import PolicyName
from worker.engine.precision import (
    Dtype,
    KernelChoice,
    Processor,
    UnsupportedFormatError,
    WeightFormat,
    choose_dtype,
    choose_placements,
    int8_placement,
)
from worker.engine.prefix import BLOCK_TOKENS
from worker.engine.rotary import Rotary
from worker.engine.weights import EMBEDDING, DecoderWeights, Placement, head_name, load_weights
from worker.trust import check_code, check_weights

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What an engine is started with."""

    model_path: Path
    dtype: Dtype = "auto"
    """``auto`` is bf16 where the processor multiplies it, else fp32."""
    num_threads: int = 1
    max_batch: int = 32
    """Requests that run together; each has a slot of ``max_context`` positions."""
    max_context: int = 4096
    """Prompt and completion together, in tokens; never above what the model was made for."""
    prefill_chunk: int = 256
    """Prompt tokens read in one step, beside the requests that decode."""
    policy: PolicyName = "fcfs"
    """Who comes first where not all can run."""
    kv_tokens: int | None = None
    """What all running requests may hold together; by default ``max_batch`` full contexts."""
    prefix_tokens: int = 16_384
    """What is kept of beginnings that others may share; 0 keeps nothing."""
    max_draft: int = 16
    """The most that is drafted for a request in one step; 0 drafts nothing, whatever is asked for."""
    weights: WeightFormat = "full"
    """``int8`` is faster and changes what the model says; ``dtype`` is then that of keys and values."""
    kernels: KernelChoice = "auto"


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run."""

    model: LanguageModel
    tokenizer: Any
    vocabulary: Vocabulary
    eos_ids: frozenset[int]
    name: str


def load_model(settings: EngineSettings) -> LoadedModel:
    """Load a folder of config, tokenizer and safetensors: the Llama family by our decoder, the rest by hf.py.

    Raises UnsupportedArchitectureError where neither can, UnsupportedFormatError where the format of the
    weights is not to be had, OSError where files are missing, ModelRefusedError where code that came with the
    model would have to run.
    """
    check_weights(settings.model_path)
    check_code(settings.model_path)
    folder = str(settings.model_path)
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    eos_ids = frozenset(_eos_ids(folder, config, tokenizer))
    model = load_language_model(settings, config)
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        vocabulary=Vocabulary.from_tokenizer(tokenizer, model.vocab_size, eos_ids),
        eos_ids=eos_ids,
        name=settings.model_path.name,
    )


def load_language_model(settings: EngineSettings, config: Any) -> LanguageModel:
    """Load the weights alone. Raises UnsupportedArchitectureError, UnsupportedFormatError, OSError."""
    processor = Processor.best()
    try:
        architecture = Architecture.from_config(config)
    except UnsupportedArchitectureError as reason:
        if settings.weights != "full":
            raise UnsupportedFormatError(f"int8 weights are for the Llama family: {reason}") from reason
        log.warning("served through transformers, which is slower: %s", reason)
        dtype = choose_dtype(settings.dtype, replace(processor, has_native_kernels=False))
        return TransformersModel.load(settings.model_path, settings.max_batch, settings.max_context, dtype)
    return _load_decoder(settings, architecture, processor)


def _load_decoder(settings: EngineSettings, architecture: Architecture, processor: Processor) -> Decoder:
    is_wanted = settings.kernels == "auto" and fit(architecture)
    processor = replace(processor, has_native_kernels=processor.has_native_kernels and is_wanted)
    dtype = choose_dtype(settings.dtype, processor)
    max_context = min(settings.max_context, architecture.max_positions)
    with Checkpoint(settings.model_path) as checkpoint:

        def load(placement: Placement) -> Precision:
            table = Rotary.table(architecture, max_context, placement.dtype, placement.device)
            return Precision(load_weights(checkpoint, architecture, placement), table)

        placement, wide_placement = (
            (int8_placement(dtype, processor, architecture), None)
            if settings.weights == "int8"
            else choose_placements(dtype, processor, architecture)
        )
        narrow = load(placement)
        _use_huge_pages(narrow.weights)
        slots = KVStore(architecture, settings.max_batch, max_context, dtype, processor.device)
        return Decoder(
            architecture,
            Memory(slots, KVBlocks(slots, settings.prefix_tokens // BLOCK_TOKENS, BLOCK_TOKENS)),
            _embeddings(checkpoint, architecture, placement, dtype),
            narrow,
            None if wide_placement is None else load(wide_placement),
            attention=NativeAttention(architecture, slots) if placement.kernels == "native" else None,
            kernels=placement.kernels,
        )


def _embeddings(
    checkpoint: Checkpoint, architecture: Architecture, placement: Placement, dtype: torch.dtype
) -> Embeddings:
    name = f"{head_name(checkpoint, architecture)}.weight"
    read = checkpoint.read(EMBEDDING)
    if placement.rotation is not None:
        return Embeddings(placement.rotation.rotate(read).to(dtype), checkpoint.read(name).to(dtype))
    embedding = placement.place(read)
    if name == EMBEDDING and embedding.device.type == "cpu":
        return Embeddings(embedding, embedding)
    return Embeddings(embedding, checkpoint.read(name).to(placement.rounded_to))


_MAX_MOVED_BYTES = 512 << 20
"""Moving costs 3 ms a MiB, so beyond this the start would be slower than the steps are worth."""


def _use_huge_pages(weights: DecoderWeights) -> None:
    packed = [linear.memory for linear in weights.projections() if isinstance(linear, Packed)]
    if sum(memory.num_bytes for memory in packed) <= _MAX_MOVED_BYTES:
        log.debug("weights lie on %d huge pages", move_to_huge_pages(packed))


def _eos_ids(folder: str, config: Any, tokenizer: Any) -> Iterable[int]:
    """Yield every id that ends a text: the tokenizer's, the config's, the generation config's."""
    sources = [tokenizer.eos_token_id, config.eos_token_id]
    if (Path(folder) / "generation_config.json").is_file():
        sources.append(GenerationConfig.from_pretrained(folder).eos_token_id)
    for source in sources:
        if isinstance(source, int):
            yield source
        elif source is not None:
            yield from source
