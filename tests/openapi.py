"""Requests and answers, held against a gateway's own description of itself."""

from __future__ import annotations

from typing import Any

from openapi_schema_validator import OAS31Validator


def body_problems(document: dict[str, Any], method: str, template: str, body: object) -> list[str]:
    """Say what the description finds wrong with a request's body; empty where it is good."""
    operation = document["paths"][template][method.lower()]
    return problems_of(document, operation["requestBody"]["content"]["application/json"]["schema"], body)


def answer_problems(
    document: dict[str, Any], method: str, template: str, status: int, content: object
) -> list[str]:
    """Say what the description finds wrong with an answer; a status that it lacks is a problem too."""
    responses = document["paths"][template][method.lower()]["responses"]
    if str(status) not in responses:
        return [f"{method} {template} is not described to answer {status}"]
    (shape,) = (
        media["schema"] for name, media in responses[str(status)]["content"].items() if name.endswith("json")
    )
    return problems_of(document, shape, content)


def problems_of(document: dict[str, Any], schema: dict[str, Any], content: object) -> list[str]:
    # A reference names a place in the whole document, so the document stands around the schema.
    validator = OAS31Validator({**schema, "components": document["components"]})
    return [error.message for error in validator.iter_errors(content)]
