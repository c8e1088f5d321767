"""What is measured: the gateway and other proxies, each a process in front of the same upstream."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from gateway.bench.environments import Package
from gateway.bench.upstream import MODEL
from gateway.stack.child import Command
from gateway.stack.ports import LOOPBACK, free_port

GATEWAY, LITELLM, VLLM_ROUTER = "gateway", "litellm", "vllm-router"
PACKAGES = (
    Package(LITELLM, "litellm[proxy]", "bin/litellm"),
    Package(VLLM_ROUTER, "vllm-router", "bin/vllm-router"),
)
_TASK = """\
task_type: default
description: Measures the gateway alone.
gravity_strength: 0
context:
  pruning: false
"""
_LITELLM = """\
model_list:
  - model_name: {model}
    litellm_params: {{model: openai/{model}, api_base: "{upstream}/v1", api_key: none}}
litellm_settings: {{telemetry: false, num_retries: 0}}
"""


@dataclass(frozen=True, slots=True)
class Target:
    """A proxy to start, and where it will listen."""

    name: str
    command: Command
    port: int


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every target is given: the upstream, the gateway's Redis, a folder for what it has to read."""

    upstream_url: str
    redis_url: str
    folder: Path


def gateway_target(around: Surroundings) -> Target:
    """Return our gateway as it comes, with pruning off and the encoder not loaded."""
    configs = around.folder / "configs"
    (configs / "tasks").mkdir(parents=True)
    (configs / "tasks" / "default.yaml").write_text(_TASK)
    port = free_port()
    environment = {
        "NG_HOST": LOOPBACK,
        "NG_PORT": str(port),
        "NG_WORKERS": around.upstream_url,
        "NG_REDIS_URL": around.redis_url,
        "NG_CONFIG_DIR": str(configs),
        "NG_CONFIG_STORE": "files",
        "NG_PRELOAD_ENCODER": "false",
    }
    return Target(GATEWAY, Command(GATEWAY, (sys.executable, "-m", "gateway"), environment), port)


def litellm_target(python: Path, around: Surroundings) -> Target:
    """Return LiteLLM's proxy with one model and nothing else: no database, no callbacks, one process."""
    port = free_port()
    config = around.folder / "litellm.yaml"
    config.write_text(_LITELLM.format(model=MODEL, upstream=around.upstream_url))
    options = ("--config", str(config), "--host", LOOPBACK, "--port", str(port), "--num_workers", "1")
    environment = {
        "LITELLM_LOG": "ERROR",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # on loopback, and cheaper for it
    }
    return Target(LITELLM, Command(LITELLM, (_program(python, "litellm"), *options), environment), port)


def vllm_router_target(python: Path, around: Surroundings) -> Target:
    """Return vLLM's router, a program in Rust that passes bodies on."""
    port = free_port()
    options = ("--worker-urls", around.upstream_url, "--host", LOOPBACK, "--port", str(port))
    more = ("--policy", "round_robin", "--prometheus-port", str(free_port()), "--log-level", "error")
    return Target(VLLM_ROUTER, Command(VLLM_ROUTER, (_program(python, VLLM_ROUTER), *options, *more)), port)


def _program(python: Path, name: str) -> str:
    # Not resolved: a virtual environment's interpreter is a link out of it.
    return os.fspath(python.absolute().parent / name)
