"""From a folder to a model, a tokenizer and the ids that end a text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from worker.engine.loading import EngineSettings, load_model


@pytest.fixture
def folder(tiny_folder: Path, model_path: Path, tmp_path: Path) -> Path:
    """The tiny Llama with the real tokenizer, as links, so that a test may change one file."""
    for source in (*tiny_folder.iterdir(), *model_path.glob("tokenizer*")):
        (tmp_path / source.name).symlink_to(source)
    return tmp_path


def load_eos_ids(folder: Path) -> frozenset[int]:
    return load_model(EngineSettings(folder, dtype="fp32", max_batch=1, max_context=32)).eos_ids


def change_json(path: Path, **values: object) -> None:
    content = json.loads(path.read_text())
    path.unlink()
    path.write_text(json.dumps({**content, **values}))


def test_a_folder_becomes_a_model_with_its_tokenizer_and_name(folder: Path) -> None:
    loaded = load_model(EngineSettings(folder, dtype="fp32", max_batch=3, max_context=32))
    assert loaded.name == folder.name
    assert (loaded.model.num_slots, loaded.model.max_context) == (3, 32)
    assert loaded.model.dtype == torch.float32
    assert loaded.vocabulary.size == loaded.model.vocab_size
    assert loaded.tokenizer.decode(loaded.tokenizer.encode("a lighthouse")) == "a lighthouse"


def test_every_end_of_sequence_that_any_file_names_ends_a_text(folder: Path) -> None:
    tokenizers_own = load_eos_ids(folder) - {2}
    change_json(folder / "generation_config.json", eos_token_id=[2, 77])
    change_json(folder / "config.json", eos_token_id=78)
    assert load_eos_ids(folder) == tokenizers_own | {2, 77, 78}


def test_a_folder_without_weights_is_an_error_that_names_them(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(OSError, match=r"model\.safetensors"):
        load_model(EngineSettings(folder))


def test_the_output_embedding_is_the_head_where_the_model_has_one(folder: Path, tiny_folder: Path) -> None:
    embedding = load_model(
        EngineSettings(folder, dtype="fp32", max_batch=1, max_context=8)
    ).model.output_embedding
    assert embedding is not None
    torch.testing.assert_close(embedding, load_file(tiny_folder / "model.safetensors")["lm_head.weight"])
