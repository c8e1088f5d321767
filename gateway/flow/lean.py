"""Keyword gravity for opaque workers: the task's words as OpenAI's ``logit_bias``.

A bias by token id is all that such a server takes: constant over the answer and blind to what the model holds
for plausible. So decay, stages, drift, the plausible set and the theme's vector have no counterpart here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from gateway.context.words import STOP_WORDS
from gateway.errors import RequestError, UpstreamTimeout
from gateway.flow.turn import Turn
from gateway.pool.pieces import Pieces, WordPieces
from gateway.pool.worker import Worker
from worker.protocol import GravityControls

MAX_ENTRIES = 300
"""OpenAI's bound, the client's own entries among them."""
LARGEST = 100.0
"""OpenAI's bound of a bias; at minus this a token is as good as banned."""
NO_TOKENIZER = (
    "The task's words were not passed on: the worker has no /tokenize, and NG_OPAQUE_TOKENIZERS names no "
    "tokenizer for its model."
)
TOO_SLOW = "The task's words were not passed on: the worker's /tokenize did not spell them in time."
NOTHING: Mapping[str, float] = MappingProxyType({})


class Lean:
    """Turns a task's gravity into the bias that leans an answer towards it."""

    def __init__(self, pieces: WordPieces) -> None:
        self._pieces = pieces

    async def bias(self, turn: Turn, worker: Worker) -> tuple[Mapping[str, float], tuple[str, ...]]:
        """Return the bias by token id, and warnings where the words cannot be spelled."""
        gravity = turn.controls.gravity
        if gravity is None or not (gravity.keywords or gravity.penalize):
            return NOTHING, ()
        boosted, penalised = _told(gravity.keywords), _told(gravity.penalize)
        try:
            spelled = await self._pieces.of(worker, turn.model, [*boosted, *penalised])
        except UpstreamTimeout:
            return NOTHING, (TOO_SLOW,)
        except RequestError:
            return NOTHING, (NO_TOKENIZER,)
        own = turn.body.get("logit_bias") or {}
        room = max(0, MAX_ENTRIES - len(own))
        nats = bias_nats(gravity, [spelled[word] for word in boosted], [spelled[word] for word in penalised])
        kept = sorted((id_ for id_ in nats if str(id_) not in own), key=lambda id_: -abs(nats[id_]))[:room]
        return {str(id_): nats[id_] for id_ in kept}, ()


def bias_nats(
    gravity: GravityControls, boosted: Sequence[Pieces], penalised: Sequence[Pieces]
) -> dict[int, float]:
    """Return the bias of each token id: boosts, then penalties, within ``max_bias_nats`` and OpenAI's bound.

    A token that is a keyword by itself does not suffer for being the beginning of a penalised word.
    """
    whole = _union(pieces.whole for pieces in boosted)
    nats = dict.fromkeys(sorted(whole | _union(pieces.first for pieces in boosted)), gravity.boost_weight)
    banned: frozenset[int] = _union(pieces.whole for pieces in penalised)
    if gravity.mode == "bias":
        for id_ in sorted(banned | (_union(pieces.first for pieces in penalised) - whole)):
            nats[id_] = nats.get(id_, 0.0) - gravity.penalty_weight
    limit = min(gravity.max_bias_nats, LARGEST)
    leaned = {id_: max(-limit, min(limit, unit * gravity.strength)) for id_, unit in nats.items()}
    if gravity.mode == "mask":
        leaned |= dict.fromkeys(sorted(banned), -LARGEST)
    return {id_: value for id_, value in leaned.items() if value}


def _told(words: Iterable[str]) -> list[str]:
    """Return the words that say something, each once."""
    return list(dict.fromkeys(word for word in words if word.strip() and word.lower() not in STOP_WORDS))


def _union(sets: Iterable[frozenset[int]]) -> frozenset[int]:
    return frozenset().union(*sets)
