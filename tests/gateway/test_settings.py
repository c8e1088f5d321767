"""Process settings from the environment."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from gateway.settings import GatewaySettings


def test_workers_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NG_WORKERS", "http://a:1/, https://b ,")
    assert GatewaySettings().workers == ("http://a:1", "https://b")


@pytest.mark.parametrize("workers", ["a:1", "http://a,http://a/"])
def test_workers_that_are_none_or_twice_are_refused(monkeypatch: pytest.MonkeyPatch, workers: str) -> None:
    monkeypatch.setenv("NG_WORKERS", workers)
    with pytest.raises(ValidationError):
        GatewaySettings()


def test_a_secret_may_lie_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("from-the-file\n")
    monkeypatch.setenv("NG_ADMIN_KEY_FILE", str(tmp_path / "key"))
    settings = GatewaySettings()
    assert settings.admin_key is not None
    assert settings.admin_key.get_secret_value() == "from-the-file"
    monkeypatch.setenv("NG_ADMIN_KEY", "from-the-environment")
    nearer = GatewaySettings().admin_key
    assert nearer is not None
    assert nearer.get_secret_value() == "from-the-environment"


def test_secrets_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NG_ADMIN_KEY", "hunter22")
    monkeypatch.setenv("NG_REDIS_URL", "redis://:hunter22@host")
    assert "hunter22" not in repr(GatewaySettings())
