"""Our decoder against transformers: every variant of the family, random weights, float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, MistralConfig, Phi3Config, PreTrainedConfig, Qwen2Config, Qwen3Config

from worker.engine.architecture import Architecture, UnsupportedArchitectureError
from worker.engine.batch import Piece
from worker.engine.model import Decoder

if TYPE_CHECKING:
    from tests.worker.engine.conftest import LoadModelFolder, SaveModel

TINY: dict[str, Any] = {
    "vocab_size": 131,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 96,
    "initializer_range": 0.3,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
LINEAR_ROPE = {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 2.0}

VARIANTS: dict[str, PreTrainedConfig] = {
    "llama, three queries a key": LlamaConfig(**TINY),
    "llama, one key for all queries": LlamaConfig(**{**TINY, "num_key_value_heads": 1}),
    "llama, a key a query": LlamaConfig(**{**TINY, "num_key_value_heads": 6}),
    "llama, tied head": LlamaConfig(**TINY, tie_word_embeddings=True),
    "llama, biases everywhere": LlamaConfig(**TINY, attention_bias=True, mlp_bias=True),
    "llama, heads wider than hidden / heads": LlamaConfig(**TINY, head_dim=16),
    "llama, llama3 rope": LlamaConfig(**TINY, rope_parameters=LLAMA3_ROPE),
    "llama, linear rope": LlamaConfig(**TINY, rope_parameters=LINEAR_ROPE),
    "mistral": MistralConfig(**TINY, sliding_window=None),
    "qwen2, biases on queries, keys, values": Qwen2Config(**TINY),
    "qwen2, tied head": Qwen2Config(**TINY, tie_word_embeddings=True),
    "qwen3, norms on queries and keys": Qwen3Config(**TINY, head_dim=16),
    "qwen3, biases too": Qwen3Config(**TINY, head_dim=8, attention_bias=True),
}


def random_ids(length: int, seed: int = 0) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(torch.randint(0, TINY["vocab_size"], (length,), generator=generator).tolist())


def expected_logits(reference: Any, ids: tuple[int, ...]) -> torch.Tensor:
    with torch.inference_mode():
        logits: torch.Tensor = reference(torch.tensor([ids])).logits[0]
    return logits


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_of_a_ragged_batch_equal_transformers(
    name: str, save_model: SaveModel, load_model_folder: LoadModelFolder
) -> None:
    folder, reference = save_model(VARIANTS[name])
    model = load_model_folder(folder, max_batch=4, max_context=64)
    assert isinstance(model, Decoder)
    long, short, late = random_ids(40, 1), random_ids(9, 2), random_ids(25, 3)

    # A whole prompt and the first chunk of another, in one pass.
    first = model.forward([Piece(0, 0, short[:8], 1), Piece(2, 0, long[:17], 0)])
    # A decoding row beside a later chunk and a prompt that has just joined.
    second = model.forward(
        [Piece(0, 8, short[8:], 1), Piece(2, 17, long[17:39], 1), Piece(1, 0, late[:24], 1)]
    )
    # Decoding rows only, at three lengths in adjacent slots.
    third = model.forward([Piece(1, 24, late[24:], 1), Piece(2, 39, long[39:], 1)])

    for_short, for_long, for_late = (expected_logits(reference, ids) for ids in (short, long, late))
    expected = [for_short[7], for_short[8], for_long[38], for_late[23], for_late[24], for_long[39]]
    torch.testing.assert_close(torch.cat([first, second, third]), torch.stack(expected), rtol=1e-4, atol=1e-4)


def test_a_draft_is_judged_position_by_position_and_what_was_wrong_is_forgotten(
    save_model: SaveModel, load_model_folder: LoadModelFolder
) -> None:
    folder, reference = save_model(VARIANTS["llama, three queries a key"])
    model = load_model_folder(folder, max_batch=2, max_context=64)
    assert model.can_rewind
    ids, wrong = random_ids(12, 1), random_ids(4, 2)
    model.forward([Piece(0, 0, ids[:6], 0)])
    # A draft of four, of which one is right; then the text goes on from there.
    drafted = model.forward([Piece(0, 6, (ids[6], *wrong), 5)])
    resumed = model.forward([Piece(0, 7, ids[7:], 5)])
    judged = expected_logits(reference, (*ids[:7], *wrong))[6:]
    torch.testing.assert_close(drafted, judged, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(resumed, expected_logits(reference, ids)[7:], rtol=1e-4, atol=1e-4)


def test_sharded_safetensors_are_read_as_one(
    save_model: SaveModel, load_model_folder: LoadModelFolder
) -> None:
    folder, reference = save_model(LlamaConfig(**TINY), max_shard_size="40KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    logits = load_model_folder(folder, max_batch=1).forward([Piece(0, 0, random_ids(7), 1)])
    torch.testing.assert_close(logits[0], expected_logits(reference, random_ids(7))[-1], rtol=1e-4, atol=1e-4)


def test_a_tensor_that_a_checkpoint_lacks_is_named(
    save_model: SaveModel, load_model_folder: LoadModelFolder
) -> None:
    folder, _ = save_model(LlamaConfig(**TINY))
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UnsupportedArchitectureError, match=r"model\.layers\.1\.mlp\.up_proj\.weight"):
        load_model_folder(folder)


def test_the_context_ends_where_the_model_was_made_to_end(
    save_model: SaveModel, load_model_folder: LoadModelFolder
) -> None:
    whole, _ = save_model(LlamaConfig(**TINY))
    windowed, _ = save_model(MistralConfig(**TINY, sliding_window=24))
    assert load_model_folder(whole, max_context=4096).max_context == 96
    assert load_model_folder(whole, max_context=50).max_context == 50
    # Inside its window, sliding attention is full attention; our decoder goes no further.
    assert load_model_folder(windowed, max_context=4096).max_context == 24


def test_full_use_of_a_sliding_window_equals_transformers(
    save_model: SaveModel, load_model_folder: LoadModelFolder
) -> None:
    folder, reference = save_model(MistralConfig(**TINY, sliding_window=24))
    ids = random_ids(24)
    logits = load_model_folder(folder, max_context=4096).forward([Piece(0, 0, ids, 1)])
    torch.testing.assert_close(logits[0], expected_logits(reference, ids)[-1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (Phi3Config(**TINY, pad_token_id=0), "model type 'phi3'"),
        (LlamaConfig(**TINY, hidden_act="gelu"), "activation 'gelu'"),
        (LlamaConfig(**TINY, quantization_config={"quant_method": "gptq", "bits": 4}), "quantised"),
        (
            LlamaConfig(
                **TINY, rope_parameters={"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0}
            ),
            "rope type 'dynamic'",
        ),
    ],
)
def test_what_the_decoder_lacks_is_named(config: PreTrainedConfig, reason: str) -> None:
    with pytest.raises(UnsupportedArchitectureError, match=reason):
        Architecture.from_config(config)
