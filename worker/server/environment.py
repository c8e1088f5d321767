"""What this worker computes with: everything that may change a seeded answer, told in ``/v1/models``."""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from worker.engine.loop import EngineLoop
from worker.protocol import PROTOCOL_VERSION

ENGINE = "narrative-gravity"
SEEDS = "hash(seed, choice, position)"
"""Where the random number of a step comes from; ``worker/decode/randomness.py``."""
PACKAGES = ("torch", "transformers", "tokenizers", "numpy")
_SAMPLES = 16
_SAMPLE_BYTES = 64 * 1024


def environment_of(engine: EngineLoop, model_name: str) -> dict[str, Any]:
    """Return the environment as JSON data. To be made once: it reads from the weights' files."""
    settings = engine.settings
    return {
        "model": model_name,
        "weights": weights_digest(settings.model_path),
        "dtype": engine.dtype,
        "weight_format": engine.weight_format,
        "large_products": engine.large_products_dtype,
        "kernels": engine.kernels,
        "device": _device(),
        "threads": settings.num_threads,
        "engine": ENGINE,
        "versions": {name: version(name) for name in (ENGINE, *PACKAGES)}
        | {"python": platform.python_version()},
        "protocol": PROTOCOL_VERSION,
        "seeds": SEEDS,
        "kv": {
            "dtype": engine.dtype,
            "slots": engine.num_slots,
            "positions": engine.max_context,
            "prefill_chunk": settings.prefill_chunk,
        },
    }


def fingerprint_of(environment: Mapping[str, Any]) -> str:
    """Return OpenAI's ``system_fingerprint``: it changes where anything of the environment does."""
    content = json.dumps(environment, sort_keys=True, separators=(",", ":")).encode()
    return "fp_" + hashlib.blake2b(content, digest_size=6).hexdigest()


def weights_digest(folder: Path) -> str:
    """Return a digest of config and weights: names, sizes, headers, and 1 MiB of each file's content.

    The content is 16 samples, evenly spread, so that a fine-tuned model differs from its base and a large one
    is not read whole. Where the files lie and when they were written does not matter.
    """
    digest = hashlib.blake2b(digest_size=8)
    for path in (folder / "config.json", *sorted(folder.glob("*.safetensors"))):
        num_bytes = path.stat().st_size
        digest.update(f"{path.name}\0{num_bytes}\0".encode())
        with path.open("rb") as file:
            for sample in range(_SAMPLES):
                file.seek(sample * max(0, num_bytes - _SAMPLE_BYTES) // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    return f"blake2b:{digest.hexdigest()}"


def _device() -> str:
    if torch.cuda.is_available():
        return f"cuda {torch.cuda.get_device_name()}"
    return f"cpu {torch.backends.cpu.get_cpu_capability()}"
