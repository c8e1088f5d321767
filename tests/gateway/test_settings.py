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


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("https://encoder.example/v1/", "https://encoder.example"),
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000"),
        ("http://[::1]:9000/embed", "http://[::1]:9000/embed"),
        ("", None),
    ],
)
def test_an_encoders_address_is_taken_with_v1_or_without(
    monkeypatch: pytest.MonkeyPatch, written: str, expected: str | None
) -> None:
    monkeypatch.setenv("NG_ENCODER_URL", written)
    assert GatewaySettings().encoder_url == expected


@pytest.mark.parametrize(
    "address",
    [
        "encoder:9000",
        "file:///etc/passwd",
        "http://",
        "http://host:99999",
        "http://host/?to=http://other",
        "http://user:hunter22@host",
    ],
)
def test_an_encoders_address_that_is_none_is_refused_without_being_shown(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("NG_ENCODER_URL", address)
    with pytest.raises(ValidationError, match="encoder_url") as refused:
        GatewaySettings()
    assert "hunter22" not in str(refused.value)


def test_an_encoders_key_that_no_header_takes_is_refused_without_being_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NG_ENCODER_API_KEY", "hunter22\nX-Other: 1")
    with pytest.raises(ValidationError, match="encoder_api_key") as refused:
        GatewaySettings()
    assert "hunter22" not in str(refused.value)


@pytest.mark.parametrize(
    ("retention", "set_to", "expected"),
    [
        ("full", None, True),
        ("hashed", None, False),
        ("none", None, False),
        ("none", "1", True),
        ("full", "0", False),
    ],
)
def test_encodings_are_shared_where_texts_may_be_kept(
    monkeypatch: pytest.MonkeyPatch, retention: str, set_to: str | None, expected: bool
) -> None:
    monkeypatch.setenv("NG_TEXT_RETENTION", retention)
    if set_to is not None:
        monkeypatch.setenv("NG_ENCODER_REDIS_CACHE", set_to)
    assert GatewaySettings().shares_encodings is expected


def test_buckets_are_those_of_workers_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NG_WORKERS", "http://one:1,http://two:2")
    monkeypatch.setenv("NG_WORKER_BUCKETS", '{"http://one:1/": [0, 1]}')
    assert GatewaySettings().worker_buckets == {"http://one:1": (0, 1)}
    for wrong in ('{"http://three:3": [0]}', '{"http://one:1": [64]}', '{"http://one:1": 0}'):
        monkeypatch.setenv("NG_WORKER_BUCKETS", wrong)
        with pytest.raises(ValidationError, match="worker_buckets"):
            GatewaySettings()
