"""Which configuration a command works on: the options, else the environment, as a gateway reads it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gateway.errors import CommandError, UnknownVersion
from gateway.flow.dry_build import dry_build
from gateway.settings import ConfigStoreKind, GatewaySettings
from gateway.stack.environment import config_folder, redis_to_read
from gateway.store.amendment import EMPTY
from gateway.store.backend import ConfigFolder, SourceFile
from gateway.store.centre import ConfigCentre, Version
from gateway.store.documents import Documents
from gateway.store.editing import read_documents
from gateway.store.opening import open_centre


@dataclass(frozen=True, slots=True)
class Target:
    """None is what the environment says."""

    store: ConfigStoreKind | None = None
    config: Path | None = None
    redis: str | None = None
    namespace: str | None = None

    @property
    def folder(self) -> Path:
        """The folder of the documents, whether it is the store or what is published to it."""
        return self.config or config_folder()

    @property
    def redis_url(self) -> str:
        return self.redis or redis_to_read()

    def settings(self) -> GatewaySettings:
        """Return a gateway's settings. Raises CommandError where they cannot be used."""
        given: dict[str, Any] = {"config_dir": self.folder}
        if self.store is not None:
            given["config_store"] = self.store
        if self.namespace is not None:
            given["config_namespace"] = self.namespace
        try:
            return GatewaySettings(**given, redis_url=self.redis_url)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            raise CommandError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error

    def centre(self) -> ConfigCentre:
        return open_centre(self.settings(), dry_build)

    def documents(self, reference: str) -> Documents:
        """Return a version by its reference, or what a folder of that path holds.

        Raises ConfigError where the folder is broken, UnknownVersion where there is neither.
        """
        folder = Path(reference)
        if folder.is_dir():
            return read_documents(ConfigFolder(folder).read().files)
        return self.centre().find(reference).documents


def head_or_empty(centre: ConfigCentre) -> Version:
    """Return the head, or EMPTY where nothing was ever published."""
    try:
        return centre.head()
    except UnknownVersion:
        return EMPTY


def folder_files(folder: Path) -> tuple[SourceFile, ...]:
    """Return all documents of ``folder``. Raises ConfigError where they cannot be read."""
    return ConfigFolder(folder).read().files
