"""The encoders of whole gateways: shared over one Valkey, and counted."""

from __future__ import annotations

from typing import Any

import httpx

from tests.conftest import WaitUntil
from tests.servers.embeddings import SERVED_MODEL, EmbeddingServer
from tests.servers.gateway import Gateway, StartGateway

QUESTION = "镜面镀有什么金属？"
DOCUMENTS = ["望远镜的镜面镀有一层银。", "韭葱汤要用黄油慢慢煮。"]
KEY = "a-secret-of-the-operator"


def prune(gateway: Gateway) -> dict[str, Any]:
    sent = {"query": QUESTION, "documents": DOCUMENTS}
    response = httpx.post(f"{gateway.url}/v1/prune", json=sent, timeout=60.0)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def encodings(gateway: Gateway) -> dict[str, float]:
    """How many came from where, as Prometheus reads it."""
    lines = httpx.get(f"{gateway.url}/metrics", timeout=60.0).text.splitlines()
    prefix = 'gravity_encodings_total{encoder="remote",source="'
    found = [line.removeprefix(prefix).split('"} ') for line in lines if line.startswith(prefix)]
    return {source: float(count) for source, count in found}


def test_gateways_with_a_remote_encoder_share_what_they_encode(
    start_gateway: StartGateway, embedding_server: EmbeddingServer, wait_until: WaitUntil
) -> None:
    settings = {
        "encoder_url": f"{embedding_server.url}/v1",
        "encoder_remote_model": SERVED_MODEL,
        "encoder_api_key": KEY,
        "encoder_redis_timeout_s": 10.0,
    }
    one, other = (start_gateway("http://127.0.0.1:1", wait=False, **settings) for _ in range(2))
    first = prune(one)
    assert {verdict["reason"] for verdict in first["verdicts"]}.isdisjoint({"not_judged", "unpruned"})
    assert encodings(one) == {"encoder": 3.0}
    assert {call.authorization for call in embedding_server.received} == {f"Bearer {KEY}"}
    wait_until(lambda: not is_sharing(one))
    second = prune(other)
    assert encodings(other) == {"redis": 3.0}
    assert second["verdicts"] == first["verdicts"]
    assert set(embedding_server.inputs) == {"text", QUESTION, *DOCUMENTS}
    assert len(embedding_server.inputs) == 5  # each gateway asks once how long the vectors are
    prune(other)
    assert encodings(other) == {"redis": 3.0, "process": 3.0}


def is_sharing(gateway: Gateway) -> bool:
    remote = gateway.deps.pruner.encoders.remote
    assert remote is not None
    return remote.is_sharing
