"""Secrets: every one may lie in a file, and none shows anywhere."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from pydantic import SecretStr, ValidationError
from pydantic_settings import BaseSettings

from gateway.settings import GatewaySettings
from tests.conftest import StartProcess
from worker.settings import WorkerSettings

MARK = "hush-71c9"
PORT_OF_NOBODY = 9
PATHS = ("/health", "/metrics", "/admin/config", "/admin/config/status", "/admin/turns", "/admin/workers")


def secrets_of(settings: type[BaseSettings]) -> list[str]:
    return [name for name, field in settings.model_fields.items() if "SecretStr" in str(field.annotation)]


GATEWAY_SECRETS = secrets_of(GatewaySettings)


def value_of(name: str) -> str:
    """A secret that can be told from the others."""
    address = f"redis://:{MARK}-redis@127.0.0.1:{PORT_OF_NOBODY}/0"
    return address if name == "redis_url" else f"{MARK}-{name.replace('_', '-')}-0123456789"


def test_there_are_secrets_and_they_have_the_names_of_secrets() -> None:
    assert {"redis_url", "worker_api_key", "admin_key", "encoder_api_key"} <= set(GATEWAY_SECRETS)
    assert secrets_of(WorkerSettings) == ["redis_url"]
    for settings in (GatewaySettings, WorkerSettings):
        telling = {
            name for name in settings.model_fields if name.endswith(("_key", "password", "token", "secret"))
        }
        assert telling <= set(secrets_of(settings)), "a secret that is kept as a plain string"


@pytest.mark.parametrize("name", GATEWAY_SECRETS)
def test_every_secret_may_lie_in_a_file_and_is_not_shown(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text(value_of(name) + "\n")
    monkeypatch.setenv(f"NG_{name.upper()}_FILE", str(tmp_path / "secret"))
    settings = GatewaySettings()
    read = getattr(settings, name)
    assert isinstance(read, SecretStr)
    assert read.get_secret_value() == value_of(name)
    assert (
        MARK not in repr(settings) + str(settings) + repr(settings.model_dump()) + settings.model_dump_json()
    )


def test_the_workers_secret_may_lie_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text(value_of("redis_url") + "\n")
    monkeypatch.delenv("NG_REDIS_URL", raising=False)
    monkeypatch.setenv("NG_REDIS_URL_FILE", str(tmp_path / "secret"))
    settings = WorkerSettings()
    assert settings.redis_address() == value_of("redis_url")
    assert MARK not in repr(settings) + settings.model_dump_json()


@pytest.mark.parametrize(
    "url", [f"redis://:{MARK}/x@host/0", f"http://:{MARK}@host", MARK, f"redis://:a@{MARK}:x"]
)
@pytest.mark.parametrize("settings", [GatewaySettings, WorkerSettings])
def test_an_address_that_cannot_be_read_is_not_repeated(
    url: str, settings: type[BaseSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NG_REDIS_URL", url)
    with pytest.raises(ValidationError, match="address of Redis") as refused:
        settings()
    assert MARK not in str(refused.value)


def test_a_secrets_file_that_is_not_there_is_an_error_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NG_ADMIN_KEY_FILE", "/nowhere/admin_key")
    with pytest.raises(OSError, match="/nowhere/admin_key"):
        GatewaySettings()


def test_a_process_full_of_secrets_tells_none(start_process: StartProcess, tmp_path: Path) -> None:
    """Without Redis, worker and encoder, so that everything has something to complain of."""
    away = f"http://127.0.0.1:{PORT_OF_NOBODY}"
    environment = {"NG_PORT": "0", "NG_WORKERS": away, "NG_ENCODER_URL": away, "NG_STATE_DIR": str(tmp_path)}
    environment |= {"NG_PRELOAD_ENCODER": "false", "NG_REDIS_TIMEOUT_S": "0.2", "NG_DRAIN_S": "0"}
    for name in GATEWAY_SECRETS:
        (tmp_path / name).write_text(value_of(name))
        environment[f"NG_{name.upper()}_FILE"] = str(tmp_path / name)
    gateway = start_process(["-m", "gateway"], environment)
    body = {"model": "m", "messages": [{"role": "user", "content": "a"}]}
    said = [Path(f"/proc/{gateway.process.pid}/cmdline").read_text()]
    for key in ("wrong-key-of-somebody", value_of("admin_key")):
        headers = {"Authorization": f"Bearer {key}"}
        with httpx.Client(base_url=gateway.url, timeout=30.0, headers=headers) as client:
            answers = [client.get(path) for path in PATHS]
            answers.append(client.post("/v1/chat/completions", json=body))
            said += [answer.text + repr(answer.headers) for answer in answers]
    gateway.end()
    for text in (*said, gateway.output):
        assert MARK not in text
        assert "wrong-key-of-somebody" not in text
