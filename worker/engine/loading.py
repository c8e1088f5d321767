"""Loads a model from a folder into the form that the engine runs, with its tokenizer and vocabulary."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import torch
from transformers import AutoConfig, AutoTokenizer, GenerationConfig

from worker.decode.vocabulary import Vocabulary
from worker.engine.architecture import Architecture
from worker.engine.kv import KVStore
from worker.engine.model import Decoder, LanguageModel, Precision, RotaryTables
from worker.engine.weights import Checkpoint, Placement, PlainLinear, can_prepack, load_weights, packed_linear

Dtype: TypeAlias = Literal["auto", "bf16", "fp32"]


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What an engine is started with."""

    model_path: Path
    dtype: Dtype = "auto"
    """``auto`` is bf16 where the processor multiplies it, else fp32."""
    num_threads: int = 1
    max_batch: int = 32
    """Sequences that run together; each reserves a slot of ``max_context`` positions."""
    max_context: int = 4096
    """Prompt and completion together, in tokens; never above what the model was made for."""
    prefill_chunk: int = 256


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A model ready to run."""

    model: LanguageModel
    tokenizer: Any
    vocabulary: Vocabulary
    eos_ids: frozenset[int]
    name: str


def load_model(settings: EngineSettings) -> LoadedModel:
    """Load a folder of config, tokenizer and safetensors. Raises UnsupportedArchitectureError, OSError."""
    folder = str(settings.model_path)
    config = AutoConfig.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    eos_ids = frozenset(_eos_ids(folder, config, tokenizer))
    model = _load_decoder(settings, Architecture.from_config(config))
    return LoadedModel(
        model=model,
        tokenizer=tokenizer,
        vocabulary=Vocabulary.from_tokenizer(tokenizer, model.vocab_size, eos_ids),
        eos_ids=eos_ids,
        name=settings.model_path.name,
    )


def _load_decoder(settings: EngineSettings, architecture: Architecture) -> Decoder:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = choose_dtype(settings.dtype, device)
    is_packed = device.type == "cpu" and can_prepack(dtype)
    placement = Placement(dtype, dtype, device, packed_linear if is_packed else PlainLinear)
    max_context = min(settings.max_context, architecture.max_positions)
    with Checkpoint(settings.model_path) as checkpoint:
        weights = load_weights(checkpoint, architecture, placement)
    rotary = RotaryTables.of(architecture, max_context).to(dtype, device)
    store = KVStore(architecture, settings.max_batch, max_context, dtype, device)
    return Decoder(architecture, store, Precision(weights, rotary))


def choose_dtype(wanted: Dtype, device: torch.device) -> torch.dtype:
    """Return the dtype to compute in: bf16 on CUDA and on processors that multiply it, else fp32."""
    if wanted == "auto":
        has_bf16 = device.type == "cuda" or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
        return torch.bfloat16 if has_bf16 else torch.float32
    return torch.bfloat16 if wanted == "bf16" else torch.float32


def _eos_ids(folder: str, config: Any, tokenizer: Any) -> Iterable[int]:
    """Yield every id that ends a text: the tokenizer's, the config's, the generation config's."""
    sources = [getattr(tokenizer, "eos_token_id", None), config.eos_token_id]
    if (Path(folder) / "generation_config.json").is_file():
        sources.append(GenerationConfig.from_pretrained(folder).eos_token_id)
    for source in sources:
        if isinstance(source, int):
            yield source
        elif source is not None:
            yield from source
