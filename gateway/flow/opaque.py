"""What is added to a request for an opaque worker, and what each of them has been found to take.

The log-probabilities that H is estimated from, and the task's words as a ``logit_bias``. Both are asked for
in our own interest: a worker that refuses them gets the request without, at once, and is remembered for a
while.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from gateway.errors import UpstreamRejected
from gateway.flow.estimate import Asked, StepSink, TurnEstimate
from gateway.flow.lean import Lean
from gateway.flow.logprobs import SILENT
from gateway.flow.turn import Turn
from gateway.pool.worker import Worker
from gateway.settings import GatewaySettings

NUM_TOP = 20
"""OpenAI's most."""
FEWER_TOP = 5
"""What servers allow that allow no twenty, OpenAI's text completions among them."""
REMEMBERED_S = 3_600.0
CHAT = "/v1/chat/completions"
_NUMBER = re.compile(r"\d+")
NOTHING: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Additions:
    """What one request carries beside the client's own."""

    num_top: int = 0
    """Likeliest tokens to show at each step; 0 leaves the client's own wish as it is."""
    bias: Mapping[str, float] = field(default_factory=lambda: NOTHING)
    """By token id, as OpenAI writes them."""
    warnings: tuple[str, ...] = ()
    is_reduced: bool = False
    """Whether the worker has refused more than this."""

    def fewer(self, error: UpstreamRejected) -> Additions | None:
        """Return what may be asked for after this refusal; None where it cannot be about us.

        A refusal that names neither of the two may be about either or about the client's own fields: the
        request goes once without both, and only its success says that they were at fault.
        """
        if error.code == "context_length_exceeded" or not (self.num_top or self.bias):
            return None
        told = f"{error.param or ''} {error.message}".lower()
        if "logprob" in told and self.num_top:
            return replace(self, num_top=_allowed(told, self.num_top), is_reduced=True)
        if "bias" in told and self.bias:
            return replace(self, bias=NOTHING, is_reduced=True)
        return replace(self, num_top=0, bias=NOTHING, is_reduced=True)

    def laid_over(self, turn: Turn) -> Turn:
        """Return the turn with its worker's body extended."""
        body = dict(turn.upstream_body)
        if self.num_top > max(0, client_top(turn)):
            is_chat = turn.endpoint == CHAT
            body |= (
                {"logprobs": True, "top_logprobs": self.num_top} if is_chat else {"logprobs": self.num_top}
            )
        if self.bias:
            body["logit_bias"] = {**self.bias, **(body.get("logit_bias") or {})}
        return turn.grown(upstream_body=body, warnings=(*turn.warnings, *self.warnings))


@dataclass(frozen=True, slots=True)
class _Found:
    """What a worker took of one model's requests."""

    num_top: int
    takes_bias: bool
    until_s: float


class OpaqueServers:
    """Knows what each opaque worker takes. One per gateway."""

    def __init__(
        self, settings: GatewaySettings, lean: Lean, sink: StepSink, monotonic: Callable[[], float]
    ) -> None:
        self._settings = settings
        self._lean = lean
        self._sink = sink
        self._monotonic = monotonic
        self._found: dict[tuple[str, str, str], _Found] = {}

    async def additions(self, turn: Turn, worker: Worker) -> Additions:
        """Return what to try first, as far as the task, the settings and what is known allow."""
        task = turn.task
        found = self._found.get(_place(turn, worker))
        if found is not None and found.until_s <= self._monotonic():
            found = None
        allows_logprobs = self._settings.opaque_logprobs and (task is None or task.opaque.logprobs)
        num_top = (NUM_TOP if found is None else found.num_top) if allows_logprobs else 0
        takes_bias = found is None or found.takes_bias
        if (
            turn.controls.gravity is None
            or not takes_bias
            or (task is not None and not task.opaque.logit_bias)
        ):
            return Additions(num_top)
        bias, warnings = await self._lean.bias(turn, worker)
        return Additions(num_top, bias, warnings)

    def remember(self, turn: Turn, worker: Worker, taken: Additions, first: Additions) -> None:
        """The worker took these, after it had refused ``first``."""
        until_s = self._monotonic() + REMEMBERED_S
        takes_bias = bool(taken.bias) or not first.bias
        self._found[_place(turn, worker)] = _Found(taken.num_top, takes_bias, until_s)

    def estimate(self, turn: Turn, worker: Worker) -> TurnEstimate | None:
        """Return what reads the answer to the request as it was sent; None where it shows no tokens."""
        num_top = _num_top(turn.endpoint, turn.upstream_body)
        if num_top < 1:
            return None
        body, size = turn.upstream_body, self._vocabulary_size(turn.model, worker)
        temperature, top_p, top_k = body.get("temperature"), body.get("top_p"), body.get("top_k")
        asked = Asked(
            turn_id=turn.id,
            num_top=num_top,
            client_top=client_top(turn),
            vocabulary_size=size,
            top_k=top_k if isinstance(top_k, int) and 0 < top_k < size else size,
            top_p=1.0 if top_p is None else float(top_p),
            temperature=1.0 if temperature is None else float(temperature),
            bucket=turn.bucket,
            has_tokens=turn.controls.trace is None or turn.controls.trace.has_tokens,
        )
        return TurnEstimate(asked, self._sink, self._monotonic)

    def _vocabulary_size(self, model: str, worker: Worker) -> int:
        told = self._settings.opaque_vocabulary_sizes.get(model) or worker.vocabulary_sizes.get(model)
        return told or self._settings.opaque_vocabulary_size


def client_top(turn: Turn) -> int:
    """How many likeliest tokens a step the client asked for; SILENT where it wants no log-probabilities."""
    return _num_top(turn.endpoint, turn.body)


def _num_top(endpoint: str, body: Mapping[str, Any]) -> int:
    wanted = body.get("logprobs")
    if endpoint == CHAT:
        return (body.get("top_logprobs") or 0) if wanted is True else SILENT
    return SILENT if wanted is None else int(wanted)


def _allowed(told: str, num_refused: int) -> int:
    """Return the next number to try: the largest below the refused one that the refusal names."""
    named = [int(number) for number in _NUMBER.findall(told) if 0 < len(number) < 4]
    below = [number for number in named if 0 < number < num_refused]
    if below:
        return max(below)
    return FEWER_TOP if num_refused > FEWER_TOP else 0


def _place(turn: Turn, worker: Worker) -> tuple[str, str, str]:
    return worker.name, turn.model, turn.endpoint
