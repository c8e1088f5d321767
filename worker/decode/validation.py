"""Checks the sampling parameters of a request before any of its tokens is decoded."""

from __future__ import annotations

import math

from worker.decode.errors import ControlError
from worker.engine.request import GenerationRequest, SamplingParams

MAX_TOP_LOGPROBS = 20
MAX_LOGIT_BIAS = 100.0


def check_request(request: GenerationRequest, vocabulary_size: int) -> None:
    """Raise ControlError for a value that cannot be decoded, naming its field."""
    _check_sampling(request.sampling, vocabulary_size)
    for param, ids in (("prompt", request.prompt_ids), ("tokens", request.forced_ids)):
        in_range = not ids or (min(ids) >= 0 and max(ids) < vocabulary_size)
        _require(in_range, param, f"token ids from 0 to {vocabulary_size - 1}")


def _check_sampling(sampling: SamplingParams, vocabulary_size: int) -> None:
    _require(math.isfinite(sampling.temperature) and sampling.temperature >= 0.0, "temperature", "0 or more")
    _require(sampling.top_k >= 0, "top_k", "0 (all tokens) or more")
    _require(0.0 < sampling.top_p <= 1.0, "top_p", "above 0 and at most 1")
    _require(0.0 <= sampling.min_p <= 1.0, "min_p", "between 0 and 1")
    _require(
        math.isfinite(sampling.repetition_penalty) and sampling.repetition_penalty > 0.0,
        "repetition_penalty",
        "above 0",
    )
    _require(-2.0 <= sampling.presence_penalty <= 2.0, "presence_penalty", "between -2 and 2")
    _require(-2.0 <= sampling.frequency_penalty <= 2.0, "frequency_penalty", "between -2 and 2")
    _require(
        sampling.num_top_logprobs is None or 0 <= sampling.num_top_logprobs <= MAX_TOP_LOGPROBS,
        "top_logprobs",
        f"between 0 and {MAX_TOP_LOGPROBS}",
    )
    for token_id, bias in sampling.logit_bias.items():
        _require(
            0 <= token_id < vocabulary_size, "logit_bias", f"for token ids from 0 to {vocabulary_size - 1}"
        )
        _require(
            abs(bias) <= MAX_LOGIT_BIAS, "logit_bias", f"between -{MAX_LOGIT_BIAS:g} and {MAX_LOGIT_BIAS:g}"
        )


def _require(is_valid: bool, param: str, rule: str) -> None:
    if not is_valid:
        raise ControlError(f"{param} must be {rule}", param=param)
