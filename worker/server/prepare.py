"""From a parsed request to a job: prompts encoded, everything checked against the model."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

from worker.engine.request import SamplingParams
from worker.errors import ContextTooLongError, ModelNotServedError, RequestError
from worker.server.deps import Deps
from worker.server.job import Job, Prompt
from worker.server.parse import parse_controls
from worker.server.schema import ChatBody, CompletionBody, GenerationBody

DEFAULT_COMPLETION_TOKENS = 16
MAX_PROMPTS = 1024


async def prepare_chat(body: ChatBody, deps: Deps) -> Job:
    """Raises RequestError, with the field's name, for what this worker cannot do as asked."""
    _check_common(body, deps)
    if body.tools or body.functions:
        raise RequestError("tools are not supported", param="tools" if body.tools else "functions")
    if body.top_logprobs is not None and not body.logprobs:
        raise RequestError("top_logprobs needs logprobs to be true", param="top_logprobs")
    prompt = tuple(await deps.prompts.chat(body.messages))
    wanted = body.max_completion_tokens or body.max_tokens
    max_tokens = _max_tokens((prompt,), wanted, deps, param="messages")
    num_top_logprobs = (body.top_logprobs or 0) if body.logprobs else None
    return _job(f"chatcmpl-{deps.new_id()}", (prompt,), body, deps, max_tokens, num_top_logprobs)


async def prepare_completion(body: CompletionBody, deps: Deps) -> Job:
    """Raises RequestError, with the field's name, for what this worker cannot do as asked."""
    _check_common(body, deps)
    if body.echo:
        raise RequestError("echo is not supported", param="echo")
    if body.suffix:
        raise RequestError("suffix is not supported", param="suffix")
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise RequestError("best_of must equal n", param="best_of")
    prompts = await _encoded_prompts(body.prompt, deps)
    max_tokens = _max_tokens(prompts, body.max_tokens or DEFAULT_COMPLETION_TOKENS, deps, param="prompt")
    return _job(f"cmpl-{deps.new_id()}", prompts, body, deps, max_tokens, body.logprobs)


def check_model(model: str | None, deps: Deps) -> None:
    """Raises ModelNotServedError where another model is asked for."""
    if model is not None and model != deps.model_name:
        raise ModelNotServedError("this worker does not serve the model that was asked for", param="model")


def _check_common(body: GenerationBody, deps: Deps) -> None:
    check_model(body.model, deps)
    if body.stream_options is not None and not body.stream:
        raise RequestError("stream_options needs stream to be true", param="stream_options")
    if body.response_format is not None and body.response_format.type != "text":
        raise RequestError("only the response format 'text' is supported", param="response_format")


async def _encoded_prompts(prompt: str | list[str | int | list[int]], deps: Deps) -> tuple[Prompt, ...]:
    if isinstance(prompt, str):
        return (tuple(await deps.prompts.text(prompt)),)
    texts = [part for part in prompt if isinstance(part, str)]
    ids = [part for part in prompt if isinstance(part, int)]
    lists = [part for part in prompt if isinstance(part, list)]
    if len(prompt) not in (len(texts), len(ids), len(lists)):
        raise RequestError("prompt must be text, token ids, or a list of one of them", param="prompt")
    if max(len(texts), len(lists)) > MAX_PROMPTS:
        raise RequestError(f"at most {MAX_PROMPTS} prompts in one request", param="prompt")
    if texts:
        encoded = await deps.prompts.texts(texts, add_special_tokens=True)
        return tuple(tuple(prompt_ids) for prompt_ids in encoded)
    prompts = tuple(tuple(part) for part in (lists or [ids]))
    size = deps.engine.vocabulary.size
    if any(not 0 <= token_id < size for prompt_ids in prompts for token_id in prompt_ids):
        raise RequestError(f"prompt holds a token id outside the vocabulary of {size}", param="prompt")
    return prompts


def _max_tokens(prompts: Sequence[Prompt], wanted: int | None, deps: Deps, *, param: str) -> int:
    """The tokens asked for, else all that the context has room for. Raises ContextTooLongError."""
    if not all(prompts):
        raise RequestError("the prompt is empty", param=param)
    longest = max(len(prompt) for prompt in prompts)
    limit = deps.engine.max_context
    if longest + (wanted or 1) > limit:
        raise ContextTooLongError(
            f"This model's maximum context length is {limit} tokens. However, you requested "
            f"{longest + (wanted or 1)} tokens ({longest} in the {param}, {wanted or 1} in the completion).",
            param=param,
        )
    return wanted or limit - longest


def _job(
    job_id: str,
    prompts: tuple[Prompt, ...],
    body: GenerationBody,
    deps: Deps,
    max_tokens: int,
    num_top_logprobs: int | None,
) -> Job:
    num_choices = len(prompts) * (body.n or 1)
    if num_choices > deps.roster.max_choices:
        param = "n" if body.n is not None and body.n > 1 else "prompt"
        raise RequestError(
            f"{num_choices} choices were asked for, at most {deps.roster.max_choices} fit", param=param
        )
    return Job(
        id=job_id,
        prompts=prompts,
        num_choices=body.n or 1,
        sampling=_sampling(body, deps, max_tokens, num_top_logprobs),
        controls=parse_controls(body.vllm_xargs),
        stop=body.stop_strings,
    )


def _sampling(
    body: GenerationBody, deps: Deps, max_tokens: int, num_top_logprobs: int | None
) -> SamplingParams:
    vocabulary_size = deps.engine.vocabulary.size
    stop_token_ids = frozenset(body.stop_token_ids or ())
    if any(not 0 <= token_id < vocabulary_size for token_id in stop_token_ids):
        raise RequestError("stop_token_ids holds an id outside the vocabulary", param="stop_token_ids")
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=_or(body.temperature, 1.0),
        top_k=max(0, body.top_k or 0),
        top_p=_or(body.top_p, 1.0),
        min_p=_or(body.min_p, 0.0),
        seed=body.seed if body.seed is not None else deps.new_seed(),
        repetition_penalty=_or(body.repetition_penalty, 1.0),
        presence_penalty=_or(body.presence_penalty, 0.0),
        frequency_penalty=_or(body.frequency_penalty, 0.0),
        logit_bias=MappingProxyType(_logit_bias(body.logit_bias or {}, vocabulary_size)),
        num_top_logprobs=num_top_logprobs,
        stop_token_ids=stop_token_ids,
        ignore_eos=bool(body.ignore_eos),
    )


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _logit_bias(given: dict[str, float], vocabulary_size: int) -> dict[int, float]:
    """vllm#16529: an id that is none, or lies outside, must never reach the engine."""
    bias: dict[int, float] = {}
    for key, value in given.items():
        is_number = key.isascii() and key.isdecimal() and len(key) <= 10
        if not is_number or int(key) >= vocabulary_size:
            raise RequestError(
                f"logit_bias needs token ids from 0 to {vocabulary_size - 1} as keys", param="logit_bias"
            )
        bias[int(key)] = value
    return bias
