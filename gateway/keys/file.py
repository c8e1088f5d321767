"""Keys in a file, hashes only: ``keys:`` and a list of them, in YAML or JSON."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

import orjson
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gateway.errors import ConfigError
from gateway.keys.key import Key
from gateway.store.publish_lock import write_whole
from gateway.store.source import read

_MAX_BYTES = 16 * 2**20
_MODE = 0o600

Fingerprint: TypeAlias = tuple[int, int, int]
"""Inode, size in bytes and time of change in nanoseconds."""


class KeyList(BaseModel):
    """The whole file."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    keys: Annotated[tuple[Key, ...], Field(max_length=100_000)] = ()


@dataclass(frozen=True, slots=True)
class _Text:
    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class KeyFile:
    """Read by gateways, written by the commands. Every method raises ConfigError where it cannot."""

    path: Path

    def fingerprint(self) -> Fingerprint | None:
        """Say what the file looks like from outside, through links; None where there is none."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_ino, status.st_size, status.st_mtime_ns

    def read(self) -> Mapping[str, Key]:
        """Return the keys by id. Messages name file, line and field, never what stands there."""
        try:
            content = self.path.read_bytes()
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", file=str(self.path)) from error
        if len(content) > _MAX_BYTES:
            raise ConfigError(f"is larger than {_MAX_BYTES} bytes", file=str(self.path))
        written = read(_Text(str(self.path), content))
        try:
            listed = KeyList.model_validate(dict(written.data))
        except ValidationError as error:
            raise written.problem(error) from error
        keys = {key.id: key for key in listed.keys}
        if len(keys) != len(listed.keys):
            raise ConfigError("two keys have the same id", file=str(self.path))
        return keys

    def change(self, key_id: str, changed: Callable[[Key | None], Key]) -> Key:
        """Replace one key by what ``changed`` makes of it, one writer at a time.

        The file is written anew: its comments go.
        """
        lock = self.path.with_name(f".{self.path.name}.lock")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, _MODE)
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}", file=str(self.path)) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            keys = dict(self.read()) if self.path.exists() else {}
            keys[key_id] = changed(keys.get(key_id))
            self._write(keys)
            return keys[key_id]
        finally:
            os.close(descriptor)

    def _write(self, keys: Mapping[str, Key]) -> None:
        listed = KeyList(keys=tuple(keys.values())).model_dump(mode="json", exclude_defaults=True)
        if self.path.suffix == ".json":
            content = orjson.dumps(listed, option=orjson.OPT_INDENT_2)
        else:
            content = yaml.safe_dump(listed, sort_keys=False, allow_unicode=True, width=110).encode()
        try:
            if not self.path.exists():
                self.path.touch(_MODE)
            write_whole(self.path, content)
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror}", file=str(self.path)) from error
