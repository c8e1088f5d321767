"""Quest (Tang et al., 2024), to measure against: pages of keys chosen anew by every query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from worker.engine.active import ActiveRequest
from worker.engine.batch import Piece
from worker.engine.focus.keeper import BlockKeeper
from worker.engine.model import LanguageModel
from worker.engine.scheduler import StepPlan
from worker.thermo.blocks import BLOCK_TOKENS


class QuestPages:
    """At every step, layer and key head the blocks whose keys may score highest with this query.

    A block's bound is sum over d of max(q_d * min_d, q_d * max_d), min and max over its keys; here the mean
    over the query heads that share a key head. The block being written is always taken. Quest leaves the
    first two layers whole; here all layers take equally many, so that equal shares are compared.
    """

    def __init__(self, layers: Sequence[Tensor], share: float) -> None:
        """``layers`` are a slot's rows, [tokens, 2 * kv_heads, head_dim] each."""
        self._layers = layers
        self._share = share
        self._num_kv_heads = layers[0].shape[1] // 2
        self._lows: list[Tensor] = [self._bounds(layer, 0, 0)[0] for layer in layers]
        self._highs: list[Tensor] = list(self._lows)
        self._layer = 0
        self._chosen = torch.empty(0, dtype=torch.int64)

    def grow(self, num_tokens: int) -> None:
        """Take in the full blocks of the first ``num_tokens`` tokens of the slot."""
        for index, layer in enumerate(self._layers):
            low, high = self._bounds(layer, self._lows[index].shape[1], num_tokens // BLOCK_TOKENS)
            self._lows[index] = torch.cat([self._lows[index], low], 1)
            self._highs[index] = torch.cat([self._highs[index], high], 1)

    def add(self, queries: Tensor, keys: Tensor) -> None:
        """Choose the blocks of the layer that is read next. One query; its own block is not among them."""
        lows, highs = self._lows[self._layer], self._highs[self._layer]
        grouped = queries[0].to(lows.dtype).view(self._num_kv_heads, -1, queries.shape[-1])
        bounds = grouped.clamp(min=0) @ highs.transpose(1, 2) + grouped.clamp(max=0) @ lows.transpose(1, 2)
        num_blocks = -(-keys.shape[1] // BLOCK_TOKENS)
        num_chosen = min(max(1, round(self._share * num_blocks) - 1), lows.shape[1])
        self._chosen = bounds.mean(1).topk(num_chosen).indices

    def read(self, layer: int, end: int) -> tuple[Tensor, Tensor]:
        """Return keys and values of the chosen blocks, and of those behind the last full one."""
        self._layer = (layer + 1) % len(self._layers)
        rows = self._layers[layer]
        num_full = self._lows[layer].shape[1]
        full = rows[: num_full * BLOCK_TOKENS].view(num_full, BLOCK_TOKENS, *rows.shape[1:])
        behind = rows[num_full * BLOCK_TOKENS : end]
        keys: list[Tensor] = []
        values: list[Tensor] = []
        for head, blocks in enumerate(self._chosen):
            for parts, place in ((keys, head), (values, head + self._num_kv_heads)):
                chosen = full[:, :, place].index_select(0, blocks).flatten(0, 1)
                parts.append(torch.cat([chosen, behind[:, place]]))
        return torch.stack(keys).unsqueeze(0), torch.stack(values).unsqueeze(0)

    def _bounds(self, layer: Tensor, start: int, end: int) -> tuple[Tensor, Tensor]:
        """Return min and max of the keys of blocks ``start`` to ``end``, [kv_heads, blocks, head_dim]."""
        keys = layer[start * BLOCK_TOKENS : end * BLOCK_TOKENS, : self._num_kv_heads].float()
        blocks = keys.reshape(end - start, BLOCK_TOKENS, *keys.shape[1:]).transpose(0, 2)
        return blocks.amin(1), blocks.amax(1)


class QuestKeeper(BlockKeeper):
    """Lets the single tokens of one slot attend to a share of its blocks, as Quest chooses them."""

    def __init__(self, model: LanguageModel, slot: int, share: float) -> None:
        super().__init__(model)
        self._pages = QuestPages(model.kept_rows(slot).source, share)

    def with_views(self, plan: StepPlan) -> StepPlan:
        return replace(
            plan,
            pieces=tuple(
                self._paged(active, piece) for active, piece in zip(plan.active, plan.pieces, strict=True)
            ),
        )

    def _paged(self, active: ActiveRequest, piece: Piece) -> Piece:
        if active.is_prefilling:
            return piece
        self._pages.grow(piece.start)
        return replace(piece, kept=self._pages, look=self._pages)
