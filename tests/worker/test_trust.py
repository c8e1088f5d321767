"""Models that would run code when they are read are refused, with what to do instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from worker.engine.checkpoint import Checkpoint
from worker.engine.loading import EngineSettings, load_model
from worker.server.process import serve
from worker.settings import WorkerSettings
from worker.trust import ModelRefusedError

BOOM = "import pathlib; pathlib.Path({!r}).write_text('ran')"


@pytest.fixture
def folder(model_path: Path, tmp_path: Path) -> Path:
    """The small model's config and tokenizer, without weights."""
    copy = tmp_path / "some-model"
    copy.mkdir()
    for path in model_path.iterdir():
        if path.suffix != ".safetensors":
            (copy / path.name).write_bytes(path.read_bytes())
    return copy


@pytest.fixture
def witness(tmp_path: Path) -> Path:
    """A file that code of the model would write."""
    return tmp_path / "witness"


class Boom:
    def __init__(self, witness: Path) -> None:
        self._witness = witness

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return exec, (BOOM.format(str(self._witness)),)


def test_a_pickled_checkpoint_is_refused_unread(folder: Path, witness: Path) -> None:
    torch.save({"weight": Boom(witness)}, folder / "pytorch_model.bin")
    with pytest.raises(ModelRefusedError, match=r"pytorch_model\.bin and not as safetensors"):
        load_model(EngineSettings(folder))
    assert not witness.exists()


def test_a_model_that_needs_code_of_its_own_is_refused_unread(folder: Path, witness: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "made-up", "auto_map": {"AutoConfig": "theirs.Config"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "theirs.py").write_text(BOOM.format(str(witness)))
    with pytest.raises(ModelRefusedError, match="trust_remote_code is off"):
        load_model(EngineSettings(folder))
    assert not witness.exists()


@pytest.mark.parametrize("name", ["../elsewhere.safetensors", "/etc/passwd", "pytorch_model-00001.bin"])
def test_an_index_names_safetensors_beside_it_alone(tmp_path: Path, name: str) -> None:
    index = {"weight_map": {"model.embed_tokens.weight": name}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelRefusedError, match="no safetensors file beside it"):
        Checkpoint(tmp_path)


def test_a_worker_says_why_it_does_not_start(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    torch.save({}, folder / "pytorch_model.bin")
    assert serve(WorkerSettings(threads=1), folder) == 2
    assert "convert it" in caplog.text
