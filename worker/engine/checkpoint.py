"""A folder of safetensors, sharded or not."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from worker.engine.architecture import UnsupportedArchitectureError
from worker.trust import shard_names


class Checkpoint:
    """Tensors by name, read one at a time, so that loading never holds the model twice."""

    def __init__(self, folder: Path) -> None:
        self._open_files = ExitStack()
        self._shard_of: dict[str, Any] = {}
        for path in _shards(folder):
            shard = self._open_files.enter_context(safe_open(str(path), framework="pt"))
            self._shard_of.update(dict.fromkeys(shard.keys(), shard))

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self._open_files.close()

    def __contains__(self, name: str) -> bool:
        return name in self._shard_of

    def read(self, name: str) -> Tensor:
        """Return one tensor in the dtype it was saved in.

        Raises UnsupportedArchitectureError where the checkpoint lacks it.
        """
        if name not in self._shard_of:
            raise UnsupportedArchitectureError(f"the checkpoint has no tensor {name!r}")
        tensor: Tensor = self._shard_of[name].get_tensor(name)
        return tensor


def _shards(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        return [folder / name for name in shard_names(index)]
    return [folder / "model.safetensors"]
