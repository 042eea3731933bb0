"""Checks with trial files that a storage does what exactly-once publishing needs.

The trial files are below ``_scratchPad`` (F-05). No document promises that OneLake obeys the conditions of a rename
(O-05), so the check tries the real OneLake before the first run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pyarrow as pa

from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.data_file import Footer, read_footer, write_data_file
from open_mirroring.landing_zone.layout import SCRATCH_FOLDER, file_name
from open_mirroring.landing_zone.store import LandingZoneStore, ObjectInfo, RenameOutcome

_SCHEMA = pa.schema([pa.field("id", pa.int32(), nullable=False)])
_FOOTER = Footer("conformance", "conformance", 1, 1, 0, 1, "changes")


class Deviation(NamedTuple):
    """A difference between what the publish protocol expects of a storage and what the storage did."""

    expected: str
    found: str


def deviations(store: LandingZoneStore) -> list[Deviation]:
    """Try all operations on the storage, and return each difference from what the publish protocol needs.

    The trial files are removed afterwards.
    """
    folder = f"{SCRATCH_FOLDER}/conformance-{uuid4().hex}"
    probe = _Probe(store, folder)
    try:
        for step in probe.steps():
            try:
                step()
            except TerminalError as error:
                if error.code != "STORE_UNFIT":
                    raise
                probe.found.append(Deviation("conditions are kept, and answers are as documented", error.what))
    finally:
        store.delete_folder(folder)
    left = any(info.path.startswith(f"{folder}/") for info in store.list(SCRATCH_FOLDER))
    if left:
        probe.found.append(
            Deviation("a deleted folder is gone from listings at once", "objects of it are still listed")
        )
    return probe.found


class _Probe:
    def __init__(self, store: LandingZoneStore, folder: str) -> None:
        self._store, self._folder = store, folder
        self.found: list[Deviation] = []

    def steps(self) -> tuple[Callable[[], None], ...]:
        return (self._create, self._footer, self._no_overwrite, self._bound, self._missing, self._rename, self._delete)

    def _create(self) -> None:
        info = self._new("created", b"one")
        self._check("an object is listed as soon as it is created", self._listed(info.path), info)
        self._check("a point read agrees with the creation", self._store.stat(info.path), info)
        second = self._store.create(info.path, b"two")
        self._check("a second creation under one name is refused (If-None-Match)", second, None)
        content = self._store.read(info.path)
        kept = None if content is None else (content.data, content.etag)
        self._check("what was created first stays", kept, (b"one", info.etag))

    def _footer(self) -> None:
        with tempfile.TemporaryDirectory(prefix="open_mirroring-") as scratch:
            local = Path(scratch) / "file.parquet"
            rows = pa.table([pa.array([1, 2], pa.int32())], schema=_SCHEMA)
            written = write_data_file(local, rows, _SCHEMA, _FOOTER)
            self._new("footer", local)
            with self._store.fetch(f"{self._folder}/footer") as back:
                footer = None if back is None else read_footer(back)
        digest = None if footer is None else footer.digest
        self._check("a file's footer comes back as it was written", digest, written.digest)

    def _no_overwrite(self) -> None:
        taken, late = self._new(file_name(1), b"published"), self._new("late", b"late")
        answer = self._store.rename(late.path, taken.path, source_etag=late.etag)
        self._check("a rename onto an object is refused", answer, RenameOutcome.REFUSED)
        self._check("the object it was to replace is unchanged", self._store.stat(taken.path), taken)
        self._check("the object that was to be renamed is unchanged", self._store.stat(late.path), late)

    def _bound(self) -> None:
        sealed = self._new("replaced", b"same")
        self._store.delete(sealed.path)
        replaced = self._new("replaced", b"same")
        self._check("a re-created object has another ETag", replaced.etag != sealed.etag, True)
        answer = self._store.rename(replaced.path, self._number(2), source_etag=sealed.etag)
        self._check("a rename of another object than the one named is refused", answer, RenameOutcome.REFUSED)
        self._check("nothing comes of that rename", self._store.stat(self._number(2)), None)

    def _missing(self) -> None:
        answer = self._store.rename(f"{self._folder}/nowhere", self._number(3), source_etag="0x1")
        self._check("a rename of what is not there is refused", answer, RenameOutcome.REFUSED)
        dying = self._new("table/_stage-1/dying", b"x")
        self._store.delete_folder(f"{self._folder}/table")
        answer = self._store.rename(dying.path, f"{self._folder}/table/{file_name(1)}", source_etag=dying.etag)
        self._check("a rename out of a deleted folder is refused", answer, RenameOutcome.REFUSED)

    def _rename(self) -> None:
        info = self._new("sealed", b"rows")
        answers = [self._store.rename(info.path, self._number(4), source_etag=info.etag) for _ in range(2)]
        self._check("a rename happens once", answers, [RenameOutcome.DONE, RenameOutcome.REFUSED])
        self._check("a rename consumes its source", self._store.stat(info.path), None)
        moved = info._replace(path=self._number(4))
        self._check("a rename keeps ETag and size", self._store.stat(moved.path), moved)
        self._check("a rename is listed at once", self._listed(moved.path), moved)
        self._check("a source that was renamed is not listed any more", self._listed(info.path), None)

    def _delete(self) -> None:
        info = self._new("deleted", b"x")
        self._store.delete(info.path)
        self._check("a deletion is listed at once", self._listed(info.path), None)

    def _new(self, name: str, content: bytes | Path) -> ObjectInfo:
        created = self._store.create(f"{self._folder}/{name}", content)
        if created is None:
            raise TerminalError(
                "STORE_UNFIT",
                f"the storage reports that the new name {name!r} exists already",
                where=self._folder,
                next_step="find out who else writes to the folder _scratchPad",
            )
        return created

    def _number(self, number: int) -> str:
        return f"{self._folder}/{file_name(number)}"

    def _listed(self, path: str) -> ObjectInfo | None:
        return next((info for info in self._store.list(self._folder) if info.path == path), None)

    def _check(self, expected: str, found: object, wanted: object) -> None:
        if found != wanted:
            self.found.append(Deviation(expected, f"{found!r} instead of {wanted!r}"))
