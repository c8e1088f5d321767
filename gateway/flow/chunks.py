"""A worker's stream made right: one identity, one role, one finish a choice, usage apart."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import orjson

from gateway.errors import UpstreamError
from gateway.flow.explain import closing, opening
from gateway.flow.tally import Tally
from gateway.flow.turn import Turn
from gateway.pool.refusal import refusal_inside_stream

FINISH_REASONS = frozenset({"stop", "length", "tool_calls", "content_filter"})
FOREIGN_REASONS = {"max_tokens": "length", "model_length": "length", "function_call": "tool_calls"}
"""Everything else that other servers write ("eos", "stop_sequence", …) means stop."""
FAILED_REASONS = frozenset({"error", "abort"})


def finish_reason_of(value: object) -> str:
    """Return OpenAI's word for a worker's. Raises UpstreamError where the worker says that it failed."""
    reason = str(value)
    if reason in FAILED_REASONS:
        raise UpstreamError("The worker gave the answer up.")
    return reason if reason in FINISH_REASONS else FOREIGN_REASONS.get(reason, "stop")


def fingerprint(worker_fingerprint: object, config_sha: str) -> str:
    """Hash of model and engine, which the worker gives, and the configuration version."""
    return "fp_" + blake2b(f"{worker_fingerprint}\0{config_sha}".encode(), digest_size=6).hexdigest()


def num_choices(body: Mapping[str, Any]) -> int:
    """How many choices a request asks for: n for each prompt."""
    prompt = body.get("prompt")
    is_batch = isinstance(prompt, list) and bool(prompt) and not isinstance(prompt[0], int)
    return (body.get("n") or 1) * (len(prompt) if is_batch and isinstance(prompt, list) else 1)


class Chunks:
    """Rewrites the events of one stream, in order. Every method gives the JSON of what goes out."""

    def __init__(self, turn: Turn, tally: Tally) -> None:
        self._turn = turn
        self._tally = tally
        self._is_chat = turn.endpoint == "/v1/chat/completions"
        self._num_expected = num_choices(turn.body)
        self._identity: dict[str, Any] = {}
        self._seen: set[int] = set()
        self._has_closing = False

    def rewrite(self, event: bytes) -> bytes | None:
        """Return the chunk for the client; None where nothing of it is for the client.

        Raises UpstreamError for what is no chunk, or the error that the worker sent (any-llm#847).
        """
        chunk = _parsed(event)
        self._tally.add_usage(chunk.pop("usage", None))
        summary = chunk.pop("gravity", None)
        sent = chunk.get("choices")
        choices = [c for c in map(self._choice, sent) if c is not None] if isinstance(sent, list) else []
        for choice in choices:
            if choice.get("finish_reason") is not None:
                self._tally.add_summary(choice["index"], choice.pop("gravity", summary))
        return self._dressed(chunk, choices) if choices else None

    def finish(self, *, said_done: bool) -> list[bytes]:
        """Return what is still owed at the end. Raises UpstreamError where the answer is not complete.

        A stream that just ends is complete only if every choice has finished (opencode#39968). One that says
        [DONE] is believed: a choice without a finish then stopped.
        """
        if not self._seen or (not said_done and self._tally.num_finished < self._num_expected):
            raise UpstreamError("The worker's stream ended before the answer was complete.")
        owed = []
        open_choices = sorted(choice for choice in self._seen if not self._tally.has_finished(choice))
        for index in open_choices:
            self._tally.add_finish(index, "stop")
            owed.append(self._dressed({}, [self._ended_choice(index)]))
        if not self._has_closing:
            owed.append(self._with_closing({**self._identity, "choices": []}))
        if self._turn.wants_usage and self._tally.usage:
            # litellm#25410: after the finish, in a chunk of its own.
            owed.append(orjson.dumps({**self._identity, "choices": [], "usage": self._tally.usage}))
        return owed

    def _choice(self, sent: object) -> dict[str, Any] | None:
        """Return the choice as the client gets it; None where it has finished already (vllm-mlx#628)."""
        choice: dict[str, Any] = sent if isinstance(sent, dict) else {"index": None}
        index = choice.get("index", 0)
        if not isinstance(index, int):
            raise UpstreamError("The worker sent a chunk that is none.")
        if self._tally.has_finished(index):
            return None
        choice["index"] = index
        if self._tally.estimate is not None:
            self._tally.estimate.take(index, choice)
        text = self._delta(choice, index) if self._is_chat else choice.get("text")
        self._seen.add(index)
        if isinstance(text, str) and text:
            self._tally.mark_token()
            self._tally.add_text(index, text)
        if choice.get("finish_reason") is not None:
            choice["finish_reason"] = finish_reason_of(choice["finish_reason"])
            self._tally.add_finish(index, choice["finish_reason"])
        return choice

    def _delta(self, choice: dict[str, Any], index: int) -> object:
        delta = choice.get("delta")
        choice["delta"] = delta = delta if isinstance(delta, dict) else {}
        if any(value for name, value in delta.items() if name != "role"):
            self._tally.mark_token()
        if index not in self._seen:
            choice["delta"] = {"role": "assistant", **delta}
        return delta.get("content")

    def _ended_choice(self, index: int) -> dict[str, Any]:
        content: dict[str, Any] = {"delta": {}} if self._is_chat else {"text": ""}
        return {"index": index, **content, "logprobs": None, "finish_reason": "stop"}

    def _dressed(self, chunk: dict[str, Any], choices: list[dict[str, Any]]) -> bytes:
        is_first = not self._identity
        if is_first:
            self._identity = self._identity_from(chunk)
        chunk |= self._identity
        chunk["choices"] = choices
        if is_first:
            chunk["gravity"] = opening(self._turn)
        if self._tally.num_finished >= self._num_expected and not self._has_closing:
            return self._with_closing(chunk)
        return orjson.dumps(chunk)

    def _with_closing(self, chunk: dict[str, Any]) -> bytes:
        self._has_closing = True
        chunk["gravity"] = chunk.get("gravity", {"turn_id": self._turn.id}) | closing(self._tally.outcome())
        return orjson.dumps(chunk)

    def _identity_from(self, chunk: Mapping[str, Any]) -> dict[str, Any]:
        created = chunk.get("created")
        return {
            "id": str(chunk.get("id") or self._turn.id),
            "object": "chat.completion.chunk" if self._is_chat else "text_completion",
            "created": created if isinstance(created, int) else int(self._turn.received_at),
            "model": self._turn.model,
            "system_fingerprint": fingerprint(chunk.get("system_fingerprint"), self._turn.config_sha),
        }


def _parsed(event: bytes) -> dict[str, Any]:
    try:
        chunk = orjson.loads(event)
    except orjson.JSONDecodeError as error:
        raise UpstreamError("The worker sent what is not JSON.") from error
    if not isinstance(chunk, dict):
        raise UpstreamError("The worker sent a chunk that is none.")
    if chunk.get("error") and not chunk.get("choices"):
        raise refusal_inside_stream(chunk["error"])
    return chunk
