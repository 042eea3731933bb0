"""The ports of the publish machine in memory: a landing zone's table folder and the ledger's row of the table.

Everything is a value. The conditions of the real ports stand here in one place each, so that a test can take one
away (:mod:`.publish_ablations`) and watch what breaks.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from open_mirroring.protocols import publishing as p

from .canonical import CURRENT

FINAL, PROCESSED, READY, PURGED = range(4)
"""Where a published file is; it travels in this order only (F-36)."""

SEALED_ETAG = True
OTHER_ETAG = False

LedgerWrite = p.Acquire | p.Establish | p.Intend | p.Seal | p.Confirm | p.Stop


class Content(NamedTuple):
    """What a file holds: file *index* of *count* of one cut of a batch, staged for a generation of the table."""

    generation: int
    batch: int
    cut: int
    index: int
    count: int

    @property
    def digest(self) -> str:
        """The logical digest: same rows, same digest, whoever staged them and when."""
        return f"batch {self.batch} cut {self.cut} file {self.index + 1}/{self.count}"


FOREIGN = Content(0, 0, 0, 0, 0)
"""A file that somebody else put under a number."""


class Zone(NamedTuple):
    """The table's folder. *life* is the generation that it was made for, 0 when somebody else made it."""

    life: int
    marker: str | None
    metadata: bool
    staged: tuple[tuple[p.StagedFile, bool], ...] = ()
    """Staged objects, and whether they still have the ETag they were created with."""
    files: tuple[tuple[Content, int] | None, ...] = ()
    """Per number, from 1: the file that was ever visible in this folder, and where it is now."""
    made: int = 1
    """How often the folder was made. A marker is created at most once in each, so this tells markers apart too."""

    @property
    def marker_etag(self) -> str:
        """The marker object's ETag; empty when there is none."""
        return "" if self.marker is None else f"marker of folder {self.made}"

    def file(self, number: int) -> tuple[Content, int] | None:
        """What was ever visible under a number."""
        return self.files[number - 1] if number <= len(self.files) else None

    def with_file(self, number: int, file: tuple[Content, int]) -> Zone:
        """The folder with this file under the number."""
        files = list(self.files) + [None] * (number - len(self.files))
        files[number - 1] = file
        return self._replace(files=tuple(files))

    def etag_of(self, file: p.StagedFile) -> bool | None:
        """Whether the staged object has its first ETag; None when there is no object of this name."""
        return next((etag for name, etag in self.staged if name == file), None)

    def with_staged(self, file: p.StagedFile, etag: bool) -> Zone:
        """The folder after the object was created, or created once more."""
        rest = [item for item in self.staged if item[0] != file]
        return self._replace(staged=tuple(sorted([*rest, (file, etag)], key=lambda item: item[0].object_name)))

    def without_staged(self, file: p.StagedFile) -> Zone:
        """The folder after the object was consumed or deleted."""
        return self._replace(staged=tuple(item for item in self.staged if item[0] != file))


class Store:
    """The landing-zone store as it has to be."""

    def rename(self, zone: Zone, number: int, file: p.StagedFile, content: Content) -> Zone | None:
        """Move the sealed object to its number in one step; None when the store refuses."""
        if not self.source_fits(zone, file) or not self.target_free(zone, number):
            return None
        return zone.without_staged(file).with_file(number, (content, FINAL))

    def source_fits(self, zone: Zone, file: p.StagedFile) -> bool:
        """``x-ms-source-if-match``: there, and the very object that was sealed."""
        return zone.etag_of(file) is SEALED_ETAG

    def target_free(self, zone: Zone, number: int) -> bool:
        """``If-None-Match: *``: no file of this name in the folder now."""
        there = zone.file(number)
        return there is None or there[1] != FINAL

    def torn_rename(self, zone: Zone, number: int, file: p.StagedFile, content: Content) -> Zone | None:
        """What a crash in the middle of a rename leaves behind; None because there is no middle."""
        return None

    def may_yet_rename(self, zone: Zone, file: p.StagedFile) -> bool:
        """Whether a late rename of this object can ever do something again: a sealed ETag never comes back."""
        return zone.etag_of(file) is SEALED_ETAG

    def torn_marker(self, zone: Zone) -> Zone | None:
        """What a crash in the middle of creating the marker leaves behind; None because there is no middle."""
        return None

    def folder_deleted(self, life: int, zone: Zone) -> Zone:
        """Folder deleted and made anew: all that was in it is gone, staged objects included."""
        return Zone(life, None, False, made=zone.made + 1)


class Ledger:
    """The table's row with compare-and-set on its version."""

    unconditional: tuple[type, ...] = (p.Acquire,)
    """Writes that do not compare the row's version."""

    def write(self, row: p.TableRow, request: LedgerWrite) -> p.TableRow | None:
        """The row after the write; None when it was lost to somebody else's."""
        if not isinstance(request, self.unconditional) and getattr(request, "version", CURRENT) != CURRENT:
            return None
        match request:
            case p.Acquire():
                return row
            case p.Establish(_, marker_etag):
                return replace(row, established=True, marker_etag=marker_etag)
            case p.Intend(_, intent):
                return replace(row, intent=intent)
            case p.Seal(_, manifest):
                return self.sealed(row, manifest)
            case p.Confirm():
                return self.confirmed(row)
            case p.Stop(_, code, _):
                return replace(row, stop=code)

    def sealed(self, row: p.TableRow, manifest: tuple[p.StagedFile, ...]) -> p.TableRow:
        """The open intent bound to these objects."""
        return row if row.intent is None else replace(row, intent=replace(row.intent, manifest=manifest))

    def confirmed(self, row: p.TableRow) -> p.TableRow:
        """K and the published batch moved on by the open intent."""
        if row.intent is None:
            return row
        files = len(row.intent.manifest or ())
        return replace(row, confirmed=row.confirmed + files, published_batch=row.intent.work.batch_to, intent=None)
