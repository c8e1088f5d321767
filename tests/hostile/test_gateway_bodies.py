"""Bodies that nobody means, sent to every path of the gateway that takes one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.hostile.bodies import FIELDS, FUZZ, bodies
from tests.hostile.judge import Attacked

EXAMPLES = {"/v1/chat/completions": 80, "/v1/feedback": 15}


@pytest.mark.parametrize("path", FIELDS)
def test_no_body_is_answered_with_a_fault_of_the_gateways(attacked: Attacked, path: str) -> None:
    @settings(FUZZ, max_examples=EXAMPLES.get(path, 35))
    @given(bodies(path))
    def attack(body: bytes) -> None:
        answer = attacked.client.post(path, content=body, headers={"Content-Type": "application/json"})
        attacked.judge("POST", path, answer)

    attack()


@settings(FUZZ, max_examples=25)
@given(
    st.sampled_from(
        (
            "Host",
            "Content-Type",
            "Authorization",
            "X-Gravity-Lane",
            "X-Request-Id",
            "If-Match",
            "Accept",
            "Cookie",
            "Range",
        )
    ),
    # What a client library would not send at all is sent by test_connections.py.
    st.binary(max_size=40).map(lambda value: bytes(byte for byte in value if byte > 31 and byte != 127)),
)
def test_no_header_is_answered_with_a_fault_of_the_gateways(
    attacked: Attacked, name: str, value: bytes
) -> None:
    for method, path, body in (
        (
            "POST",
            "/v1/chat/completions",
            {"model": "fake-model", "messages": [{"role": "user", "content": "a"}]},
        ),
        ("POST", "/admin/config/rollback", {"reference": "none", "why": "w"}),
        ("GET", "/admin/turns", None),
    ):
        answer = attacked.client.request(method, path, json=body, headers={name.encode(): value.strip()})
        attacked.judge(method, path, answer)
