"""The drafts of a whole batch: put into a step's plan before it runs, the wrong ones taken out after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from worker.decode.controller import Decision, RowFailure
from worker.engine.active import ActiveRequest
from worker.engine.batch import Piece
from worker.engine.model import LanguageModel
from worker.engine.request import GenerationRequest
from worker.engine.scheduler import StepPlan
from worker.engine.speculation.budget import Offer, StepPrice, share_out
from worker.engine.speculation.drafter import Draft, Drafter

Part = tuple[ActiveRequest, Piece]


class Speculator:
    """Lengthens decoding pieces by drafts as far as they are worth it and there is memory for them."""

    def __init__(
        self, model: LanguageModel, max_tokens: int, max_draft: int, price: StepPrice | None = None
    ) -> None:
        """``max_tokens`` bounds what all running requests hold together; ``max_draft`` a request's draft."""
        self.num_drafted = 0
        self.num_accepted = 0
        self._max_context = model.max_context
        self._max_tokens = max_tokens
        self._max_draft = max_draft if model.can_rewind else 0
        self._price = price or StepPrice.of(model.dtype, model.kernels)

    def drafter(self, request: GenerationRequest) -> Drafter | None:
        """Return what drafts for a request; None where nothing may be, as in a replay."""
        controls = request.controls.speculation
        if controls is None or controls.mode == "off" or not self._max_draft:
            return None
        if request.forced_ids or request.is_exclusive:
            return None
        max_draft = min(controls.max_draft, self._max_draft)
        return Drafter(controls.model_copy(update={"max_draft": max_draft}))

    def with_drafts(self, plan: StepPlan, running: Sequence[ActiveRequest]) -> StepPlan:
        """Return the plan with drafts behind the last tokens of those that decode.

        Single tokens stay in front, then come drafts, then chunks of prompts.
        """
        parts = list(zip(plan.active, plan.pieces, strict=True))
        decoding = [part for part in parts if not part[0].is_prefilling]
        drafts = self._drafts(decoding, running)
        if not any(drafts):
            return plan
        drafted = [
            (active, _lengthened(piece, ids)) for (active, piece), ids in zip(decoding, drafts, strict=True)
        ]
        drafted.sort(key=lambda part: part[1].num_logits > 1)  # stable: by slot among equals
        parts[: len(drafted)] = drafted
        self.num_drafted += sum(len(ids) for ids in drafts)
        return StepPlan(tuple(active for active, _ in parts), tuple(piece for _, piece in parts))

    def without_rejected(
        self, plan: StepPlan, decided: Mapping[ActiveRequest, Sequence[Decision | RowFailure]]
    ) -> StepPlan:
        """Return the plan as far as its tokens hold, and learn from what was decided.

        A piece ends before the last token that it gave, or where a draft was wrong.
        """
        pieces = []
        for active, piece in zip(plan.active, plan.pieces, strict=True):
            active.num_written = max(active.num_written, piece.end)
            given = decided.get(active, ())
            if active.drafter is not None:
                self._learn(active.drafter, [each for each in given if isinstance(each, Decision)])
            is_drafted = piece.num_drawn > 1
            pieces.append(replace(piece, token_ids=piece.token_ids[: len(given)]) if is_drafted else piece)
        return replace(plan, pieces=tuple(pieces))

    def _learn(self, drafter: Drafter, decisions: Sequence[Decision]) -> None:
        drafter.observe([decision.token_id for decision in decisions])
        self.num_accepted += sum(decision.record.accepted_draft for decision in decisions)

    def _drafts(self, decoding: Sequence[Part], running: Sequence[ActiveRequest]) -> list[tuple[int, ...]]:
        proposals = [self._proposal(active) for active, _ in decoding]
        if not any(draft.token_ids for draft in proposals):
            return []
        spare = max(0, self._max_tokens - sum(active.num_tokens + 1 for active in running))
        lengths = self._lengths(decoding, proposals, spare)
        return [draft.token_ids[:length] for draft, length in zip(proposals, lengths, strict=True)]

    def _proposal(self, active: ActiveRequest) -> Draft:
        drafter, entropy_nats = active.drafter, active.last_entropy_nats
        if drafter is None or entropy_nats is None:
            return Draft()
        # Each checked position gives a token, the last one beyond the draft.
        num_wanted = active.request.sampling.max_tokens - active.num_emitted - 1
        num_free = self._max_context - active.num_tokens - 1
        return drafter.propose(active.token_ids, entropy_nats, max(0, min(num_wanted, num_free)))

    def _lengths(self, decoding: Sequence[Part], proposals: Sequence[Draft], spare: int) -> list[int]:
        """Return how much of each proposal is checked, together at most ``spare`` tokens."""
        offers = [
            Offer(draft.chances, is_whole=_is_fixed(active))
            for (active, _), draft in zip(decoding, proposals, strict=True)
        ]
        if len(offers) == 1 and offers[0].is_whole:
            return [min(len(offers[0].chances), spare)]  # alone, what is asked for is done
        return share_out(offers, len(offers), spare, self._price)


def _is_fixed(active: ActiveRequest) -> bool:
    return active.drafter is not None and active.drafter.controls.mode == "fixed"


def _lengthened(piece: Piece, draft_ids: tuple[int, ...]) -> Piece:
    return replace(piece, token_ids=(*piece.token_ids, *draft_ids), num_logits=1 + len(draft_ids))
