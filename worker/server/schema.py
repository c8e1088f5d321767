"""The requests that the worker accepts: OpenAI's fields, and vLLM's beside them.

Strict: no number in a string, no ``true`` for 1, no NaN. Every optional field may be null. Unknown fields are
kept aside (``model_extra``) and ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

MAX_CHOICES = 128
MAX_STOP_STRINGS = 4
MAX_TOP_LOGPROBS = 20
MAX_MODEL_NAME = 512

TokenId: TypeAlias = int
StopString = Annotated[str, Field(min_length=1, max_length=4096)]
LogprobCount = Annotated[int, Field(ge=0, le=MAX_TOP_LOGPROBS)]


class RequestModel(BaseModel):
    model_config = ConfigDict(
        strict=True, frozen=True, extra="allow", allow_inf_nan=False, protected_namespaces=()
    )


class StreamOptions(RequestModel):
    include_usage: bool | None = None


class ResponseFormat(RequestModel):
    type: str


class TextPart(RequestModel):
    type: Literal["text"]
    text: str


class Message(RequestModel):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | Annotated[list[TextPart], Field(fail_fast=True)] | None = None

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "\n".join(part.text for part in self.content)
        return self.content or ""


class GenerationBody(RequestModel):
    """What ``/v1/chat/completions`` and ``/v1/completions`` share."""

    model: Annotated[str, Field(min_length=1, max_length=MAX_MODEL_NAME)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[int, Field(ge=1, le=MAX_CHOICES)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] | None = None
    top_k: Annotated[int, Field(ge=-1, le=1 << 31)] | None = None
    """0 and -1 keep all."""
    min_p: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2.0, le=2.0)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2.0, le=2.0)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0.0, le=100.0)] | None = None
    seed: Annotated[int, Field(ge=-(1 << 63), lt=1 << 63)] | None = None
    stop: StopString | Annotated[list[StopString], Field(max_length=MAX_STOP_STRINGS)] | None = None
    stop_token_ids: Annotated[list[TokenId], Field(max_length=1024, fail_fast=True)] | None = None
    ignore_eos: bool | None = None
    logit_bias: dict[str, Annotated[float, Field(ge=-100.0, le=100.0)]] | None = None
    user: str | None = None
    response_format: ResponseFormat | None = None
    vllm_xargs: dict[str, Any] | None = None

    @property
    def stop_strings(self) -> tuple[str, ...]:
        if isinstance(self.stop, str):
            return (self.stop,)
        return tuple(self.stop or ())

    @property
    def wants_usage_chunk(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class ChatBody(GenerationBody):
    messages: Annotated[list[Message], Field(min_length=1, fail_fast=True)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool | None = None
    top_logprobs: LogprobCount | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None


class CompletionBody(GenerationBody):
    prompt: str | Annotated[list[str | TokenId | list[TokenId]], Field(min_length=1, fail_fast=True)]
    logprobs: LogprobCount | None = None
    echo: bool | None = None
    best_of: int | None = None
    suffix: str | None = None


class TokenizeBody(RequestModel):
    """vLLM's shape, and ``prompts`` to count many at once."""

    model: Annotated[str, Field(min_length=1, max_length=MAX_MODEL_NAME)] | None = None
    prompt: str | None = None
    messages: Annotated[list[Message], Field(min_length=1, fail_fast=True)] | None = None
    prompts: Annotated[list[str], Field(fail_fast=True)] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None


class ReplayBody(RequestModel):
    request: dict[str, Any]
    endpoint: Literal["/v1/chat/completions", "/v1/completions"]
    choice: Annotated[int, Field(ge=0)] = 0
    tokens: Annotated[list[TokenId], Field(min_length=1, fail_fast=True)] | None = None
    num_top: LogprobCount | None = None
    """Answer the text of every token and so many of the likeliest ones at every step, too."""
