"""Drafts the next tokens of one request, and keeps count of how often it foresees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from worker.engine.speculation.chance import AGREEMENT_HISTORY, FIRST_AGREEMENT, ChanceModel, Evidence
from worker.engine.speculation.lookup import LookupIndex
from worker.protocol import SpeculationControls


@dataclass(frozen=True, slots=True)
class Draft:
    """What may come next, and how likely each token is, together with all before it, what will come."""

    token_ids: tuple[int, ...] = ()
    chances: tuple[float, ...] = ()


class Drafter:
    """One request's own. ``propose`` and ``observe`` alternate, once a step."""

    def __init__(self, controls: SpeculationControls, model: ChanceModel | None = None) -> None:
        self.controls = controls
        self._model = model or ChanceModel()
        self._index = LookupIndex(controls.min_match)
        self._agreement = FIRST_AGREEMENT
        self._foreseen: tuple[int, ...] = ()

    def propose(self, token_ids: Sequence[int], entropy_nats: float, max_tokens: int) -> Draft:
        """Return at most ``max_tokens`` tokens that may follow the text; none where it is new."""
        match = self._index.find(token_ids)
        if match is None:
            self._foreseen = ()
            return Draft()
        num_tokens = min(self.controls.max_draft, max_tokens)
        # One more than may be drafted: also what is not drafted shows whether the look-up would be right.
        self._foreseen = _continued(token_ids, match.follows, num_tokens + 1)
        evidence = Evidence(match, entropy_nats, self._agreement)
        return Draft(self._foreseen[:num_tokens], self._model.chances(evidence, num_tokens))

    def observe(self, emitted: Sequence[int]) -> None:
        """Take in what really came, and so how much of what was foreseen was right."""
        for foreseen, token_id in zip(self._foreseen, emitted, strict=False):
            is_right = foreseen == token_id
            self._agreement += (1.0 - AGREEMENT_HISTORY) * (is_right - self._agreement)
        self._foreseen = ()


def _continued(token_ids: Sequence[int], follows: int, count: int) -> tuple[int, ...]:
    """Return ``count`` tokens from index ``follows`` on; a text that ends before goes round in its circle."""
    period = len(token_ids) - follows
    return tuple(token_ids[follows + index % period] for index in range(count))
