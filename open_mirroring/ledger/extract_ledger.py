"""The ledger transactions of extraction: what a log batch binds, seals and leaves behind."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.extracting import Batch, Lost, MirrorRow, Owned
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.upsert import upsert


class BoundRange(NamedTuple):
    """What a batch reads of one source file or partition: from *start* (inclusive) to *end* (exclusive)."""

    name: str
    start: int
    end: int


class OpenFragment(NamedTuple):
    """A split message of which pieces are missing: where its pieces lie in the log, and since when it waits."""

    identity: str
    epoch: str
    pos: str
    since_batch: int
    since: datetime
    files: tuple[str, ...]


@dataclass(frozen=True)
class Manifest:
    """What one attempt at a batch wrote; sealed into the ledger before the log is committed.

    Attributes:
        files: per log file its path relative to the log, rows, bytes, and per table and epoch
            ``[rows, lowest, highest position]``.
        counts: messages by disposition (``messages`` = sum of the others), and of fragments what became of them.
        columns: per table the column lists seen, each with whether one row proves it to be whole.
        fragments: open ones after this batch, and the identities that this batch closed.
        rejects: per table (None: unknown) a count, and the first reject without a key if there is one.
    """

    files: Sequence[Mapping[str, Any]]
    counts: Mapping[str, int]
    columns: Mapping[str, Sequence[tuple[str, bool, str]]] = field(default_factory=dict)
    opened: Sequence[Mapping[str, Any]] = ()
    closed: Sequence[str] = ()
    homeless_rejects: int = 0
    keyless_rejects: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def to_json(self) -> str:
        """The manifest as the ledger stores it; equal manifests give equal texts."""
        return json.dumps(self.__dict__, ensure_ascii=False, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read back what :meth:`to_json` wrote."""
        return cls(**json.loads(text))


class ExtractLedger:
    """The ledger as the extract protocol of one mirror sees it."""

    def __init__(self, engine: Engine, mirror: str) -> None:
        self._engine = engine
        self._mirror = mirror

    def acquire(self) -> Owned:
        """Raise the row's version and return it: every write by an earlier owner is refused from now on."""
        with self._engine.begin() as db:
            upsert(db, t.mirror, [{"name": self._mirror}], keys=["name"], update=[])
            db.execute(self._row_update().values(version=t.mirror.c.version + 1))
            return Owned(self._read(db))

    def bind(self, version: int, batch: Batch, ranges: Sequence[BoundRange]) -> Owned | Lost:
        """Give the next batch number to these ranges, and remember them as bound."""
        with self._engine.begin() as db:
            if not self._set(
                db,
                version,
                t.mirror.c.open_number.is_(None),
                open_number=batch.number,
                open_ranges=batch.ranges,
                open_bound_at=_now(),
            ):
                return Lost()
            upsert(
                db,
                t.bound_range,
                [{"mirror": self._mirror, "name": r.name, "bound_to": r.end, "batch": batch.number} for r in ranges],
                keys=["mirror", "name"],
                update=["bound_to", "batch"],
            )
            return Owned(self._read(db))

    def seal(self, version: int, manifest: str) -> Owned | Lost:
        """Make *manifest* the open batch's files."""
        with self._engine.begin() as db:
            unsealed = t.mirror.c.open_number.is_not(None) & t.mirror.c.open_manifest.is_(None)
            return Owned(self._read(db)) if self._set(db, version, unsealed, open_manifest=manifest) else Lost()

    def complete(self, version: int) -> Owned | Lost:
        """The open batch is in the log: record what it holds and free the mirror for the next."""
        with self._engine.begin() as db:
            row = db.execute(sa.select(t.mirror).where(t.mirror.c.name == self._mirror)).one()
            sealed = t.mirror.c.open_manifest.is_not(None)
            manifest_text = row.open_manifest
            if not self._set(
                db,
                version,
                sealed,
                committed=t.mirror.c.open_number,
                open_number=None,
                open_ranges=None,
                open_manifest=None,
                open_bound_at=None,
            ):
                return Lost()
            manifest = Manifest.from_json(manifest_text)
            db.execute(
                t.log_batch.insert().values(
                    mirror=self._mirror,
                    number=row.open_number,
                    ranges=row.open_ranges,
                    manifest=manifest_text,
                    bound_at=row.open_bound_at,
                    committed_at=_now(),
                )
            )
            self._record_contents(db, row.open_number, manifest)
            self._record_fragments(db, row.open_number, row.open_bound_at, manifest)
            self._record_tables(db, manifest)
            return Owned(self._read(db))

    def stop(self, version: int, code: str, what: str) -> Owned | Lost:
        """Stop extraction of this mirror until somebody decides."""
        with self._engine.begin() as db:
            if not self._set(db, version, sa.true(), stop_code=code, stop_what=what):
                return Lost()
            return Owned(self._read(db))

    def bound(self) -> dict[str, int]:
        """Up to where each source file or partition is bound."""
        with self._engine.begin() as db:
            query = sa.select(t.bound_range.c.name, t.bound_range.c.bound_to).where(
                t.bound_range.c.mirror == self._mirror
            )
            return {name: bound_to for name, bound_to in db.execute(query).tuples()}

    def open_fragments(self) -> list[OpenFragment]:
        """Split messages of committed batches that still miss pieces."""
        with self._engine.begin() as db:
            query = sa.select(t.open_fragment).where(t.open_fragment.c.mirror == self._mirror)
            return [
                OpenFragment(f.identity, f.epoch, f.pos, f.since_batch, f.since, tuple(json.loads(f.files)))
                for f in db.execute(query)
            ]

    def files_of_position(self, epoch: str, pos: str, before_batch: int) -> list[str]:
        """Log files that may hold a change at this position, of any table, in batches before *before_batch*."""
        c = t.batch_table.c
        query = sa.select(c.files).where(
            c.mirror == self._mirror, c.epoch == epoch, c.min_pos <= pos, c.max_pos >= pos, c.batch < before_batch
        )
        with self._engine.begin() as db:
            return sorted({file for files in db.scalars(query) for file in json.loads(files)})

    def _row_update(self) -> sa.Update:
        return t.mirror.update().where(t.mirror.c.name == self._mirror)

    def _set(self, db: Connection, version: int, condition: sa.ColumnElement[bool], **values: Any) -> bool:
        statement = self._row_update().where(t.mirror.c.version == version, condition)
        return db.execute(statement.values(version=version + 1, **values)).rowcount == 1

    def _read(self, db: Connection) -> MirrorRow:
        row = db.execute(sa.select(t.mirror).where(t.mirror.c.name == self._mirror)).one()
        batch = None
        if row.open_number is not None:
            batch = Batch(row.open_number, row.open_ranges, row.open_manifest)
        return MirrorRow(row.version, row.committed, batch, row.stop_code)

    def _record_contents(self, db: Connection, number: int, manifest: Manifest) -> None:
        merged: dict[tuple[str, str], dict[str, Any]] = {}
        for file in manifest.files:
            for source, epochs in file["tables"].items():
                for epoch, (rows, lowest, highest) in epochs.items():
                    entry = merged.setdefault(
                        (source, epoch), {"rows": 0, "min_pos": lowest, "max_pos": highest, "files": []}
                    )
                    entry["rows"] += rows
                    entry["min_pos"] = min(entry["min_pos"], lowest)
                    entry["max_pos"] = max(entry["max_pos"], highest)
                    entry["files"].append(file["path"])
        if merged:
            db.execute(
                t.batch_table.insert(),
                [
                    {"mirror": self._mirror, "source": source, "batch": number, "epoch": epoch}
                    | entry
                    | {"files": json.dumps(entry["files"])}
                    for (source, epoch), entry in merged.items()
                ],
            )

    def _record_fragments(self, db: Connection, number: int, bound_at: datetime, manifest: Manifest) -> None:
        gone = [*manifest.closed, *(f["identity"] for f in manifest.opened)]
        since = {
            row.identity: (row.since_batch, row.since)
            for row in db.execute(sa.select(t.open_fragment).where(t.open_fragment.c.mirror == self._mirror))
        }
        for identity in gone:
            c = t.open_fragment.c
            db.execute(t.open_fragment.delete().where(c.mirror == self._mirror, c.identity == identity))
        for fragment in manifest.opened:
            since_batch, since_time = since.get(fragment["identity"], (number, bound_at))
            db.execute(
                t.open_fragment.insert().values(
                    mirror=self._mirror,
                    identity=fragment["identity"],
                    epoch=fragment["epoch"],
                    pos=fragment["pos"],
                    since_batch=since_batch,
                    since=since_time,
                    files=json.dumps(fragment["files"]),
                )
            )

    def _record_tables(self, db: Connection, manifest: Manifest) -> None:
        """Column lists, epochs and undecodable keys of the tables that the mirror knows."""
        db.execute(self._row_update().values(homeless_rejects=t.mirror.c.homeless_rejects + manifest.homeless_rejects))
        epochs: dict[str, set[str]] = {}
        for file in manifest.files:
            for source, seen in file["tables"].items():
                epochs.setdefault(source, set()).update(seen)
        concerned = {*epochs, *manifest.columns, *manifest.keyless_rejects}
        c = t.mirrored_table.c
        known = db.execute(sa.select(c.id, c.source).where(c.mirror == self._mirror, c.source.in_(concerned))).tuples()
        for table_id, source in known:
            self._record_columns(db, table_id, manifest.columns.get(source, ()))
            self._record_epochs(db, table_id, epochs.get(source, set()))
            reject = manifest.keyless_rejects.get(source)
            if reject is not None:
                what = f"a change without a readable key: {reject['code']}: {reject['reason']} at {reject['at']}"
                stop_table(db, table_id, "KEY_UNKNOWN", what)

    @staticmethod
    def _record_columns(db: Connection, table_id: str, lists: Sequence[tuple[str, bool, str]]) -> None:
        for cols, whole, first_pos in lists:
            digest = hashlib.sha256(cols.encode()).hexdigest()
            row = {"table_id": table_id, "digest": digest, "cols": cols, "whole": whole, "first_pos": first_pos}
            upsert(db, t.column_list, [row], keys=["table_id", "digest"], update=["whole"] if whole else [])

    @staticmethod
    def _record_epochs(db: Connection, table_id: str, epochs: set[str]) -> None:
        c = t.stream_epoch.c
        known = set(db.scalars(sa.select(c.epoch).where(c.table_id == table_id)))
        fresh = sorted(epochs - known)
        if not fresh:
            return
        if not known and len(fresh) == 1:
            db.execute(t.stream_epoch.insert().values(table_id=table_id, epoch=fresh[0], ordinal=0))
            return
        stop_table(db, table_id, "EPOCH_UNKNOWN", f"changes of an unknown stream incarnation arrived: {fresh}")


def stop_table(db: Connection, table_id: str, code: str, what: str) -> None:
    """Stop a table inside a running transaction; the first reason stands."""
    c = t.mirrored_table.c
    db.execute(
        t.mirrored_table.update()
        .where(c.id == table_id, c.stop_code.is_(None))
        .values(stop_code=code, stop_what=what, stopped_at=_now(), version=c.version + 1)
    )


def _now() -> datetime:
    return datetime.now(UTC)
