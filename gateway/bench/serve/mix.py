"""What is asked: requests of four kinds, drawn by shares from a seed, none twice.

Prompts are made of invented facts, so that no two blocks share more than the first words of a prompt: what an
engine remembers of earlier ones helps it no more than it would in service.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from gateway.errors import CommandError

SHORT, JSON, RAG, OPEN = "short", "json", "rag", "open"
NUM_CHUNKS = 20
SYSTEM = "You are an assistant who answers briefly and truthfully."
MAX_TOKENS: Mapping[str, int] = {SHORT: 16, JSON: 48, RAG: 48, OPEN: 128}
EQUAL: Mapping[str, float] = dict.fromkeys(MAX_TOKENS, 1.0)
_PLACES = ("Skerrin", "Port Ellery", "Ostrava Bay", "Marnholm", "Vell", "Haugen", "Tarrow", "Brackwater")
_THINGS = ("lighthouse", "ferry", "library", "windmill", "observatory", "bridge", "market hall", "shipyard")
_NAMES = ("Ida Brandt", "Olav Reyes", "Mina Castell", "Jonas Achterberg", "Petra Lund", "Samuel Okoro")
_USES = ("cider and rope", "weather reports", "salted fish", "maps of the coast", "wool and lamp oil")


@dataclass(frozen=True, slots=True)
class Job:
    """One request. It writes exactly ``max_tokens`` tokens, as far as an engine can be told to."""

    kind: str
    text: str
    max_tokens: int


def parse_shares(text: str) -> dict[str, float]:
    """Return the shares of ``short=2,rag=1``; a kind without one is left out. Raises CommandError."""
    shares: dict[str, float] = {}
    for part in text.split(","):
        kind, _, share = part.partition("=")
        try:
            shares[kind.strip()] = float(share)
        except ValueError:
            raise CommandError(f"--mix {text}: write it as short=2,json=1,rag=1,open=1") from None
    unknown, is_valid = set(shares) - set(MAX_TOKENS), all(0.0 <= s < np.inf for s in shares.values())
    if unknown or not is_valid or sum(shares.values()) == 0.0:
        kinds = ", ".join(MAX_TOKENS)
        raise CommandError(f"--mix {text}: kinds are {kinds}; shares are not negative, and not all are 0")
    return shares


def draw_jobs(shares: Mapping[str, float], number: int, seed: tuple[int, ...]) -> tuple[Job, ...]:
    """Return ``number`` requests, kinds as near to their shares as whole numbers can, in a drawn order."""
    random = np.random.default_rng(seed)
    kinds = [kind for kind, count in counts(shares, number).items() for _ in range(count)]
    random.shuffle(kinds)
    return tuple(Job(kind, _TEXTS[kind](random), MAX_TOKENS[kind]) for kind in kinds)


def counts(shares: Mapping[str, float], number: int) -> dict[str, int]:
    """Share ``number`` out by the largest remainders."""
    exact = {kind: number * share / sum(shares.values()) for kind, share in shares.items()}
    whole = {kind: int(count) for kind, count in exact.items()}
    by_remainder = sorted(exact, key=lambda kind: whole[kind] - exact[kind])
    for kind in by_remainder[: number - sum(whole.values())]:
        whole[kind] += 1
    return whole


def _fact(random: Generator) -> str:
    thing, place = random.choice(_THINGS), random.choice(_PLACES)
    begun, cost = int(random.integers(1700, 1990)), int(random.integers(2, 900))
    number, metres = int(random.integers(10_000, 99_999)), int(random.integers(9, 90))
    finished = begun + int(random.integers(1, 9))
    return (
        f"The {thing} of {place}, number {number} in the register, was begun in {begun} by "
        f"{random.choice(_NAMES)} and finished in {finished}. It cost {cost} thousand crowns, is {metres} "
        f"metres long, and was used for {random.choice(_USES)}."
    )


def _short(random: Generator) -> str:
    return f"{_fact(random)} Who began it, and in which year?"


def _json(random: Generator) -> str:
    asked = 'Return a JSON object with the keys "name", "place", "begun", "finished", "cost", "length".'
    return f"{_fact(random)}\n{asked}"


def _rag(random: Generator) -> str:
    chunks = [f"[{number + 1}] {_fact(random)} {_fact(random)}" for number in range(NUM_CHUNKS)]
    asked = f"What is known of the {random.choice(_THINGS)} of {random.choice(_PLACES)}?"
    return "\n\n".join((*chunks, asked))


def _open(random: Generator) -> str:
    return f"{_fact(random)} Write a long story that begins on the day on which it was finished."


_TEXTS = {SHORT: _short, JSON: _json, RAG: _rag, OPEN: _open}
