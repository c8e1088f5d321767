"""``/openapi.json``: all paths, a valid document, and what is really sent and answered."""

from __future__ import annotations

from typing import Any

import pytest
from openapi_spec_validator import validate

from gateway.api.openapi import plain
from gateway.api.routes import PATHS
from tests.openapi import answer_problems, body_problems
from tests.servers.gateway import CHAT, COMPLETIONS, PLAIN, Scripted
from tests.servers.upstream import MODEL, Script, whole


@pytest.fixture
def document(scripted: Scripted) -> dict[str, Any]:
    described: dict[str, Any] = scripted.client.get("/openapi.json").json()
    return described


def test_every_path_of_the_table_is_described_and_no_other(document: dict[str, Any]) -> None:
    described = {(method, path) for path, item in document["paths"].items() for method in item}
    assert described == {(path.method.lower(), plain(path.template)) for path in PATHS}


def test_a_published_validator_accepts_the_document(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.0"
    validate(document)


def test_every_operation_has_a_name_of_its_own_and_says_what_it_is(document: dict[str, Any]) -> None:
    operations = [operation for item in document["paths"].values() for operation in item.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    assert all(operation["summary"] and operation["tags"] for operation in operations)


def test_under_admin_an_error_is_a_problem_and_elsewhere_openais_object(document: dict[str, Any]) -> None:
    for path, item in document["paths"].items():
        for operation in item.values():
            (shape,) = operation["responses"]["500"]["content"]
            is_admin = path.startswith("/admin")
            assert shape == ("application/problem+json" if is_admin else "application/json")


@pytest.mark.parametrize(
    ("method", "path", "scopes"),
    [
        ("post", CHAT, [["infer"]]),
        ("post", "/v1/prune", [["infer"], ["prune"]]),
        ("post", "/v2/rerank", [["infer"], ["prune"]]),
        ("post", "/v1/feedback", [["feedback"], ["infer"]]),
        ("get", "/v1/models", [[]]),
        ("get", "/admin/turns", [["turns:read"]]),
        ("delete", "/admin/turns", [["turns:write"]]),
        ("post", "/admin/config/validate", [["config:read"]]),
        ("post", "/admin/config/publish", [["config:write"]]),
        ("get", "/admin/experiments", [["experiments:read"]]),
        ("post", "/admin/workers", [["admin"]]),
    ],
)
def test_an_operation_names_the_scopes_of_which_one_is_enough(
    document: dict[str, Any], method: str, path: str, scopes: list[list[str]]
) -> None:
    operation = document["paths"][path][method]
    assert operation["security"] == [*({"key": each} for each in scopes), {}]
    assert {"401", "403"} <= operation["responses"].keys()
    assert ("rate_limit_exceeded" in str(operation["responses"])) == (not path.startswith("/admin"))


def test_what_is_open_to_everybody_is_five_paths(document: dict[str, Any]) -> None:
    is_open = {
        path
        for path, item in document["paths"].items()
        for operation in item.values()
        if "security" not in operation
    }
    assert is_open == {"/livez", "/readyz", "/health", "/metrics", "/openapi.json"}


@pytest.mark.parametrize(
    ("path", "body", "is_good"),
    [
        (CHAT, PLAIN[CHAT], True),
        (CHAT, PLAIN[CHAT] | {"documents": ["a", {"text": "b", "page": 3}], "task": "rag_qa"}, True),
        (CHAT, PLAIN[CHAT] | {"logit_bias": {"5": -100}, "stop": ["a", "b"], "made_up": 1}, True),
        (CHAT, PLAIN[CHAT] | {"temperature": 2.5}, False),
        (CHAT, PLAIN[CHAT] | {"documents": "all"}, False),
        (CHAT, {"messages": []}, False),
        (COMPLETIONS, PLAIN[COMPLETIONS] | {"prompt": [1, 2, 3]}, True),
        (COMPLETIONS, PLAIN[COMPLETIONS] | {"prompt": []}, False),
        ("/v1/prune", {"query": "q", "documents": ["a"], "keep": 0.4, "order": "ends"}, True),
        ("/v1/prune", {"query": "q", "documents": ["a"], "keep": "all"}, False),
        ("/rerank", {"query": "q", "documents": ["a"], "top_n": 1}, True),
        ("/rerank", {"query": "q", "documents": []}, False),
    ],
)
def test_the_description_and_the_gateway_agree_on_a_body(
    document: dict[str, Any], scripted: Scripted, path: str, body: dict[str, Any], is_good: bool
) -> None:
    kind = "chat.completion" if path == CHAT else "text_completion"
    scripted.upstream.plays(Script([whole("ok", object=kind)], content_type="application/json"))
    assert (body_problems(document, "POST", path, body) == []) == is_good
    answer = scripted.client.post(path, json=body)
    if not is_good:
        assert answer.status_code == 400, answer.text
    # Without an encoder a rerank may be a 503; what is answered has its described shape all the same.
    assert answer_problems(document, "POST", path, answer.status_code, answer.json()) == []


@pytest.mark.parametrize(
    ("template", "path", "status"),
    [
        ("/v1/models", "/v1/models", 200),
        ("/v1/models/{model}", f"/v1/models/{MODEL}", 200),
        ("/v1/models/{model}", "/v1/models/another", 404),
        ("/admin/turns/{turn_id}", "/admin/turns/not-there", 404),
        ("/livez", "/livez", 200),
        ("/readyz", "/readyz", 200),
        ("/health", "/health", 200),
    ],
)
def test_an_answer_has_the_shape_that_is_described(
    document: dict[str, Any], scripted: Scripted, template: str, path: str, status: int
) -> None:
    answer = scripted.client.get(path)
    assert answer.status_code == status
    assert answer_problems(document, "GET", template, status, answer.json()) == []
