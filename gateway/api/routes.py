"""Every path of the gateway."""

from __future__ import annotations

from gateway.api.admin import get_turn
from gateway.api.chat import chat
from gateway.api.completions import completions
from gateway.api.health import health, livez, metrics, readyz
from gateway.api.models import get_model, list_models
from gateway.api.path import Path
from gateway.api.prune import prune
from gateway.api.rerank import rerank

PATHS = (
    Path("POST", "/v1/chat/completions", chat),
    Path("POST", "/v1/completions", completions),
    Path("POST", "/v1/prune", prune),
    Path("POST", "/v1/rerank", rerank),
    Path("POST", "/v2/rerank", rerank),  # where Cohere's second client looks for it
    Path("POST", "/rerank", rerank),  # and vLLM's
    Path("GET", "/v1/models", list_models),
    Path("GET", "/v1/models/{model:path}", get_model),
    Path("GET", "/admin/turns/{turn_id}", get_turn),
    Path("GET", "/livez", livez),
    Path("GET", "/readyz", readyz),
    Path("GET", "/health", health),
    Path("GET", "/metrics", metrics),
)
TEMPLATES = frozenset(path.template for path in PATHS)
