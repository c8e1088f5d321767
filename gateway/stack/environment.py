"""What the environment says about the processes that a command starts or talks to."""

from __future__ import annotations

import os
from pathlib import Path

import gateway
from gateway.errors import ConfigError, StackError
from gateway.settings import GatewaySettings
from gateway.stack.ports import VALKEY_PORT, valkey_url
from gateway.store.watch import ConfigStore


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
    """Return the settings that worker and gateway get beside ports and URLs.

    Raises StackError where the configuration is broken, before any process is started with it.
    """
    folder = config or config_folder()
    try:
        ConfigStore.open(folder)
    except ConfigError as error:
        raise StackError(f"the configuration in {folder} is invalid: {described(error)}") from error
    environment = {"NG_CONFIG_DIR": str(folder)}
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


def described(error: ConfigError) -> str:
    """File, line and message, as far as they are known."""
    place = ":".join(str(part) for part in (error.file, error.line) if part)
    return f"{place}: {error.message}" if place else error.message
