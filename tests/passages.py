"""A question and what a retriever found for it: two documents that answer it, three about something else."""

from __future__ import annotations

from typing import Any

QUESTION = "What powers the ferry Solveig, and who built her?"
FERRY = "The Solveig is a ferry. She is powered by two hydrogen fuel cells and carries forty cars."
BUILDER = "Haugland & Sons built the Solveig at their yard in Florø, where they build fishing boats too."
BREAD = "Knead the dough for ten minutes and let it rise until it has doubled."
CHESS = "White puts the bishop on f4 and the knight on f3."
MOSS = "Moss grows where it is damp and shaded, on stone as well as on wood."

FOUND: tuple[tuple[str, str], ...] = (
    ("Bread", BREAD),
    ("Haugland & Sons", BUILDER),
    ("A chess opening", CHESS),
    ("Solveig", FERRY),
    ("Moss", MOSS),
)
"""Title and text, as a retriever would shuffle them."""
WANTED = (1, 3)
"""Which of them belong to the question."""


def found(**fields: Any) -> list[dict[str, Any]]:
    """Return the documents in vLLM's shape, each with ``fields``."""
    return [{"title": title, "text": text, **fields} for title, text in FOUND]
