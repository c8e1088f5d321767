"""``gravity config export | import``: a whole namespace as one file."""

from __future__ import annotations

from pathlib import Path

import orjson

from gateway.configure.publish import PublishOptions, report
from gateway.configure.speech import FINE, answered
from gateway.errors import CommandError, ConfigError
from gateway.stack.target import Target
from gateway.store.centre import Note


def run_export(target: Target, file: Path) -> int:
    """Write head, history and all snapshots to ``file``. Raises CommandError where it cannot be written."""
    return answered(lambda: _export(target, file))


def run_import(target: Target, file: Path, note: Note) -> int:
    """Take over what ``export`` wrote; return 1 where it is damaged."""
    return answered(lambda: _import(target, file, note))


def _export(target: Target, file: Path) -> int:
    exported = target.centre().export()
    try:
        file.write_bytes(orjson.dumps(exported, option=orjson.OPT_INDENT_2))
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error.strerror}") from error
    num_versions = len(exported["snapshots"])
    print(f"{file}: {num_versions} version{'s' if num_versions != 1 else ''}, head {exported['head']['sha']}")
    return FINE


def _import(target: Target, file: Path, note: Note) -> int:
    try:
        exported = orjson.loads(file.read_bytes())
    except OSError as error:
        raise CommandError(f"{file} cannot be read: {error.strerror}") from error
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"is not JSON: {error}", file=str(file)) from error
    if not isinstance(exported, dict):
        raise ConfigError("is no export: it holds no object", file=str(file))
    return report(target.centre().import_(exported, note), PublishOptions(note))
