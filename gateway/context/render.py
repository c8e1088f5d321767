"""How a document stands in the prompt, and in which order the kept ones do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, TypeAlias

from gateway.context.report import Document, Verdict

Order: TypeAlias = Literal["as_sent", "relevance", "ends"]

SEPARATOR = "\n\n"
_FIELD = re.compile(r"\{(id|title|text)\}")


def render_document(document: Document, template: str) -> str:
    """Fill ``{id}``, ``{title}`` and ``{text}`` in; an empty title leaves neither a gap nor an empty line."""
    if not document.title.strip():
        template = _without_title(template)
    fields = {"id": document.id, "title": document.title.strip(), "text": document.text.strip()}
    return _FIELD.sub(lambda match: fields[match[1]], template)


def kept_in_order(verdicts: Sequence[Verdict], order: Order) -> list[int]:
    """Return the positions, as sent, of the documents that stay, in the order of the prompt."""
    kept = [index for index, verdict in enumerate(verdicts) if verdict.is_kept]
    return [kept[place] for place in arrange([verdicts[index].score for index in kept], order)]


def arrange(scores: Sequence[float], order: Order) -> list[int]:
    """Return the positions of documents, given their scores as sent, in the order of the prompt.

    ``ends`` puts the best first, the second best last and so on inwards, since models read the middle least.
    """
    if order == "as_sent":
        return list(range(len(scores)))
    best_first = sorted(range(len(scores)), key=lambda index: -scores[index])
    if order == "relevance":
        return best_first
    return best_first[0::2] + best_first[1::2][::-1]


def _without_title(template: str) -> str:
    lines = []
    for line in template.split("\n"):
        if "{title}" not in line:
            lines.append(line)
        elif kept := re.sub(r" {2,}", " ", line.replace("{title}", "")).strip():
            lines.append(kept)
    return "\n".join(lines)
