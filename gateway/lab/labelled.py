"""Labelled requests for training and judging context pruning: JSON lines, one request each.

``{"id", "set", "question", "answers": [str], "documents": [{"id", "title", "text", "relevant": bool,
"kind"}]}``; ``title``, ``answers``, ``set``, ``kind`` and the ids may be missing. A file that ends in
``.gz`` is unpacked.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

from gateway.errors import CommandError


@dataclass(frozen=True, slots=True)
class LabelledDocument:
    id: str
    text: str
    title: str = ""
    is_relevant: bool = False
    kind: str = ""
    """gold, hard (a distractor of the same question) or off (from another question); empty where not told."""


@dataclass(frozen=True, slots=True)
class LabelledRequest:
    id: str
    set: str
    question: str
    documents: tuple[LabelledDocument, ...]
    answers: tuple[str, ...] = ()

    @property
    def relevant(self) -> frozenset[int]:
        """Indices of the documents that the question needs."""
        return frozenset(index for index, document in enumerate(self.documents) if document.is_relevant)


def read_labelled(paths: Sequence[Path]) -> list[LabelledRequest]:
    """Return the requests of all files in their order. Raises CommandError, naming file and line."""
    requests = [_request(line, path, number) for path in paths for number, line in numbered_lines(path)]
    if not requests:
        raise CommandError(f"{', '.join(map(str, paths))}: no requests in there")
    return requests


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, numbered from 1. Raises CommandError."""
    try:
        with _opened(path) as lines:
            yield from ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    except (OSError, EOFError, UnicodeDecodeError, gzip.BadGzipFile) as error:
        raise CommandError(f"{path} cannot be read: {error}") from error


def _opened(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return cast(TextIO, gzip.open(path, "rt", encoding="utf-8"))
    return path.open(encoding="utf-8")


def _request(line: str, path: Path, number: int) -> LabelledRequest:
    try:
        sent = json.loads(line)
        documents = tuple(_document(item, index) for index, item in enumerate(sent["documents"]))
        return LabelledRequest(
            id=str(sent.get("id", f"{path.name}:{number}")),
            set=str(sent.get("set", path.name.partition(".")[0])),
            question=_text(sent, "question"),
            documents=documents,
            answers=tuple(map(str, sent.get("answers") or ())),
        )
    except KeyError as error:
        raise CommandError(f"{path}:{number}: {error.args[0]!r} is missing") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise CommandError(f"{path}:{number}: {error}") from error


def _document(sent: dict[str, Any], index: int) -> LabelledDocument:
    relevant = sent["relevant"]
    if not isinstance(relevant, bool):
        raise ValueError(f"documents[{index}].relevant must be true or false")
    return LabelledDocument(
        id=str(sent.get("id", f"d{index}")),
        text=_text(sent, "text"),
        title=str(sent.get("title") or ""),
        is_relevant=relevant,
        kind=str(sent.get("kind") or ""),
    )


def _text(sent: dict[str, Any], field: str) -> str:
    if not isinstance(sent[field], str):
        raise ValueError(f"{field!r} must be a string")
    return str(sent[field])
