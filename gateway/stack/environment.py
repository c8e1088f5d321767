"""What the environment says about the processes that a command starts or talks to."""

from __future__ import annotations

import os
from pathlib import Path

import gateway
from gateway.settings import GatewaySettings
from gateway.stack.ports import VALKEY_PORT, valkey_url


def configured_redis_url() -> str | None:
    """Return NG_REDIS_URL (or what NG_REDIS_URL_FILE holds); None where neither is set."""
    settings = GatewaySettings()
    if "redis_url" not in settings.model_fields_set:
        return None
    return settings.redis_url.get_secret_value()


def redis_to_read() -> str:
    """Return where recorded turns are looked for: the configured Redis, else what ``gravity up`` starts."""
    return configured_redis_url() or valkey_url(VALKEY_PORT)


def child_environment(config: Path | None = None, model: str | None = None) -> dict[str, str]:
    """Return the settings that worker and gateway get beside ports and URLs."""
    environment = {"NG_CONFIG_DIR": str(config or config_folder())}
    if model is not None:
        environment["NG_WORKER_MODEL"] = model
    return environment


def config_folder() -> Path:
    """Return NG_CONFIG_DIR, else ``configs`` here, else the one beside the source tree."""
    if explicit := os.environ.get("NG_CONFIG_DIR"):
        return Path(explicit)
    here = Path("configs")
    if here.is_dir():
        return here.resolve()
    return Path(gateway.__file__).resolve().parent.parent / "configs"
