"""The Redis keys of one namespace. They share a hash tag, so that one script may touch all of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConfigKeys:
    """Names by what they hold."""

    namespace: str

    @property
    def head(self) -> str:
        """Hash: number and sha of what is in force."""
        return self._key("head")

    @property
    def history(self) -> str:
        """Stream of changes; the entry of change n has the id n-0."""
        return self._key("history")

    @property
    def snapshots(self) -> str:
        """Hash: how many changes of the history lead to each sha."""
        return self._key("snapshots")

    @property
    def bell(self) -> str:
        """Channel that rings, without a word, when the head has moved."""
        return self._key("bell")

    @property
    def replicas(self) -> str:
        """Sorted set: the gateways' names by the time of their last report."""
        return self._key("replicas")

    @property
    def guardrails(self) -> str:
        """String: which gateway looks at the guardrails in this interval."""
        return self._key("guardrails")

    @property
    def snapshot_prefix(self) -> str:
        return self._key("snapshot:")

    def snapshot(self, sha: str) -> str:
        """String: the canonical JSON whose sha256 is ``sha``."""
        return self.snapshot_prefix + sha

    def replica(self, replica_id: str) -> str:
        """String: a gateway's last report, as JSON."""
        return self._key(f"replica:{replica_id}")

    def _key(self, name: str) -> str:
        return f"ng:{{cfg:{self.namespace}}}:{name}"
