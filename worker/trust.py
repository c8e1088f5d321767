"""What of a model's folder may be read: data alone, neither pickles nor Python of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl", "*.pickle", "*.h5", "*.msgpack")


class ModelRefusedError(Exception):
    """The model could be read only by running code that came with it; the message says what to do instead."""


def check_weights(folder: Path) -> None:
    """Raise ModelRefusedError where a folder has weights but none as safetensors."""
    if any(folder.glob("*.safetensors")):
        return
    pickled = sorted(path.name for pattern in PICKLED for path in folder.glob(pattern))
    if pickled:
        raise ModelRefusedError(
            f"{folder.name} has its weights in {pickled[0]} and not as safetensors; such files can run code "
            "when they are read. Use a copy with model.safetensors, or convert it where it can do no harm."
        )


def check_code(folder: Path) -> None:
    """Raise ModelRefusedError where config or tokenizer need Python that lies beside them."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    config = _read(folder / "config.json")
    if config.get("auto_map") and config.get("model_type") not in CONFIG_MAPPING_NAMES:
        raise ModelRefusedError(
            f"{folder.name} is of a type that transformers knows only by code in its folder (auto_map in "
            "config.json), and such code is not run: trust_remote_code is off. Use a model that needs none."
        )


def shard_names(index: Path) -> list[str]:
    """Return the files that an index names, each once and in order.

    Raises ModelRefusedError for one that is not a safetensors file in the index's own folder.
    """
    names = sorted(set(_read(index).get("weight_map", {}).values()))
    for name in names:
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise ModelRefusedError(f"{index.name} names what is no safetensors file beside it")
    return names


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    content = json.loads(path.read_text())
    return content if isinstance(content, dict) else {}
