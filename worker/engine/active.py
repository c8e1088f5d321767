"""One request while it waits or runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from worker.decode.controller import DecodeState
from worker.engine.batch import Piece
from worker.engine.focus.focus import Focus
from worker.engine.prefix import extend_digests
from worker.engine.request import EngineEvent, GenerationRequest
from worker.engine.speculation.drafter import Drafter

FALL_HISTORY = 0.7
"""Weight of the past in the mean fall of H."""


@dataclass(slots=True, eq=False)
class ActiveRequest:
    """A request, what it has written so far, and how much of it is in the cache."""

    request: GenerationRequest
    state: DecodeState
    emit: Callable[[EngineEvent], None]
    number: int = 0
    """Counts arrivals."""
    arrived_s: float = 0.0
    slot: int = -1
    """-1 while it waits."""
    num_cached: int = 0
    """Tokens whose keys and values are in the slot."""
    num_written: int = 0
    """The most that the slot held since it was taken: a rejected draft lies behind ``num_cached``."""
    num_found: int = 0
    """Tokens of the prompt that the prefix cache had."""
    token_ids: list[int] = field(init=False)
    """Prompt and completion."""
    digests: list[bytes] = field(default_factory=list)
    """Of the full blocks of ``token_ids``, as far as they were needed."""
    held_blocks: list[int] = field(default_factory=list)
    """Blocks of the prefix cache that stay for as long as this runs, in the order of the text."""
    mean_fall_nats: float = 0.0
    """The smoothed fall of H from step to step: what it resolves now."""
    last_entropy_nats: float | None = None
    drafter: Drafter | None = None
    """None where nothing is drafted."""
    focus: Focus | None = None
    """None where every step attends to the whole text."""

    def __post_init__(self) -> None:
        self.token_ids = list(self.request.prompt_ids)

    @property
    def num_emitted(self) -> int:
        return len(self.token_ids) - len(self.request.prompt_ids)

    @property
    def last_id(self) -> int:
        """The token emitted last; it is the next step's input."""
        return self.token_ids[-1]

    @property
    def num_tokens(self) -> int:
        """Prompt and completion together."""
        return len(self.token_ids)

    @property
    def is_prefilling(self) -> bool:
        """Whether more is to be read than the last token: the prompt, or all of it after a preemption."""
        return self.num_tokens - self.num_cached > 1 or self.num_emitted == 0

    @property
    def shares_blocks(self) -> bool:
        """Whether it may take from and give to the prefix cache; an exact replay recomputes everything.

        So does any replay that drops blocks: what the cache has is never dropped, and has changed since.
        """
        is_replay_of_dropping = self.focus is not None and bool(self.request.forced_ids)
        return not (self.request.is_exclusive or is_replay_of_dropping)

    @property
    def num_shareable(self) -> int:
        """Tokens whose keys and values are what any other text would have: all, or of a text that was
        written without some of its blocks the prompt alone."""
        return self.num_tokens if self.focus is None else len(self.request.prompt_ids)

    def decode_piece(self) -> Piece:
        return Piece(self.slot, self.num_cached, (self.last_id,), num_logits=1)

    def prefill_piece(self, max_tokens: int) -> Piece:
        end = min(self.num_tokens, self.num_cached + max_tokens)
        chunk = tuple(self.token_ids[self.num_cached : end])
        return Piece(self.slot, self.num_cached, chunk, num_logits=int(end == self.num_tokens))

    def take(self, token_id: int, entropy_nats: float) -> None:
        """Take in an emitted token and the H that it was drawn at."""
        self.token_ids.append(token_id)
        fall = 0.0 if self.last_entropy_nats is None else max(0.0, self.last_entropy_nats - entropy_nats)
        self.mean_fall_nats = FALL_HISTORY * self.mean_fall_nats + (1.0 - FALL_HISTORY) * fall
        self.last_entropy_nats = entropy_nats

    def block_digests(self, num_tokens: int) -> list[bytes]:
        """Return the digests of the full blocks of the first ``num_tokens`` tokens."""
        return extend_digests(self.digests, self.token_ids, num_tokens)
