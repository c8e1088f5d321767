"""How likely the next tokens of a draft are right: from the match, H, and what came true lately."""

from __future__ import annotations

import math
from dataclasses import dataclass

from worker.engine.speculation.lookup import Match

AGREEMENT_HISTORY = 0.8
"""Weight of the past in the share of tokens that the look-up foresaw."""
FIRST_AGREEMENT = 0.5


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of a draft before it is checked."""

    match: Match
    entropy_nats: float
    """H of the step that gave the last token."""
    agreement: float
    """Share of the last tokens that the look-up foresaw, in [0, 1]."""


@dataclass(frozen=True, slots=True)
class ChanceModel:
    """A logistic regression: ln(q / (1 - q)) of a drafted token, those before it being right.

    Fitted with SmolLM2-135M-Instruct on 36 questions with documents and 16 open ones, each answered greedily
    and sampled. H says next to nothing beside the match. A wrong chance costs time and never changes a text.
    """

    base: float = -0.60
    per_log_match: float = 0.71
    """For each e-fold of the match, which grows with every token that was right."""
    per_agreement: float = 0.78
    per_nat: float = -0.10
    """For each nat of H; as the two below, of a draft's first token alone."""
    per_discord: float = -4.49
    """For the share of the n-gram's places that go on with another token."""
    per_log_seen: float = 1.22
    """For each e-fold of the number of places."""

    def chances(self, evidence: Evidence, num_tokens: int) -> tuple[float, ...]:
        """Return for each of a draft's first tokens the chance that it and all before it are right."""
        match = evidence.match
        steady = self.base + self.per_agreement * evidence.agreement
        first = (
            self.per_nat * evidence.entropy_nats
            + self.per_discord * (1.0 - match.num_alike / match.num_seen)
            + self.per_log_seen * math.log(match.num_seen)
        )
        chances = []
        chance = 1.0
        for index in range(num_tokens):
            odds = (
                steady + self.per_log_match * math.log(match.num_tokens + index) + (0.0 if index else first)
            )
            chance /= 1.0 + math.exp(-odds)
            chances.append(chance)
        return tuple(chances)
