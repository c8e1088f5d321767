"""OpenTelemetry's GenAI names, in one place because they are still in development."""

from __future__ import annotations

OPERATION_NAME = "gen_ai.operation.name"
PROVIDER_NAME = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
TIME_TO_FIRST_TOKEN = "gen_ai.server.time_to_first_token"
TIME_PER_OUTPUT_TOKEN = "gen_ai.server.time_per_output_token"

REQUEST_DURATION = "gen_ai.server.request.duration"
TOKEN_USAGE = "gen_ai.client.token.usage"
TOKEN_TYPE = "gen_ai.token.type"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
REQUEST_TOP_P = "gen_ai.request.top_p"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
ERROR_TYPE = "error.type"

PROVIDER = "narrative_gravity"
OPERATIONS = {"/v1/chat/completions": "chat", "/v1/completions": "text_completion"}


def prometheus_name(name: str) -> str:
    """The metric's name as Prometheus writes it, with its base unit."""
    return name.replace(".", "_") + "_seconds"
