"""Turns whose prompts begin alike go to the worker that had such a prompt, whose cache holds it.

Which worker that is follows from the names alone, so all gateways agree without a word: rendezvous hashing
(Thaler and Ravishankar, Using name-based mappings to increase hit rates, 1998, doi 10.1109/90.663936). No
worker gets more than ``LOAD_FACTOR`` times the mean for it; the next in the key's order is taken then
(Mirrokni, Thorup and Zadimoghaddam, Consistent Hashing with Bounded Loads, 2016, arXiv:1608.01350).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b

from gateway.pool.worker import Worker

LOAD_FACTOR = 1.25
_MASK = 2**64 - 1


def key_of(model: str, text: str) -> int:
    """Return 64 bits of what turns have in common."""
    return int.from_bytes(blake2b(f"{model}\0{text}".encode(), digest_size=8).digest())


def preferred(workers: Sequence[Worker], key: int) -> Worker:
    """Return the first in the key's order that has room for it; while one is idle, the first of the idle."""
    idle = [worker for worker in workers if worker.num_in_flight == 0]
    if idle:
        return max(idle, key=lambda worker: weight(worker.name_hash, key))
    num_open = sum(worker.num_in_flight for worker in workers) + 1
    most = math.ceil(LOAD_FACTOR * num_open / len(workers))
    with_room = [worker for worker in workers if worker.num_in_flight < most]
    return max(with_room, key=lambda worker: weight(worker.name_hash, key))


def discounted(cost: float) -> float:
    """What a preferred worker's cost counts as: a warm cache is worth an open request and a fifth of load."""
    return max(0.0, cost / LOAD_FACTOR - 1.0)


def weight(name_hash: int, key: int) -> int:
    """Mix the two: splitmix64's finaliser (Steele, Lea and Flood, 2014, doi 10.1145/2660193.2660195)."""
    mixed = name_hash ^ key
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB & _MASK
    return mixed ^ (mixed >> 31)
