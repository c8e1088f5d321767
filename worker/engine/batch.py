"""What one forward pass computes: pieces of sequences, laid out as one ragged batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

import torch
from torch import Tensor


class SeesAttention(Protocol):
    """Is shown what the last tokens of a piece ask for."""

    def add(self, queries: Tensor, keys: Tensor) -> None:
        """Layer by layer: queries [queries, heads, head_dim], and all keys [kv_heads, tokens, head_dim]."""
        ...


class GivesRows(Protocol):
    """Stands for a slot in the attention of a single token."""

    def read(self, layer: int, end: int) -> tuple[Tensor, Tensor]:
        """Return some of the slot's keys and values up to ``end``, each [1, kv_heads, tokens, head_dim].

        Layers come in their order; the token's own row is in the slot already.
        """
        ...


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive tokens of one sequence: the last one with a draft behind it, or a chunk of the prompt."""

    slot: int
    start: int
    """Position of the first token."""
    token_ids: tuple[int, ...]
    num_logits: int
    """Of how many tokens at the end the logits after them are needed; 0 for a prompt that goes on."""
    num_told: int = 0
    """How many of these logits, the first ones, only tell how surprising the token behind them was."""
    kept: GivesRows | None = None
    """What a single token attends to instead of its whole slot."""
    look: SeesAttention | None = None
    """Takes in what the last tokens attend to."""

    @property
    def end(self) -> int:
        return self.start + len(self.token_ids)

    @property
    def num_drawn(self) -> int:
        """Logits that a token may be drawn from."""
        return self.num_logits - self.num_told


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows whose attention is one call: a chunk of one sequence, or single tokens in adjacent slots."""

    rows: slice
    slots: slice
    kv_length: int
    mask: Tensor | None
    """Added to the scores, [sequences, 1, queries, kv_length]; None where nothing is to be masked."""
    is_chunk: bool
    is_causal: bool
    """A chunk that begins its sequence: the plain triangle, for which kernels need no mask."""
    kept: GivesRows | None = None
    look: SeesAttention | None = None

    def as_sequences(self, rows: Tensor) -> Tensor:
        """View [rows, heads, head_dim] as [sequences, heads, queries, head_dim]."""
        return rows.transpose(0, 1).unsqueeze(0) if self.is_chunk else rows.unsqueeze(2)

    def as_rows(self, sequences: Tensor) -> Tensor:
        """Turn [sequences, heads, queries, head_dim] back into [rows, heads * head_dim]."""
        return sequences.squeeze(0).transpose(0, 1).flatten(1) if self.is_chunk else sequences.flatten(1)


@dataclass(frozen=True, slots=True)
class Layout:
    """The tensors of a ragged batch of N tokens, made once a step and shared by all layers."""

    token_ids: Tensor
    """int64 [N]"""
    positions: Tensor
    """int64 [N]"""
    slots: Tensor
    """int64 [N]"""
    sampled_rows: Tensor | None
    """Rows whose logits are wanted; None where all are."""

    @property
    def num_tokens(self) -> int:
        return self.token_ids.shape[0]


def lay_out(pieces: Sequence[Piece], device: torch.device) -> Layout:
    """Lay out pieces as rows in their order; pieces of one token should come in the order of their slots."""

    def tensor(values: list[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64).to(device)

    ends = list(accumulate(len(piece.token_ids) for piece in pieces))
    sampled = [
        row for piece, end in zip(pieces, ends, strict=True) for row in range(end - piece.num_logits, end)
    ]
    return Layout(
        token_ids=tensor([token for piece in pieces for token in piece.token_ids]),
        positions=tensor([position for piece in pieces for position in range(piece.start, piece.end)]),
        slots=tensor([piece.slot for piece in pieces for _ in piece.token_ids]),
        sampled_rows=None if len(sampled) == ends[-1] else tensor(sampled),
    )


_CALL_COST_TOKENS = 128
"""What one more attention call costs, in keys of one row (measured: 10 us against 0.08 us)."""


def segments_of(pieces: Sequence[Piece], dtype: torch.dtype, device: torch.device) -> tuple[Segment, ...]:
    """Join rows to as few calls as pays; masks are of ``dtype``."""
    segments = []
    row = 0
    for group in _groups(pieces):
        num_rows = sum(len(piece.token_ids) for piece in group)
        mask = _mask(group, dtype)
        segments.append(
            Segment(
                rows=slice(row, row + num_rows),
                slots=slice(group[0].slot, group[-1].slot + 1),
                kv_length=max(piece.end for piece in group),
                mask=None if mask is None else mask.to(device),
                is_chunk=num_rows > len(group),
                is_causal=num_rows > len(group) and group[0].start == 0,
                kept=group[0].kept,
                look=group[0].look,
            )
        )
        row += num_rows
    return tuple(segments)


def _groups(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Join single tokens in adjacent slots, unless padding to one length costs more than another call."""
    groups: list[list[Piece]] = []
    for piece in pieces:
        if groups and _can_join(groups[-1], piece):
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return groups


def _can_join(group: list[Piece], piece: Piece) -> bool:
    last = group[-1]
    if any(each.kept is not None or each.look is not None for each in (last, piece)):
        return False
    if len(piece.token_ids) > 1 or len(last.token_ids) > 1 or piece.slot != last.slot + 1:
        return False
    longest = max(member.end for member in group)
    joined = (len(group) + 1) * max(longest, piece.end)
    apart = len(group) * longest + piece.end + _CALL_COST_TOKENS
    return joined <= apart


def _mask(group: list[Piece], dtype: torch.dtype) -> Tensor | None:
    """Minus infinity at keys that a query must not see."""
    if len(group) == 1:
        return _chunk_mask(group[0], dtype)
    ends = torch.tensor([piece.end for piece in group])
    if bool((ends == ends[0]).all()):
        return None
    hidden = torch.arange(int(ends.max())) >= ends[:, None]
    return _as_scores(hidden, dtype)[:, None, None]


def _chunk_mask(piece: Piece, dtype: torch.dtype) -> Tensor | None:
    if len(piece.token_ids) == 1 or piece.start == 0:
        return None
    hidden = torch.arange(piece.end) > torch.arange(piece.start, piece.end)[:, None]
    return _as_scores(hidden, dtype)[None, None]


def _as_scores(hidden: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.zeros(hidden.shape, dtype=dtype).masked_fill_(hidden, float("-inf"))
