"""OpenTelemetry's GenAI names, in one place because they are still in development."""

from __future__ import annotations

OPERATION_NAME = "gen_ai.operation.name"
PROVIDER_NAME = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
TIME_TO_FIRST_TOKEN = "gen_ai.server.time_to_first_token"
TIME_PER_OUTPUT_TOKEN = "gen_ai.server.time_per_output_token"

PROVIDER = "narrative_gravity"
OPERATIONS = {"/v1/chat/completions": "chat", "/v1/completions": "text_completion"}


def prometheus_name(name: str) -> str:
    """The metric's name as Prometheus writes it, with its base unit."""
    return name.replace(".", "_") + "_seconds"
