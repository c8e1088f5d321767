"""Whether the kernels are there, and what serves where they are not."""

from __future__ import annotations

import os
import shutil
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from worker.engine.architecture import Architecture
from worker.engine.native import kernels
from worker.engine.native.kernels import fit, native_kernels

if TYPE_CHECKING:
    from tests.worker.engine.conftest import LoadModelFolder


def test_they_are_there_where_they_can_be_compiled_and_run() -> None:
    compilers = (os.environ.get("CC", "cc").split()[0], "gcc", "clang")
    can_compile = any(shutil.which(compiler) for compiler in compilers)
    can_run = bool(torch.cpu.get_capabilities().get("avx512_f"))
    assert can_run or native_kernels() is None
    if can_compile and can_run:
        assert native_kernels() is not None, "compiling them failed: pip install --verbose --editable ."


def test_without_them_the_model_is_loaded_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tiny_folder: Path, load_model_folder: LoadModelFolder
) -> None:
    native_kernels.cache_clear()
    monkeypatch.setattr(kernels, "find_spec", lambda name: None)
    try:
        assert native_kernels() is None
        model = load_model_folder(tiny_folder, dtype="bf16", max_batch=1, max_context=32)
        assert model.kernels in ("onednn", "torch")
    finally:
        native_kernels.cache_clear()


def test_a_library_for_another_machine_is_told_and_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    library = tmp_path / "_kernels.so"
    library.write_bytes(b"\x7fELF of another machine")
    native_kernels.cache_clear()
    monkeypatch.setattr(kernels, "find_spec", lambda name: ModuleSpec(name, None, origin=str(library)))
    try:
        assert native_kernels() is None
        assert "cannot be loaded" in caplog.text
    finally:
        native_kernels.cache_clear()


def test_they_take_models_whose_sizes_fit() -> None:
    def architecture(**sizes: int) -> Architecture:
        usual = {
            "hidden_size": 576,
            "intermediate_size": 1536,
            "num_heads": 9,
            "num_kv_heads": 3,
            "head_dim": 64,
        }
        return Architecture(
            vocab_size=10,
            num_layers=1,
            norm_eps=1e-5,
            has_tied_head=True,
            max_positions=64,
            rotary={},
            **(usual | sizes),
        )

    assert fit(architecture())
    assert fit(architecture(head_dim=128, num_heads=32, num_kv_heads=8))
    unfit: list[dict[str, int]] = [
        {"num_kv_heads": 2},
        {"head_dim": 80},
        {"head_dim": 160},
        {"num_heads": 97, "num_kv_heads": 1},
        {"hidden_size": 578},
        {"intermediate_size": 1520},
        {"intermediate_size": 65_568},
    ]
    assert [sizes for sizes in unfit if fit(architecture(**sizes))] == []
