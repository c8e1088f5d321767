"""schemathesis against the gateway's own description of itself: what it allows, and what it does not."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import given, settings
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

from gateway.api.openapi import described
from gateway.api.routes import PATHS
from tests.hostile.bodies import FUZZ
from tests.hostile.judge import Attacked

MAX_EXAMPLES = 4
OPERATIONS = [
    result.ok()
    for result in schemathesis.openapi.from_dict(described(PATHS)).get_all_operations()
    if isinstance(result, Ok)
]


def test_schemathesis_understands_the_whole_description() -> None:
    assert len(OPERATIONS) == len(PATHS)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda it: f"{it.method.upper()} {it.path}")
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda it: it.name.lower())
def test_every_operation_answers_as_it_is_described(
    attacked: Attacked, operation: Any, mode: GenerationMode
) -> None:
    if mode is GenerationMode.NEGATIVE and not _may_be_wrong(operation):
        return

    # A turn that nobody knows is waited for, a second each time.
    @settings(FUZZ, max_examples=1 if operation.path == "/v1/feedback" else MAX_EXAMPLES)
    @given(operation.as_strategy(generation_mode=mode))
    def attack(case: Any) -> None:
        answer = _sent(attacked.client, case)
        if answer.status_code == 404 and answer.json().get("code", "") == "not_found":
            return  # what was made up for the path led elsewhere
        attacked.judge(operation.method, operation.path, answer)

    attack()


def _may_be_wrong(operation: Any) -> bool:
    """Whether there is anything but a path, every text of which is a good one."""
    return bool(operation.body or operation.query or operation.headers)


def _sent(client: httpx.Client, case: Any) -> httpx.Response:
    sent = case.as_transport_kwargs(base_url=str(client.base_url).rstrip("/"))
    headers = {name.encode(): str(value).encode() for name, value in sent["headers"].items()}
    body = json.dumps(sent["json"]).encode() if "json" in sent else sent.get("data")
    return client.request(sent["method"], sent["url"], params=sent["params"], headers=headers, content=body)
