"""The configuration centre of one machine: a folder whose files stay the truth, with versions beside."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gateway.errors import CentreUnavailable, ConfigError
from gateway.store.backend import ConfigFolder, FolderContent, SourceFile
from gateway.store.centre import Change, Note, Published, Version
from gateway.store.documents import Documents, documents_from_bytes
from gateway.store.editing import read_documents, read_named
from gateway.store.exported import Exported, exported, read_exported
from gateway.store.folder_files import files_of, put_files
from gateway.store.proposal import Proposal, Rules, check_expected, proposed
from gateway.store.publish_lock import exclusive_lock
from gateway.store.reference import number_of, sha_of
from gateway.store.saved import MAX_CHANGES, SavedVersions
from gateway.store.spelling import in_todays_schema


@dataclass(frozen=True, slots=True)
class _Here:
    """The folder as a publish finds it."""

    content: FolderContent
    version: Version | None
    """None where the files are broken."""

    @property
    def sha(self) -> str:
        return self.version.sha if self.version else ""


class FolderCentre:
    """One folder. A publish writes the files of documents that change, and keeps those that were there."""

    def __init__(self, folder: Path, rules: Rules, namespace: str = "default") -> None:
        self.namespace = namespace
        self._folder = ConfigFolder(folder)
        self._saved = SavedVersions(folder)
        self._rules = rules

    def head(self) -> Version:
        """What the files say now, by hand or by a publish. Raises ConfigError where they are broken."""
        return _version(self._folder.read())

    def find(self, reference: str) -> Version:
        head = self._head_or_none()
        head_sha = head.sha if head else ""
        history = self.history(MAX_CHANGES)
        sha = sha_of(reference, head_sha, history, self._saved.shas())
        if head is not None and sha == head.sha:
            return head
        return Version(number_of(sha, history), sha, self._saved.documents(sha))

    def history(self, limit: int = 50) -> tuple[Change, ...]:
        if self._saved.pending() is not None:
            with self._publishing():
                pass
        return self._saved.history()[:limit]

    def publish(
        self, documents: Documents, note: Note, *, expected_sha: str | None = None, is_dry_run: bool = False
    ) -> Published:
        if is_dry_run:
            version = self.head()
            check_expected(version, expected_sha)
            proposal = proposed(version, documents, note, self._rules)
            number = version.number + (proposal.sha != version.sha)
            return proposal.as_published(number, version.sha, is_dry_run)
        with self._publishing():
            here = self._here()
            check_expected(here.version, expected_sha)
            proposal = proposed(here.version, documents, note, self._rules)
            return self._write(here, proposal, note, files_of(proposal, here.content.files))

    def rollback(self, reference: str, note: Note, *, is_dry_run: bool = False) -> Published:
        note = replace(note, kind=note.kind if note.kind == "guardrail" else "rollback")
        wanted = self.find(reference)
        documents = in_todays_schema(wanted.documents)
        if is_dry_run:
            return self.publish(documents, note, is_dry_run=True)
        with self._publishing():
            here = self._here(is_repair=True)
            proposal = proposed(here.version, documents, note, self._rules)
            files = self._files_as_they_were(wanted.sha, proposal.sha)
            return self._write(here, proposal, note, files or files_of(proposal, here.content.files))

    def export(self) -> Mapping[str, Any]:
        head, history = self.head(), self.history(MAX_CHANGES)
        snapshots = {change.to_sha: self._saved.documents(change.to_sha) for change in history}
        return exported(self.namespace, head, history, {**snapshots, head.sha: head.documents})

    def import_(self, exported: Mapping[str, Any], note: Note) -> Published:
        """As the interface says. A folder with a history keeps it, and gets the exported head alone."""
        taken = read_exported(exported)
        note = replace(note, kind="import")
        with self._publishing():
            here = self._here()
            proposal = proposed(here.version, in_todays_schema(taken.head), note, self._rules)
            if not self._saved.history():
                self._take_over(taken)
                here = self._here()
            return self._write(here, proposal, note, files_of(proposal, here.content.files))

    def _head_or_none(self) -> Version | None:
        try:
            return self.head()
        except ConfigError:
            return None

    def _here(self, *, is_repair: bool = False) -> _Here:
        content = self._folder.read_unlocked()
        try:
            return _Here(content, _version(content))
        except ConfigError:
            if not is_repair:
                raise
            return _Here(content, None)

    def _files_as_they_were(self, sha: str, wanted_sha: str) -> tuple[SourceFile, ...]:
        """Return the saved files, with their comments, where they still read as what is wanted."""
        if sha not in self._saved.shas():
            return ()
        files = self._saved.files(sha)
        with contextlib.suppress(ConfigError):
            if read_documents(files).sha == wanted_sha:
                return files
        return ()

    def _write(self, here: _Here, proposal: Proposal, note: Note, files: tuple[SourceFile, ...]) -> Published:
        number = here.content.number
        if proposal.sha == here.sha:
            return proposal.as_published(number, here.sha)
        if here.version is not None:
            self._saved.save(here.version.documents, here.content.files)
        else:
            self._saved.save_broken(here.content.files)
        self._saved.save(proposal.documents, files)
        change = Change(
            number=number + 1,
            kind=note.kind,
            from_sha=here.sha,
            to_sha=proposal.sha,
            who=note.who,
            why=note.why,
            at=self._rules.clock(),
            is_forced=note.is_forced,
        )
        self._saved.decide(change)
        self._finish()
        return proposal.as_published(change.number, here.sha)

    def _finish(self) -> None:
        """Write what was decided; also what another process decided and did not live to write."""
        change = self._saved.pending()
        if change is None:
            return
        put_files(self._folder.path, self._saved.files(change.to_sha))
        history = self._saved.history()
        if not history or history[0].number < change.number:
            self._saved.write_history((*reversed(history), change))
        self._saved.finished()

    def _take_over(self, taken: Exported) -> None:
        for change in taken.history:
            self._saved.save(documents_from_bytes(taken.snapshots[change.to_sha]), ())
        self._saved.write_history(taken.history)

    @contextlib.contextmanager
    def _publishing(self) -> Iterator[None]:
        try:
            with exclusive_lock(self._folder.path):
                self._finish()
                yield
        except OSError as error:
            raise CentreUnavailable(f"the folder cannot be written: {error}") from error


def _version(content: FolderContent) -> Version:
    documents, _ = read_named(content.files)
    return Version(content.number, documents.sha, documents)
