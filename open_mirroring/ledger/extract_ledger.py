"""The ledger transactions of reading the source into batches of the change log.

A batch is *bound* (source ranges are assigned to its number), then *sealed* (its files are fixed), then *completed*
(its files are in the change log).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.changes.complete_position import Completeness
from open_mirroring.changes.manifest import (
    AnnouncedSchema,
    BoundFile,
    BoundRange,
    FileVersion,
    LetterPlace,
    Manifest,
    OpenFragment,
    Reads,
    Scope,
)
from open_mirroring.changes.source_reloads import NewestLoad
from open_mirroring.codes import Trait, having
from open_mirroring.errors import TerminalError
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.batch_contents import record_contents, stop_table
from open_mirroring.ledger.declaring import REDECLARED, is_dropping, note_log, stopped
from open_mirroring.ledger.documents import FRAGMENTS, OFFSETS, STARTS, STRUCTURES, Offsets
from open_mirroring.ledger.horizon import newest_dropped
from open_mirroring.ledger.tables import upsert
from open_mirroring.protocols.extracting import Batch, Lost, MirrorRow, Owned
from open_mirroring.protocols.table_stops import KEY_CORRECTED, KEY_UNKNOWN, LOAD_UNREAD

_ASKED_BY_NAME = 5_000


class ExtractLedger:
    """The ledger of one mirror for reading its source.

    Methods with the parameter *version* write only if the mirror's ledger row still has this version, and return the
    new row as ``Owned``. If the version differs, another process has taken over: nothing is written, and ``Lost`` is
    returned.
    """

    def __init__(
        self,
        engine: Engine,
        mirror: str,
        keys: Mapping[str, Sequence[str]] | None = None,
        key_types: Mapping[str, str] | None = None,
        log: Sequence[str] = (),
    ) -> None:
        """*keys* and *key_types*: key columns and their types in this run, by source table; *log*: its change log."""
        self._engine = engine
        self._mirror = mirror
        self._keys, self._key_types, self._log = keys or {}, key_types or {}, log

    def acquire(self) -> Owned:
        """Take over the mirror's ledger row: raise its version, so that all writes by earlier processes are refused."""
        with self._engine.begin() as db:
            upsert(db, t.mirror, [{"name": self._mirror}], keys=["name"], update=[])
            c = t.mirror.c
            db.execute(t.mirror.update().where(c.name == self._mirror).values(version=c.version + 1))
            return Owned(self._read(db))

    def bind(
        self, version: int, batch: Batch, new: Sequence[BoundRange], versions: Mapping[str, FileVersion] | None = None
    ) -> Owned | Lost:
        """Assign source ranges to the next batch number, and record the *new* ranges as bound.

        Raises ``TABLE_REDECLARED`` if a table's key in the ledger differs from its key in the mirror file of this run.
        """
        with self._engine.begin() as db:
            values = {"open_number": batch.number, "open_ranges": batch.ranges, "open_bound_at": datetime.now(UTC)}
            if not self._set(db, version, t.mirror.c.open_number.is_(None), **values):
                return Lost()
            self._refuse_other_keys(db)
            if self._log:
                note_log(db, self._mirror, self._log)
            bind_ranges(db, self._mirror, batch.number, new, versions or {})
            return Owned(self._read(db))

    def seal(self, version: int, manifest: str) -> Owned | Lost:
        """Fix the files of the open batch to those of *manifest*.

        Raises ``TABLE_REDECLARED`` if a table's key in the ledger differs from its key in the mirror file of this run.
        """
        with self._engine.begin() as db:
            unsealed = t.mirror.c.open_number.is_not(None) & t.mirror.c.open_manifest.is_(None)
            if not self._set(db, version, unsealed, open_manifest=manifest):
                return Lost()
            self._refuse_other_keys(db)
            return Owned(self._read(db))

    def complete(self, version: int) -> Owned | Lost:
        """Record that the open batch is in the change log, with its contents.

        After that, the next batch can be bound.
        """
        with self._engine.begin() as db:
            row = db.execute(sa.select(t.mirror).where(t.mirror.c.name == self._mirror)).one()
            closed = dict.fromkeys(("open_number", "open_ranges", "open_manifest", "open_bound_at"))
            sealed = t.mirror.c.open_manifest.is_not(None)
            if not self._set(db, version, sealed, committed=t.mirror.c.open_number, **closed):
                return Lost()
            times = row.open_bound_at, datetime.now(UTC)
            record_batch(db, self._mirror, row.open_number, row.open_ranges, row.open_manifest, *times)
            return Owned(self._read(db))

    def stop(self, version: int, code: str, what: str) -> Owned | Lost:
        """Stop reading the source of this mirror until an operator decides."""
        with self._engine.begin() as db:
            if not self._set(db, version, sa.true(), stop_code=code, stop_what=what):
                return Lost()
            return Owned(self._read(db))

    def record_offsets(self, offsets: Mapping[str, tuple[int, int]]) -> None:
        """Store, by partition, the first offset that a broker still has, and the offset after its newest message."""
        seen = {name: Offsets(first, end, datetime.now(UTC)) for name, (first, end) in offsets.items()}
        with self._engine.begin() as db:
            OFFSETS.put(db, self._mirror, seen)

    def stop_table(self, source: str, code: str, what: str) -> None:
        """Stop a table whose changes cannot be read.

        If the table is stopped already, :func:`~open_mirroring.ledger.batch_contents.stop_table` decides which stop it
        keeps. ``LOAD_UNREAD`` (no `initial_load` in the mirror file reads the table's full load by the Qlik task) does
        not stop a table whose initial load is in the ledger: `initial_load` may have been removed from the mirror file
        since.
        """
        c = t.mirrored_table.c
        concerned = (c.mirror == self._mirror) & (c.source == source)
        if code == LOAD_UNREAD:
            concerned &= c.load_state == "none"
        with self._engine.begin() as db:
            for table_id in db.scalars(sa.select(c.id).where(concerned)).all():
                stop_table(db, table_id, code, what)

    def corrected_tables(self) -> list[str]:
        """The source tables whose `key` was corrected in the mirror file (G-69).

        A table is included until its rejected changes are read again: those that could not be read with the wrong key.
        """
        c = t.mirrored_table.c
        query = sa.select(c.source).where(c.mirror == self._mirror, c.stop_code == KEY_CORRECTED).order_by(c.source)
        with self._engine.begin() as db:
            return list(db.scalars(query))

    def refuse_corrected(self, source: str, what: str) -> None:
        """Stop a table by ``KEY_UNKNOWN`` again, because its changes cannot be read with the corrected `key` either."""
        c = t.mirrored_table.c
        this = (c.mirror == self._mirror) & (c.source == source) & (c.stop_code == KEY_CORRECTED)
        with self._engine.begin() as db:
            t.change_tables(db, this, **stopped(KEY_UNKNOWN, what))

    def bound(self) -> dict[str, int]:
        """By source file or partition, the first byte or offset that does not belong to a batch yet."""
        query = sa.select(t.bound_range.c.name, t.bound_range.c.bound_to).where(t.bound_range.c.mirror == self._mirror)
        return {name: bound_to for name, bound_to in t.rows(self._engine, query)}

    def seen_files(self, names: Collection[str]) -> dict[str, BoundFile]:
        """The stored versions of the named files, and of all files of which some bytes do not belong to a batch yet."""
        c = t.bound_range.c
        query = sa.select(c.name, c.bound_to, c.version, c.digest).where(c.mirror == self._mirror)
        if len(names) <= _ASKED_BY_NAME:
            query = query.where(c.name.in_(names) | c.version.not_like(sa.cast(c.bound_to, sa.String) + ":%"))
        found = t.rows(self._engine, query.where(c.version.is_not(None)))
        return {name: BoundFile(end, FileVersion(version, digest)) for name, end, version, digest in found}

    def seen_versions(self, names: Collection[str], bound: Mapping[str, int]) -> dict[str, FileVersion]:
        """The stored versions of files as :meth:`seen_files` returns them, except files that another run has bound.

        *bound* has, by file, the number of bytes that this run knows to belong to batches. If the ledger has a
        different number, another run has bound the file since.
        """
        return {n: file.seen for n, file in self.seen_files(names).items() if bound.get(n) == file.bound_to}

    def remember_versions(self, versions: Mapping[str, tuple[int, FileVersion]]) -> None:
        """Store the versions of files, except files that another run has bound since.

        Each entry has the number of bytes of the file that this run knows to belong to batches, and the version.
        """
        c = t.bound_range.c
        with self._engine.begin() as db:
            for name, (bound_to, seen) in versions.items():
                same = (c.mirror == self._mirror) & (c.name == name) & (c.bound_to == bound_to)
                db.execute(t.bound_range.update().where(same).values(**seen._asdict()))

    def bound_above(self, batch: int) -> list[BoundRange]:
        """All source ranges that committed batches above *batch* read for the first time, sorted by name."""
        c = t.log_batch.c
        query = sa.select(c.ranges).where(c.mirror == self._mirror, c.number > batch)
        with self._engine.begin() as db:
            scopes = [Scope.from_json(text) for text in db.scalars(query)]
        return sorted({bound for scope in scopes if scope.purpose == "new" for bound in scope.ranges})

    def open_fragments(self) -> list[OpenFragment]:
        """Split messages of committed batches of which pieces are still missing."""
        with self._engine.connect() as db:
            return [*FRAGMENTS.of(db, self._mirror).values()]

    def shown_partitions(self, reads: Reads) -> set[str]:
        """The partitions that have shown a position; empty if the mirror keeps no complete position.

        *reads* are the places from which the source is read. If a place that was read before is not in *reads*, the
        result is empty, too.
        """
        c, m = t.log_batch.c, t.mirror.c
        query = sa.select(c.completeness).join(t.mirror, (c.mirror == m.name) & (c.number == m.committed))
        text = t.first(self._engine, query.where(m.name == self._mirror))
        return set() if text is None else {*Completeness.from_json(text).highest_at(reads)}

    def schemas(self) -> list[AnnouncedSchema]:
        """All table structures that the source announced in committed batches, oldest first."""
        with self._engine.connect() as db:
            found = STRUCTURES.of(db, self._mirror).values()
        return [one.schema for one in sorted(found, key=attrgetter("batch"))]

    def files_of_position(self, epoch: str, lowest: str, highest: str, before_batch: int) -> list[str]:
        """Files of the change log that may contain a change between two positions of the stream *epoch*, of any table.

        Only files of batches before *before_batch* are returned.
        """
        c = t.batch_table.c
        query = sa.select(c.files).where(
            c.mirror == self._mirror,
            c.epoch == epoch,
            c.min_pos <= highest,
            c.max_pos >= lowest,
            c.batch < before_batch,
            c.batch > newest_dropped(self._mirror),
        )
        with self._engine.begin() as db:
            return sorted({file for files in db.scalars(query) for file in json.loads(files)})

    def tables_with_changes(self) -> frozenset[str]:
        """The source tables of which changes are logged, and not only rows of a full load by a Qlik task (K-18)."""
        m = t.mirrored_table.c
        query = sa.select(m.id, m.source).where(m.mirror == self._mirror)
        with self._engine.begin() as db:
            sources = dict(db.execute(query).tuples().all())
            return frozenset(sources[table_id] for table_id in STARTS.of_each(db, sources))

    def newest_loads(self, epoch: str) -> dict[str, NewestLoad]:
        """By source table, the full load with which the table was rebuilt (G-125).

        Only full loads in the stream *epoch* are included.
        """
        c = t.mirrored_table.c
        query = sa.select(c.source, c.newest_load).where(c.mirror == self._mirror, c.newest_load.is_not(None))
        found = {source: NewestLoad.of(text) for source, text in t.rows(self._engine, query)}
        return {source: load for source, load in found.items() if load is not None and load.epoch == epoch}

    def open_damage(self, names: Collection[str]) -> list[tuple[LetterPlace, bool]]:
        """The open dead letters that are settled if a file in *names* is read again.

        Each dead letter has a flag: True if the dead letter names no table. Dead letters that name a table are included
        only if their file was incomplete (T-42).
        """
        c = t.open_letter.c
        query = sa.select(c.batch, c.origin, c.place, c.source.is_(None)).where(
            c.mirror == self._mirror,
            c.code.in_(having(Trait.OF_A_FILE)),
            c.place >= 0,
            sa.or_(c.source.is_(None), c.code == "FILE_INCOMPLETE"),
        )
        found = [(LetterPlace(*at), bool(without_table)) for *at, without_table in t.rows(self._engine, query)]
        return [one for one in found if one[0].origin in names]

    def files_of_batches(self, numbers: Iterable[int]) -> list[str]:
        """The files of the change log that the committed batches with these numbers wrote."""
        c = t.log_batch.c
        query = sa.select(c.manifest).where(c.mirror == self._mirror, c.number.in_(sorted(numbers)))
        with self._engine.begin() as db:
            manifests = [Manifest.from_json(text) for text in db.scalars(query)]
        return sorted(str(file["path"]) for manifest in manifests for file in manifest.files)

    def _refuse_other_keys(self, db: Connection) -> None:
        """Refuse a key that is not the ledger's, inside the transaction that locks the mirror's row.

        A run that read the mirror file before a reset must not log by the old key in a batch that is bound after it.
        """
        c = t.mirrored_table.c
        query = sa.select(c.source, c["keys"], c.key_types, c.reset).where(c.mirror == self._mirror)
        # Of a table that is being dropped nothing that was logged will count, should it come back.
        rows = [row for row in db.execute(query).tuples() if not is_dropping(row[3])]
        known = {source: (json.loads(keys), types) for source, keys, types, _ in rows}
        own = {source: ([*keys], self._key_types.get(source)) for source, keys in self._keys.items()}
        changed = [source for source, keyed in own.items() if known.get(source, keyed) != keyed]
        if changed:
            what = f"the key of {changed} changed while this run was reading"
            next_step = "run again: the next run reads the mirror file again"
            raise TerminalError(REDECLARED, what, where=f"mirror {self._mirror}", next_step=next_step)

    def _set(self, db: Connection, version: int, condition: sa.ColumnElement[bool], **values: Any) -> bool:
        this = (t.mirror.c.name == self._mirror) & (t.mirror.c.version == version)
        return db.execute(t.mirror.update().where(this, condition).values(version=version + 1, **values)).rowcount == 1

    def _read(self, db: Connection) -> MirrorRow:
        row = db.execute(sa.select(t.mirror).where(t.mirror.c.name == self._mirror)).one()
        batch = None if row.open_number is None else Batch(row.open_number, row.open_ranges, row.open_manifest)
        return MirrorRow(row.version, row.committed, batch, row.stop_code)


def bind_ranges(
    db: Connection, mirror: str, batch: int, new: Iterable[BoundRange], versions: Mapping[str, FileVersion]
) -> None:
    """Record that a batch binds *new* source ranges, with the *versions* of their files if known."""
    unknown = dict.fromkeys(FileVersion._fields)
    rows = [
        {"mirror": mirror, "name": one.name, "bound_to": one.end, "batch": batch}
        | (versions[one.name]._asdict() if one.name in versions else unknown)
        for one in new
    ]
    upsert(db, t.bound_range, rows, keys=["mirror", "name"], update=["bound_to", "batch", *FileVersion._fields])


def record_batch(
    db: Connection, mirror: str, number: int, ranges: str, manifest: str, bound_at: datetime, committed_at: datetime
) -> None:
    """Record a batch that is in the change log, and its contents."""
    times = {"bound_at": bound_at, "committed_at": committed_at}
    db.execute(t.log_batch.insert().values(mirror=mirror, number=number, ranges=ranges, manifest=manifest, **times))
    record_contents(db, mirror, number, bound_at, Manifest.from_json(manifest))
