"""Every path of the gateway."""

from __future__ import annotations

from gateway.api.answer_schema import (
    Alive,
    ChatCompletion,
    Health,
    ModelList,
    Pruned,
    Readiness,
    Reranked,
    ServedModel,
    TextCompletion,
)
from gateway.api.chat import chat
from gateway.api.completions import completions
from gateway.api.config_paths import CONFIG_PATHS
from gateway.api.experiments import EXPERIMENT_PATHS
from gateway.api.feedback import FeedbackBody, FeedbackList, KeptFeedback, feedback
from gateway.api.health import health, livez, metrics, readyz
from gateway.api.models import get_model, list_models
from gateway.api.openapi import serving
from gateway.api.path import Path
from gateway.api.prune import PruneRequest, prune
from gateway.api.rerank import RerankRequest, rerank
from gateway.api.schema import ChatRequest, CompletionRequest
from gateway.api.turns import TURN_PATHS
from gateway.api.workers import WORKER_PATHS
from gateway.errors import (
    ContextTooLong,
    EncoderUnavailable,
    InsufficientScope,
    ModelNotFound,
    NotFound,
    NoWorkers,
    QueueFull,
    ShuttingDown,
    StoreUnavailable,
    UpstreamError,
    UpstreamTimeout,
)
from gateway.keys.scope import EVERY, OPEN, Scope

SERVING = (UpstreamError, UpstreamTimeout, QueueFull, NoWorkers, ShuttingDown, ModelNotFound, ContextTooLong)
"""How a turn may fail, beside what its request may be wrong in."""
INFER, PRUNE, FEEDBACK = (
    frozenset[Scope]({"infer"}),
    frozenset[Scope]({"prune", "infer"}),
    frozenset[Scope]({"feedback", "infer"}),
)
STREAM = ("application/json", "text/event-stream")

PATHS: tuple[Path, ...] = (
    Path(
        "POST",
        "/v1/chat/completions",
        chat,
        "Prune, steer, answer: a chat completion",
        request=ChatRequest,
        response=ChatCompletion,
        media_types=STREAM,
        errors=(*SERVING, InsufficientScope),
        scopes=INFER,
        charge="turn",
    ),
    Path(
        "POST",
        "/v1/completions",
        completions,
        "Prune, steer, answer: a text completion",
        request=CompletionRequest,
        response=TextCompletion,
        media_types=STREAM,
        errors=(*SERVING, InsufficientScope),
        scopes=INFER,
        charge="turn",
    ),
    Path(
        "POST",
        "/v1/prune",
        prune,
        "Prune documents without a turn",
        request=PruneRequest,
        response=Pruned,
        errors=(ModelNotFound,),
        scopes=PRUNE,
        charge="request",
    ),
    *(
        Path(
            "POST",
            template,
            rerank,
            "Order documents by their keep-probability",
            request=RerankRequest,
            response=Reranked,
            errors=(EncoderUnavailable,),
            scopes=PRUNE,
            charge="request",
        )
        # Beside our own path: where Cohere's second client looks for it, and vLLM's.
        for template in ("/v1/rerank", "/v2/rerank", "/rerank")
    ),
    Path(
        "POST",
        "/v1/feedback",
        feedback,
        "Report what became of turns, as numbers",
        request=FeedbackBody,
        response=KeptFeedback | FeedbackList,
        errors=(NotFound, StoreUnavailable),
        scopes=FEEDBACK,
        charge="request",
    ),
    Path(
        "GET",
        "/v1/models",
        list_models,
        "The models that the workers serve",
        response=ModelList,
        scopes=EVERY,
        charge="request",
    ),
    Path(
        "GET",
        "/v1/models/{model:path}",
        get_model,
        "One model",
        response=ServedModel,
        errors=(ModelNotFound,),
        scopes=EVERY,
        charge="request",
    ),
    *TURN_PATHS,
    *CONFIG_PATHS,
    *EXPERIMENT_PATHS,
    *WORKER_PATHS,
    Path("GET", "/livez", livez, "Whether the process runs", response=Alive, scopes=OPEN),
    Path(
        "GET",
        "/readyz",
        readyz,
        "Whether a turn would be served here",
        response=Readiness,
        statuses=(200, 503),
        scopes=OPEN,
    ),
    Path("GET", "/health", health, "How everything is, for people", response=Health, scopes=OPEN),
    Path(
        "GET",
        "/metrics",
        metrics,
        "Metrics as Prometheus reads them",
        media_types=("text/plain",),
        scopes=OPEN,
    ),
    Path("GET", "/openapi.json", serving(lambda: PATHS), "This description, in OpenAPI 3.1", scopes=OPEN),
)
TEMPLATES = frozenset(path.template for path in PATHS)
