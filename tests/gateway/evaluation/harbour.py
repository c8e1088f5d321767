"""Three labelled requests of four short chunks each."""

from __future__ import annotations

from typing import Any


def _chunk(title: str, text: str, kind: str) -> dict[str, Any]:
    return {"title": title, "text": text, "relevant": kind == "gold", "kind": kind}


_BREAD = _chunk("Bread", "Knead the dough for ten minutes and let it rise until it has doubled.", "off")

REQUESTS = (
    {
        "id": "tug",
        "set": "harbour",
        "question": "Who built the harbour tug Gannet?",
        "answers": ["Trewin"],
        "documents": [
            _BREAD,
            _chunk("Gannet", "The harbour tug Gannet was built by Trewin & Daughters at Polruan.", "gold"),
            _chunk("Ferry", "The ferry at Fowey takes cars and bicycles.", "hard"),
            _chunk("Chess", "White puts the bishop on f4 and the knight on f3.", "off"),
        ],
    },
    {
        "id": "town",
        "set": "harbour",
        "question": "In which county is the slip where the Gannet was built?",
        "answers": ["Cornwall"],
        "documents": [
            _chunk("Gannet", "The harbour tug Gannet was built on the slip at Polruan.", "gold"),
            _chunk("Polruan", "Polruan is a village in Cornwall, on the river Fowey.", "gold"),
            _BREAD,
            _chunk("Devon", "Devon is a county with two coasts.", "hard"),
        ],
    },
    {
        "id": "moss",
        "set": "garden",
        "question": "Where does moss grow?",
        "documents": [
            _chunk("", "Moss grows where it is damp and shaded, on stone as well as on wood.", "gold"),
            _chunk("", "Roses want sun.", "hard"),
            _chunk("", "An invoice shows the date, the seller and the total.", "off"),
            _BREAD,
        ],
    },
)
