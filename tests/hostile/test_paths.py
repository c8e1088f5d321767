"""Paths and Host headers that lead somewhere else, and answers that would lead clients there."""

from __future__ import annotations

import pytest

from tests.hostile.judge import Attacked, check_error_shape

HOSTS = (
    b"[",
    b"[::1",
    b"a b",
    b"",
    b"localhost:99999999",
    b"\xff",
    b"@",
    b"///",
    b"[::1]x:8",
    b"evil.example#",
)


@pytest.mark.parametrize("host", HOSTS)
def test_no_host_header_is_a_fault_or_gets_into_admin(attacked: Attacked, host: bytes) -> None:
    for path in ("/v1/models", "/livez", "/nowhere"):
        assert attacked.client.get(path, headers={b"Host": host}).status_code < 500
    refused = attacked.client.get("/admin/turns", headers={b"Host": host})
    assert refused.status_code in (400, 403)
    check_error_shape(refused)


@pytest.mark.parametrize("path", ["/openapi.json/", "/livez/", "/admin/turns/", "/v1/chat/completions/"])
def test_a_slash_too_much_is_no_redirect_to_whatever_host_was_named(attacked: Attacked, path: str) -> None:
    answer = attacked.client.get(path, headers={"Host": "evil.example"})
    assert answer.status_code == 404
    assert "location" not in answer.headers
    check_error_shape(answer)


@pytest.mark.parametrize(
    "path",
    [
        "/admin/config/documents/task/..%2f..%2f..%2fetc%2fpasswd",
        "/admin/config/documents/%2e%2e/%2e%2e",
        "/admin/config/documents/tasks/..%5c..%5cpasswd",
        "/admin/turns/..%2f..",
        "/admin/turns/%00",
        "/admin/turns/%ff%fe",
        "/admin/turns/a%0d%0aSet-Cookie:%20b",
        "/admin/experiments/..%2f..%2fx",
        "/admin//turns",
    ],
)
def test_no_path_under_admin_leads_out_of_it(attacked: Attacked, path: str) -> None:
    answer = attacked.client.get(path)
    assert answer.status_code in (400, 404)
    assert answer.headers["content-type"] == "application/problem+json"
    assert "root:" not in answer.text
    assert "set-cookie" not in answer.headers
    check_error_shape(answer)


def test_every_answer_says_that_its_type_is_not_to_be_guessed(attacked: Attacked) -> None:
    for path in ("/livez", "/metrics", "/nowhere", "/admin/turns"):
        assert attacked.client.get(path).headers["x-content-type-options"] == "nosniff"
