"""A key as it is kept: who it is for, what it opens, how much of it; of the secret only hashes."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, TypeAlias

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from gateway.keys.scope import Scope

Digest: TypeAlias = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", repr=False)]
Count: TypeAlias = Annotated[int, Field(ge=1, le=1_000_000_000)]


class _Kept(BaseModel):
    # A field that this program does not know may narrow what the key opens: such a key opens nothing here.
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Limits(_Kept):
    """None is no limit."""

    requests_per_minute: Count | None = None
    tokens_per_minute: Count | None = None
    """Of prompts and answers together."""
    concurrent_turns: Count | None = None

    @property
    def is_unlimited(self) -> bool:
        return (self.requests_per_minute, self.tokens_per_minute, self.concurrent_turns) == (None, None, None)


class Replaced(_Kept):
    """The secret before the last rotation."""

    sha256: Digest
    expires_at: AwareDatetime


class Key(_Kept):
    """One key. Its secret is known to its holder alone."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9]{4,32}$")]
    name: Annotated[str, Field(min_length=1, max_length=128)]
    sha256: Digest
    """Of the whole key as its holder sends it."""
    scopes: Annotated[tuple[Scope, ...], Field(min_length=1)]
    created_at: AwareDatetime | None = None
    expires_at: AwareDatetime | None = None
    revoked_at: AwareDatetime | None = None
    """A revoked key stays, so that its id is never given away again and the history can name it."""
    replaced: Replaced | None = None
    tasks: tuple[str, ...] = ()
    """That its turns may have; empty for all."""
    models: tuple[str, ...] = ()
    """That it may use and see; empty for all."""
    priority: Annotated[int, Field(ge=-100, le=100)] = 0
    limits: Limits = Limits()

    def is_valid(self, now: datetime) -> bool:
        """Whether it opens anything at all at ``now``."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def replaced_sha256(self, now: datetime) -> str | None:
        """Return the hash of the secret before, where that still opens."""
        if self.replaced is None or now >= self.replaced.expires_at:
            return None
        return self.replaced.sha256
