"""What every adapter shares: refusals in the gateway's words, and what is sent."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable

import httpx
import pytest

from gateway.adapters.client import GravityError, Passage, Pruning
from tests.passages import FOUND, QUESTION, WANTED
from tests.servers.gateway import REPOSITORY, Scripted

PASSAGES = [Passage(text, title) for title, text in FOUND]


def test_what_stays_is_told_by_position(scripted: Scripted) -> None:
    kept = Pruning(base_url=scripted.gateway.url).kept(QUESTION, PASSAGES)
    assert kept is not None
    assert [each.index for each in kept] == list(WANTED)


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
def test_an_address_may_end_as_openais_do(scripted: Scripted, suffix: str) -> None:
    assert Pruning(base_url=scripted.gateway.url + suffix).kept(QUESTION, PASSAGES[:1]) is not None


def test_a_refusal_has_the_gateways_words(scripted: Scripted) -> None:
    with pytest.raises(GravityError, match="There is no such task") as error:
        Pruning(base_url=scripted.gateway.url, task="poetry").kept(QUESTION, PASSAGES)
    assert (error.value.status, error.value.code, error.value.param) == (400, "invalid_value", "task")


async def test_a_gateway_that_is_away_is_named(free_port: Callable[[], int]) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(GravityError, match=address) as error:
        Pruning(base_url=address).kept(QUESTION, PASSAGES)
    assert error.value.status is None
    with pytest.raises(GravityError, match=address):
        await Pruning(base_url=address).akept(QUESTION, PASSAGES)


def test_another_servers_answer_is_no_pruning(scripted: Scripted) -> None:
    with pytest.raises(GravityError, match="not the gateway's"):
        Pruning(base_url=f"{scripted.upstream.url}/readyz?").kept(QUESTION, PASSAGES)


async def test_everything_is_kept_where_that_was_asked_for(
    free_port: Callable[[], int], caplog: pytest.LogCaptureFixture
) -> None:
    away = Pruning(base_url=f"http://127.0.0.1:{free_port()}", on_error="keep_all")
    with caplog.at_level(logging.WARNING):
        assert away.kept(QUESTION, PASSAGES) is None
        assert await away.akept(QUESTION, PASSAGES) is None
    assert caplog.text.count("All documents are kept") == 2


async def test_a_client_of_the_callers_is_used_and_left_open(scripted: Scripted) -> None:
    asked: list[httpx.Request] = []

    async def note(request: httpx.Request) -> None:
        asked.append(request)

    hooks = {"request": [asked.append]}
    with httpx.Client(event_hooks=hooks) as client:
        Pruning(base_url=scripted.gateway.url, api_key="secret", http_client=client).kept(QUESTION, PASSAGES)
        assert not client.is_closed
    async with httpx.AsyncClient(event_hooks={"request": [note]}) as patient:
        await Pruning(base_url=scripted.gateway.url, async_http_client=patient).akept(QUESTION, PASSAGES)
        assert not patient.is_closed
    assert [request.headers.get("authorization") for request in asked] == ["Bearer secret", None]


def test_a_key_is_not_shown() -> None:
    assert "secret" not in repr(Pruning(api_key="secret"))


def test_half_a_character_does_not_stop_a_document(scripted: Scripted) -> None:
    """Some PDF readers leave one half of a surrogate pair in their texts."""
    passages = [*PASSAGES, Passage("The Solveig\ud83d")]
    assert Pruning(base_url=scripted.gateway.url, keep=0.0).kept(QUESTION, passages) is not None


@pytest.mark.parametrize("adapter", ["langchain", "llama_index"])
def test_an_adapter_needs_nothing_else_of_the_gateway(adapter: str) -> None:
    code = f"""
import sys, gateway.adapters.{adapter}
ours = sorted(name for name in sys.modules if name.split('.')[0] in ('gateway', 'worker', 'torch'))
print(*ours)
"""
    finished = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    own = ["gateway", "gateway.adapters", "gateway.adapters.client", f"gateway.adapters.{adapter}"]
    assert finished.stdout.split() == own
