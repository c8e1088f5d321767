"""Puts into a step's pieces what they attend to and what is to be learnt from them, and learns it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import Tensor

from worker.decode.controller import Decision, RowFailure
from worker.engine.active import ActiveRequest
from worker.engine.batch import Piece
from worker.engine.focus.attention import AttentionMean
from worker.engine.focus.focus import Focus
from worker.engine.model import LanguageModel
from worker.engine.request import GenerationRequest
from worker.engine.scheduler import StepPlan
from worker.thermo.blocks import FloatRow

_ROWS_AT_ONCE = 32
"""Logits are widened to float32 in parts, for memory's sake."""


class BlockKeeper:
    """Serves the requests whose controls have ``kv_blocks``; a plan without any passes as it is."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    def focus(self, request: GenerationRequest) -> Focus | None:
        """Return what remembers the text of a request; None where every step attends to everything."""
        controls = request.controls.kv_blocks
        return None if controls is None or controls.mode == "off" else Focus(controls)

    def with_views(self, plan: StepPlan) -> StepPlan:
        """Return the plan with what each piece attends to, and with what its pass has to show."""
        if all(active.focus is None for active in plan.active):
            return plan
        pairs = zip(plan.active, plan.pieces, strict=True)
        return replace(plan, pieces=tuple(self._viewed(active, piece) for active, piece in pairs))

    def learn(
        self,
        plan: StepPlan,
        logits: Tensor,
        decided: Mapping[ActiveRequest, tuple[Decision | RowFailure, ...]],
    ) -> Mapping[ActiveRequest, tuple[Decision | RowFailure, ...]]:
        """Take in what the step showed, and return its decisions with the share of blocks they come from."""
        if all(active.focus is None for active in plan.active):
            return decided
        marked = dict(decided)
        ends = accumulate(piece.num_logits for piece in plan.pieces)
        for active, piece, end in zip(plan.active, plan.pieces, ends, strict=True):
            if active.focus is None:
                continue
            if piece.num_told:
                told_ids = active.token_ids[piece.start + 1 : piece.start + 1 + piece.num_told]
                told = logits[end - piece.num_logits : end - piece.num_drawn]
                active.focus.tell(piece.start + 1, surprisals(told, told_ids))
            if active in decided:
                marked[active] = tuple(
                    self._taken(active, active.focus, piece, each) for each in decided[active]
                )
            if isinstance(piece.look, AttentionMean):
                active.focus.look(piece.look.mean(), active.num_found)
        return marked

    def _viewed(self, active: ActiveRequest, piece: Piece) -> Piece:
        focus = active.focus
        if focus is None:
            return piece
        if active.is_prefilling:
            focus.leave_slot()
            num_told = len(piece.token_ids) - piece.num_logits if focus.weighs_surprisal else 0
            look = AttentionMean() if piece.num_logits else None
            return replace(piece, num_logits=num_told + piece.num_logits, num_told=num_told, look=look)
        if focus.is_look_due:
            return replace(piece, look=AttentionMean())
        if focus.is_narrow:
            return replace(piece, kept=focus.rows(partial(self._model.kept_rows, active.slot)))
        return piece

    def _taken(
        self, active: ActiveRequest, focus: Focus, piece: Piece, decision: Decision | RowFailure
    ) -> Decision | RowFailure:
        if isinstance(decision, RowFailure):
            return decision
        record = decision.record
        focus.take(record.entropy_nats)
        focus.tell(active.num_tokens, [-record.logprob])
        if piece.kept is None:
            return decision
        return replace(decision, record=replace(record, kept_share=focus.kept_share(piece.end)))


@torch.inference_mode()
def surprisals(logits: Tensor, token_ids: Sequence[int]) -> FloatRow:
    """Return -ln p of the tokens that came after each row of logits [tokens, vocab]."""
    came = torch.tensor(token_ids)
    starts = range(0, len(came), _ROWS_AT_ONCE)
    told = [
        F.cross_entropy(
            logits[start : start + _ROWS_AT_ONCE].float(),
            came[start : start + _ROWS_AT_ONCE],
            reduction="none",
        )
        for start in starts
    ]
    row: FloatRow = torch.cat(told).numpy()
    return row
