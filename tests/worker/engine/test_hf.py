"""Models outside the Llama family, run by transformers behind the same interface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from transformers import (
    BloomConfig,
    Gemma3TextConfig,
    GPT2Config,
    GPTNeoXConfig,
    MambaConfig,
    OpenAIGPTConfig,
    Phi3Config,
    PreTrainedConfig,
    T5Config,
    T5ForConditionalGeneration,
)

from worker.engine.architecture import UnsupportedArchitectureError
from worker.engine.hf import TransformersModel

if TYPE_CHECKING:
    from pathlib import Path

    from tests.worker.engine.conftest import LoadModelFolder, MakeRequest, SaveModel, StartEngine
    from worker.decode.vocabulary import Vocabulary

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "initializer_range": 0.3}
MLP = {"intermediate_size": 64, "max_position_embeddings": 64}

CONFIGS: dict[str, PreTrainedConfig] = {
    "gpt2": GPT2Config(n_embd=32, n_layer=2, n_head=4, n_positions=64, initializer_range=0.3),
    "phi3": Phi3Config(**SMALL, **MLP, pad_token_id=0, eos_token_id=2),
    "gpt_neox": GPTNeoXConfig(**SMALL, **MLP),
    "bloom": BloomConfig(hidden_size=32, n_layer=2, n_head=4, initializer_range=0.3),
    # Every other layer attends to the last eight positions only.
    "gemma3": Gemma3TextConfig(
        **SMALL,
        **MLP,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=8,
        layer_types=["sliding_attention", "full_attention"],
    ),
    # A recurrent state in place of keys and values.
    "mamba": MambaConfig(hidden_size=16, num_hidden_layers=2, state_size=4, initializer_range=0.3),
}
NUM_TOKENS = 10


@pytest.mark.parametrize("name", CONFIGS)
def test_greedy_tokens_equal_generate(
    name: str,
    save_model: SaveModel,
    load_model_folder: LoadModelFolder,
    start_engine: StartEngine,
    make_request: MakeRequest,
    vocabulary: Vocabulary,
) -> None:
    config = CONFIGS[name]
    config.vocab_size = vocabulary.size
    folder, reference = save_model(config)
    model = load_model_folder(folder, max_batch=2, max_context=64)
    assert isinstance(model, TransformersModel)
    prompts = {"a": (5, 6, 7, 8, 9, 10, 11), "b": (21, 22), "c": tuple(range(300, 320))}

    running = start_engine(model, prefill_chunk=6)
    running.submit(*(make_request(key, ids, NUM_TOKENS) for key, ids in prompts.items()))
    running.run()

    assert not running.failures()
    for key, ids in prompts.items():
        assert running.tokens(key) == greedy(reference, ids), key


def greedy(reference: Any, ids: tuple[int, ...]) -> list[int]:
    with torch.inference_mode():
        output = reference.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            max_new_tokens=NUM_TOKENS,
            min_new_tokens=NUM_TOKENS,
            do_sample=False,
            pad_token_id=0,
        )
    tokens: list[int] = output[0, len(ids) :].tolist()
    return tokens


def test_the_context_is_the_models_where_it_says_one(
    save_model: SaveModel, load_model_folder: LoadModelFolder
) -> None:
    gpt2, _ = save_model(CONFIGS["gpt2"])
    bloom, _ = save_model(CONFIGS["bloom"])
    assert load_model_folder(gpt2, max_context=4096).max_context == 64
    assert load_model_folder(bloom, max_context=4096).max_context == 4096


def test_the_output_embedding_is_shown(save_model: SaveModel, load_model_folder: LoadModelFolder) -> None:
    folder, reference = save_model(CONFIGS["gpt2"])
    embedding = load_model_folder(folder).output_embedding
    assert embedding is not None
    torch.testing.assert_close(embedding, reference.lm_head.weight.detach())


def test_a_model_that_keeps_no_past_is_refused(
    save_model: SaveModel, load_model_folder: LoadModelFolder
) -> None:
    folder, _ = save_model(
        OpenAIGPTConfig(vocab_size=50, n_embd=32, n_layer=2, n_head=4, initializer_range=0.3)
    )
    with pytest.raises(UnsupportedArchitectureError, match=r"OpenAIGPT.*cache"):
        load_model_folder(folder)


def test_a_model_that_is_no_causal_decoder_is_refused(
    tmp_path: Path, load_model_folder: LoadModelFolder
) -> None:
    config = T5Config(vocab_size=50, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
    T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    with pytest.raises(UnsupportedArchitectureError, match="T5"):
        load_model_folder(tmp_path)
