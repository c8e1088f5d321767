"""The answers measured so far, in a file that a run goes on from: a header, then a line for each answer."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import orjson
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from gateway.errors import CommandError
from gateway.evaluation.arms import Arm

T = TypeVar("T")


@checked_dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class Header:
    """What answers must share to be compared."""

    model: str
    dtype: str
    max_context: int
    max_tokens: int
    question: str
    """The wording; {question} is filled in."""
    preamble: str
    template: str
    data_sha: str
    """Of all labelled requests, those beyond --limit too."""


@checked_dataclass(frozen=True, slots=True, config=ConfigDict(extra="forbid"))
class AnswerRecord:
    """One request answered in one arm. Times in seconds, choosing the chunks included."""

    request_id: str
    arm: Arm
    text: str
    num_documents: int
    num_left_out: int
    """Chunks of the arm that did not fit the model's context."""
    prompt_tokens: int
    completion_tokens: int
    ttft_s: float
    """From the question's arrival to the first text."""
    total_s: float
    worker_cpu_s: float
    choose_cpu_s: float
    """Of encoding and judging, nothing cached."""
    selector: str = ""
    """Which selector chose, for the arm that has one."""

    @property
    def cpu_s(self) -> float:
        return self.worker_cpu_s + self.choose_cpu_s


_HEADER = TypeAdapter(Header)
_RECORD = TypeAdapter(AnswerRecord)


@dataclass(frozen=True, slots=True)
class Key:
    """What a record is the measurement of. A retrained selector makes ``ours`` another arm."""

    request_id: str
    arm: Arm
    selector: str = ""


class Results:
    """All records, by what they measure; new ones are appended to the file at once, where there is one."""

    def __init__(self, path: Path | None, header: Header) -> None:
        """Read ``path`` where it exists, else begin it. Raises CommandError where another run made it."""
        self._path = path
        self._records: dict[Key, AnswerRecord] = {}
        if path is None:
            return
        try:
            lines = _whole_lines(path)
        except OSError as error:
            raise CommandError(f"{path} cannot be read: {error.strerror}") from error
        if not lines:
            self._append(header)
            return
        _check_header(_parsed(_HEADER, lines[0], path, 1), header, path)
        for number, line in enumerate(lines[1:], 2):
            self._remember(_parsed(_RECORD, line, path, number))

    def __len__(self) -> int:
        return len(self._records)

    def num_outdated(self, selector: str) -> int:
        """Return how many answers rest on the choice of another selector than this one."""
        return sum(key.selector not in ("", selector) for key in self._records)

    def get(self, key: Key) -> AnswerRecord | None:
        return self._records.get(key)

    def add(self, record: AnswerRecord) -> None:
        """Keep ``record``, in the file first. Raises CommandError where it cannot be written."""
        self._append(record)
        self._remember(record)

    def _remember(self, record: AnswerRecord) -> None:
        self._records[Key(record.request_id, record.arm, record.selector)] = record

    def _append(self, written: Header | AnswerRecord) -> None:
        if self._path is None:
            return
        try:
            with self._path.open("ab") as file:
                file.write(orjson.dumps(dataclasses.asdict(written)) + b"\n")
        except OSError as error:
            raise CommandError(f"{self._path} cannot be written: {error.strerror}") from error


def _whole_lines(path: Path) -> list[bytes]:
    """Return the lines of ``path``. What an interruption left without its end is cut off."""
    if not path.exists():
        return []
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        with path.open("r+b") as file:
            file.truncate(len(whole))
    return whole.splitlines()


def _parsed(adapter: TypeAdapter[T], line: bytes, path: Path, number: int) -> T:
    try:
        return adapter.validate_json(line)
    except ValidationError as error:
        first: Any = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        problem = f"{field}: {first['msg']}"
        raise CommandError(
            f"{path}:{number} is no line of results ({problem}): name another file with --results"
        ) from error


def _check_header(found: Header, wanted: Header, path: Path) -> None:
    for field in dataclasses.fields(Header):
        was, is_now = getattr(found, field.name), getattr(wanted, field.name)
        if was != is_now:
            raise CommandError(
                f"{path} holds answers with {field.name} = {was!r}, this run has {is_now!r}: "
                "name another file with --results, or delete this one to begin again"
            )
