"""Buckets to pools: workers that are for a turn's bucket come first, as far as their load allows.

A worker may be meant for some buckets, since an engine has one setting for all that it serves: long drafts
where the text is sure, none where it is open. It is a preference and never a reason for an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from gateway.pool.worker import Worker

BucketPool: TypeAlias = Literal["own", "shared", "other"]
"""Where a turn went: to a worker that is for its bucket, for all of them, or for others."""
SPILL_FACTOR = 2
"""How much busier than another worker one may be before it no longer comes first for its buckets."""


def pool_of(worker: Worker, bucket: int) -> BucketPool:
    """Return what ``worker`` is to a turn of this bucket."""
    if not worker.buckets:
        return "shared"
    return "own" if bucket in worker.buckets else "other"


def suited(workers: Sequence[Worker], bucket: int) -> Sequence[Worker]:
    """Return those of ``workers`` that a turn is to be given to; not empty where ``workers`` is not.

    They are those for its bucket, and those for all. Where there is none, or where the idlest of them has
    SPILL_FACTOR times the open turns that the idlest of the others would have with this one, it is everybody:
    the settings that suit gain less than a line costs.
    """
    suiting = [worker for worker in workers if pool_of(worker, bucket) != "other"]
    if not suiting or len(suiting) == len(workers):
        return workers
    others = (worker.num_in_flight for worker in workers if pool_of(worker, bucket) == "other")
    least_busy = min(worker.num_in_flight for worker in suiting)
    return workers if least_busy >= SPILL_FACTOR * (1 + min(others)) else suiting
