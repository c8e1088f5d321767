"""The engine's tiny model, for benchmarks that are stepped in this process."""

from __future__ import annotations

from tests.worker.engine.conftest import load_model_folder, load_tiny, save_model, tiny_folder

__all__ = ["load_model_folder", "load_tiny", "save_model", "tiny_folder"]
