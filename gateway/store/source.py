"""The text of a document: YAML (which JSON is) to data, with the line of every field for messages."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import yaml
from pydantic import ValidationError

from gateway.errors import ConfigError
from gateway.store.lineage import first_problem


class Text(Protocol):
    """A file as it was written; ``name`` is for messages."""

    @property
    def name(self) -> str: ...

    @property
    def content(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Written:
    """One document as data, and where each of its fields stands."""

    file: str
    """For messages."""
    data: Mapping[str, Any]
    root: yaml.Node | None = None
    """None where it was no text: messages have no line then."""

    def problem(self, error: ValidationError) -> ConfigError:
        """Return the first of pydantic's errors, with the line of its field."""
        first = error.errors(include_url=False, include_input=False)[0]
        return ConfigError(first_problem(error), file=self.file, line=self.line_of(first["loc"]))

    def line_of(self, path: tuple[int | str, ...]) -> int | None:
        """Return the line of the field at ``path``, or of the nearest one around it that is there."""
        return _line_of(self.root, path) if self.root is not None else None


def read(file: Text) -> Written:
    """Return the data in ``file``. Raises ConfigError with the line where it is not YAML or no mapping."""
    root = _compose(file)
    data = _Loader.data_of(root, file)
    if not isinstance(data, dict):
        raise ConfigError("must be a mapping of fields", file=file.name, line=1)
    return Written(file.name, data, root)


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice, where YAML would silently take the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(
                    None, None, "a key must be a plain value", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key!r} stands twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)

    @classmethod
    def data_of(cls, root: yaml.Node, file: Text) -> Any:
        loader = cls("")
        try:
            return loader.construct_document(root)
        except yaml.MarkedYAMLError as error:
            raise _broken(error, file) from error
        finally:
            loader.dispose()


def _compose(file: Text) -> yaml.Node:
    try:
        root = yaml.compose(file.content.decode(), Loader=yaml.SafeLoader)
    except UnicodeDecodeError as error:
        raise ConfigError("is not UTF-8", file=file.name) from error
    except yaml.MarkedYAMLError as error:
        raise _broken(error, file) from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"is not YAML: {error}", file=file.name) from error
    if root is None:
        raise ConfigError("is empty", file=file.name, line=1)
    return root


def _broken(error: yaml.MarkedYAMLError, file: Text) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    return ConfigError(f"is not YAML: {error.problem}", file=file.name, line=mark.line + 1 if mark else None)


def _line_of(root: yaml.Node, path: tuple[int | str, ...]) -> int:
    node, line = root, root.start_mark.line
    for part in path:
        child = _child(node, part)
        if child is None:
            break
        node, line = child
    return int(line) + 1


def _child(node: yaml.Node, part: int | str) -> tuple[yaml.Node, int] | None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(part):
                return value, key.start_mark.line
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part].start_mark.line
    return None
