"""What the worker says that it computes with."""

from __future__ import annotations

import platform
import shutil
from pathlib import Path

import httpx
import numpy
import tokenizers
import torch
import transformers

from worker.server.environment import fingerprint_of, weights_digest


def test_the_worker_tells_its_environment(client: httpx.Client, model_name: str, model_path: Path) -> None:
    [model] = client.get("/v1/models").json()["data"]
    environment = model["gravity"]["environment"]
    assert environment["versions"] == environment["versions"] | {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "tokenizers": tokenizers.__version__,
        "numpy": numpy.__version__,
        "python": platform.python_version(),
    }
    assert environment["weights"] == weights_digest(model_path)
    expected = {"model": model_name, "dtype": "fp32", "large_products": "fp32", "threads": 1, "protocol": 1}
    assert environment.items() >= expected.items()
    assert environment["kernels"] == "torch"  # in fp32
    assert environment["weight_format"] == model["gravity"]["weight_format"] == "full"
    # As the fixture's environment variables say.
    assert environment["kv"] == {"dtype": "fp32", "slots": 32, "positions": 1024, "prefill_chunk": 32}
    assert environment["seeds"] == "hash(seed, choice, position)"


def test_the_system_fingerprint_follows_from_the_environment(client: httpx.Client, model_name: str) -> None:
    [model] = client.get("/v1/models").json()["data"]
    body = {"model": model_name, "prompt": "One", "max_tokens": 1}
    answer = client.post("/v1/completions", json=body).json()
    environment = model["gravity"]["environment"]
    assert answer["system_fingerprint"] == fingerprint_of(environment)
    assert fingerprint_of(environment | {"dtype": "bf16"}) != fingerprint_of(environment)
    assert fingerprint_of(dict(reversed(environment.items()))) == fingerprint_of(environment)


def test_the_digest_is_of_the_content_not_of_where_it_lies(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    weights = bytearray(3_000_000)
    (model / "model.safetensors").write_bytes(weights)
    copy = shutil.copytree(model, tmp_path / "copy")
    assert weights_digest(copy) == weights_digest(model)
    weights[-1] = 1  # the last byte is looked at, as the first is
    (copy / "model.safetensors").write_bytes(weights)
    assert weights_digest(copy) != weights_digest(model)
    (model / "config.json").write_text('{"a": 1}')
    changed = weights_digest(model)
    assert len({changed, weights_digest(copy)}) == 2
