"""A key's limits in this process: what Redis said last, and all there is while Redis is away."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.keys.bucket import Bucket
from gateway.keys.key import Limits
from gateway.keys.standing import Short, Standing


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request takes. ``lease``: the turn's id, empty for what is no turn."""

    num_requests: int = 1
    num_tokens: int = 0
    lease: str = ""


@dataclass(slots=True)
class Remembered:
    """Changes in place. Its leases are this gateway's open turns, whoever counts them beside."""

    limits: Limits
    standing: Standing
    leases: set[str] = field(default_factory=set)

    @classmethod
    def fresh(cls, limits: Limits, now_s: float) -> Remembered:
        requests, tokens = (
            Bucket.full(limit, now_s) if limit else None
            for limit in (limits.requests_per_minute, limits.tokens_per_minute)
        )
        return cls(limits, Standing(requests, tokens))

    def becomes(self, limits: Limits, now_s: float) -> None:
        """The key has other limits from now on; what is used of them stays used."""
        before, fresh = self.standing, Remembered.fresh(limits, now_s).standing
        self.limits = limits
        self.standing = Standing(
            _carried(before.requests, fresh.requests), _carried(before.tokens, fresh.tokens)
        )

    def has_room(self) -> bool:
        """Whether one more turn may be open here."""
        most = self.limits.concurrent_turns
        return most is None or len(self.leases) < most

    def take(self, wanted: Wanted, now_s: float) -> Short:
        """Take what is wanted, all of it or nothing; return what there is too little of."""
        requests, tokens = self._at(now_s)
        self.standing = Standing(requests, tokens)
        if requests is not None and not requests.has(wanted.num_requests):
            return "requests"
        if tokens is not None and not tokens.has(wanted.num_tokens):
            return "tokens"
        if wanted.lease and not self.has_room():
            return "turns"
        self.standing = Standing(
            requests.less(wanted.num_requests) if requests else None,
            tokens.less(wanted.num_tokens) if tokens else None,
        )
        return ""

    def charge(self, num_tokens: int, now_s: float) -> None:
        """Take tokens whether they are there or not; a negative number gives some back."""
        requests, tokens = self._at(now_s)
        self.standing = Standing(requests, tokens.less(num_tokens) if tokens else None)

    def is_told(self, requests: float, tokens: float, now_s: float) -> None:
        """Take over what Redis says is left."""
        limits = self.limits
        self.standing = Standing(
            Bucket(limits.requests_per_minute, requests, now_s) if limits.requests_per_minute else None,
            Bucket(limits.tokens_per_minute, tokens, now_s) if limits.tokens_per_minute else None,
        )

    def _at(self, now_s: float) -> tuple[Bucket | None, Bucket | None]:
        requests, tokens = self.standing.requests, self.standing.tokens
        return requests.at(now_s) if requests else None, tokens.at(now_s) if tokens else None


def _carried(before: Bucket | None, fresh: Bucket | None) -> Bucket | None:
    if before is None or fresh is None:
        return fresh
    return Bucket(fresh.per_minute, min(before.at(fresh.at_s).level, fresh.level), fresh.at_s)
