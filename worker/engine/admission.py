"""Refuses what could never run, however long it waited. What merely has to wait is the scheduler's matter."""

from __future__ import annotations

from worker.engine.model import LanguageModel
from worker.engine.request import GenerationRequest
from worker.errors import ContextTooLongError, RequestError


def check_fits(request: GenerationRequest, model: LanguageModel) -> None:
    """Raise RequestError where the prompt, a recorded completion or a control cannot be run on this model."""
    if request.controls.drops_blocks and not model.can_drop_blocks:
        raise RequestError("this worker's model cannot drop kv_blocks; turn them off", param="vllm_xargs")
    num_prompt, num_forced, limit = len(request.prompt_ids), len(request.forced_ids), model.max_context
    if num_prompt == 0:
        raise RequestError("the prompt is empty; give at least one token", param="prompt")
    if request.sampling.max_tokens < 1:
        raise RequestError("max_tokens must be at least 1", param="max_tokens")
    if num_prompt >= limit:
        raise ContextTooLongError(
            f"the prompt has {num_prompt} tokens, but prompt and completion together may have {limit}; "
            "shorten the messages"
        )
    if num_prompt + num_forced > limit:
        raise ContextTooLongError(
            f"prompt and recorded completion have {num_prompt + num_forced} tokens, but may have {limit}"
        )
    for name, ids in (("prompt", request.prompt_ids), ("tokens", request.forced_ids)):
        if ids and not (min(ids) >= 0 and max(ids) < model.vocab_size):
            raise RequestError(
                f"token ids must be from 0 to {model.vocab_size - 1}, the model's vocabulary", param=name
            )
