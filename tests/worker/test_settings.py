"""Settings of the worker from its environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from worker.models import BUNDLED_MODEL
from worker.settings import WorkerSettings


def test_nothing_needs_to_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NG_REDIS_URL", raising=False)
    settings = WorkerSettings()
    assert settings.model == BUNDLED_MODEL
    assert settings.host == "127.0.0.1"
    assert settings.threads >= 1
    assert settings.redis_address() is None


def test_the_redis_url_is_shared_and_may_lie_in_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    secret = tmp_path / "redis-url"
    secret.write_text("redis://:hidden@redis.example:6379/1\n")
    monkeypatch.delenv("NG_REDIS_URL", raising=False)
    monkeypatch.setenv("NG_REDIS_URL_FILE", str(secret))
    assert WorkerSettings().redis_address() == "redis://:hidden@redis.example:6379/1"
    monkeypatch.setenv("NG_REDIS_URL", "redis://other:6379/0")
    assert WorkerSettings().redis_address() == "redis://other:6379/0"


def test_a_secret_shows_in_no_representation_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NG_REDIS_URL", "redis://:hidden@redis.example:6379/1")
    assert "hidden" not in repr(WorkerSettings())
    monkeypatch.setenv("NG_REDIS_URL", "http://:hidden@redis.example")
    with pytest.raises(ValidationError) as raised:
        WorkerSettings()
    assert "hidden" not in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NG_WORKER_PORT", "70000"),
        ("NG_WORKER_THREADS", "0"),
        ("NG_WORKER_MAX_BATCH", "-1"),
        ("NG_WORKER_PING_S", "0"),
        ("NG_WORKER_WEIGHTS", "int4"),
        ("NG_WORKER_KERNELS", "fast"),
        ("NG_REDIS_URL_FILE", "/no/such/file"),
    ],
)
def test_a_value_out_of_range_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.delenv("NG_REDIS_URL", raising=False)
    monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError):
        WorkerSettings()
