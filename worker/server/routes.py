"""Every path of the worker."""

from __future__ import annotations

from starlette.routing import Route

from worker.server.chat import create_chat_completion
from worker.server.completions import create_completion
from worker.server.health import livez, metrics, readyz
from worker.server.models import get_model, list_models
from worker.server.replay import replay
from worker.server.tokenize import tokenize

ROUTES = (
    Route("/v1/chat/completions", create_chat_completion, methods=["POST"]),
    Route("/v1/completions", create_completion, methods=["POST"]),
    Route("/v1/models", list_models, methods=["GET"]),
    Route("/v1/models/{model:path}", get_model, methods=["GET"]),
    Route("/tokenize", tokenize, methods=["POST"]),
    Route("/replay", replay, methods=["POST"]),
    Route("/livez", livez, methods=["GET"]),
    Route("/readyz", readyz, methods=["GET"]),
    Route("/metrics", metrics, methods=["GET"]),
)
