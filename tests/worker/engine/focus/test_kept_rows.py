from __future__ import annotations

import torch

from tests.worker.engine.test_kv import SHAPE
from worker.engine.focus.kept_rows import KeptRows
from worker.engine.kv import KVStore


def numbered(num_slots: int, slot_tokens: int) -> KVStore:
    """Every number of a token is its slot, layer and position as one."""
    store = KVStore(SHAPE, num_slots, slot_tokens, torch.float32, torch.device("cpu"))
    for layer, rows in enumerate(store.rows):
        rows[:] = torch.arange(len(rows))[:, None] + 1000.0 * layer
    return store


def positions(kept: KeptRows, layer: int, end: int) -> list[int]:
    keys, values = kept.read(layer, end)
    assert keys.shape == values.shape == (1, 1, keys.shape[2], 4)
    assert torch.equal(keys, values)
    assert bool((keys == keys[..., :1]).all())
    return (keys[0, 0, :, 0] - 1000.0 * layer).int().tolist()


def test_kept_blocks_lie_side_by_side_and_what_is_written_follows() -> None:
    store = numbered(num_slots=2, slot_tokens=90)
    kept = KeptRows(store, 1)
    kept.fill((0, 2, 3), room=20)
    whole = [*range(90, 106), *range(122, 154)]
    for layer in range(2):
        assert positions(kept, layer, 70) == [*whole, *range(154, 160)]
    store.rows[0][160] = store.rows[1][160] = -7.0  # the next token, and then one more
    for layer in range(2):
        assert positions(kept, layer, 72)[-2:] == [-7 - 1000 * layer, 161]


def test_a_copy_can_be_filled_again_with_more_or_fewer() -> None:
    kept = KeptRows(numbered(num_slots=1, slot_tokens=90), 0)
    kept.fill((1,), room=8)
    assert positions(kept, 0, 34) == [*range(16, 34)]
    kept.fill((0, 1, 2, 3), room=8)
    assert positions(kept, 0, 65) == [*range(65)]
    kept.fill((2,), room=8)
    assert positions(kept, 1, 50) == [*range(32, 50)]
