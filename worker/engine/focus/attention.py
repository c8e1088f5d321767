"""How much of a step's attention each token of a text is given, over all heads and layers."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

WINDOW = 16
"""Of a chunk of a prompt the last queries are looked at: they ask what the text is read for."""


class AttentionMean:
    """Filled layer by layer during one forward pass; a piece of the batch carries it there."""

    def __init__(self) -> None:
        self._sum: Tensor | None = None
        self._num_layers = 0

    def add(self, queries: Tensor, keys: Tensor) -> None:
        """Take in one layer: rotated queries [queries, heads, head_dim] at the end of ``keys``.

        ``keys`` is [kv_heads, tokens, head_dim]. The product is repeated here, since no kernel of attention
        gives its weights away; in the dtype that keys are stored in, the softmax in float32.
        """
        queries = queries[-WINDOW:]
        num_queries, num_heads, head_dim = queries.shape
        num_kv_heads, num_tokens, _ = keys.shape
        # Query heads that share a key head are adjacent. One product for all is far slower in bf16.
        grouped = queries.to(keys.dtype).view(num_queries, num_kv_heads, -1, head_dim).permute(1, 2, 0, 3)
        products = [head @ each.flatten(0, 1).T for head, each in zip(keys, grouped, strict=True)]
        scores = torch.stack([product.T for product in products]).float().mul_(head_dim**-0.5)
        if num_queries > 1:
            later = torch.ones(num_queries, num_queries, dtype=torch.bool, device=keys.device).triu_(1)
            ends = scores.view(num_kv_heads, -1, num_queries, num_tokens)[..., num_tokens - num_queries :]
            ends.masked_fill_(later, float("-inf"))
        mean = scores.softmax(-1).sum((0, 1)).div_(num_queries * num_heads)
        self._sum = mean if self._sum is None else self._sum.add_(mean)
        self._num_layers += 1

    def mean(self) -> NDArray[np.float32]:
        """Return the mean over queries, heads and layers, [tokens]; it sums to 1."""
        assert self._sum is not None, "the forward pass comes first"
        row: NDArray[np.float32] = (self._sum / self._num_layers).cpu().numpy()
        return row
