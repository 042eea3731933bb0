"""The ledger transactions of publishing, each for many tables.

An *intent* records which file numbers and changes a table publishes next. The intent is *sealed* with the staged files
that get these numbers, and *confirmed* once all these files are in the landing zone. A transaction writes a table's
ledger row only if the row still has the version that the caller expects.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.landing_zone.schema import TableSchema
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.declaring import ResetRecord, stopped
from open_mirroring.ledger.load_ledger import LoadPlan, chunks_of
from open_mirroring.ledger.tables import upsert
from open_mirroring.protocols.publishing import Intent, Lost, Owned, StagedFile, TableRow
from open_mirroring.protocols.resetting import ResetStage


class StagedDetails(NamedTuple):
    """What was found out while the files of an intent were staged.

    An intent records which changes a table publishes next. The details are stored with the intent when its files are
    fixed (sealed), and recorded for the table when the files are confirmed. *shortest* has, for loaded columns whose
    SQL type is unknown, the length in bytes of the shortest value.
    """

    columns: TableSchema
    counts: Mapping[str, int]
    rejected: Sequence[Mapping[str, Any]] = ()
    shortest: Mapping[str, int] = MappingProxyType({})


class PublishLedger:
    """The ledger of one mirror for publishing; tables are identified by id.

    Methods that get a version for each table write only rows that still have this version. For other rows they return
    ``Lost``, because another process has taken over the table.
    """

    def __init__(self, engine: Engine, mirror: str) -> None:
        self._engine = engine
        self._mirror = mirror

    def acquire(self, table_ids: Iterable[str]) -> dict[str, Owned]:
        """Take over the ledger rows of tables: raise their versions, so that earlier processes cannot write them."""
        with self._engine.begin() as db:
            c = t.mirrored_table.c
            ids = list(table_ids)
            t.change_tables(db, c.id.in_(ids))
            return self._owned(db, ids)

    def establish(self, markers: Mapping[str, tuple[int, str]]) -> dict[str, Owned | Lost]:
        """Record that the folders of tables exist, with metadata and marker file.

        *markers* has, by table, the version of the ledger row and the ETag of the marker file.
        """
        return self._each(
            {id_: (version, {"established": True, "marker_etag": etag}) for id_, (version, etag) in markers.items()}
        )

    def intend(self, intents: Mapping[str, tuple[int, Intent]]) -> dict[str, Owned | Lost]:
        """Record for each table what it publishes next (an intent); ``Lost`` if it has an open intent or is stopped."""
        c = t.mirrored_table.c
        return self._each(
            {id_: (version, {"intent": _intent_json(intent, None)}) for id_, (version, intent) in intents.items()},
            c.intent.is_(None) & c.stop_code.is_(None),
        )

    def seal(self, manifests: Mapping[str, tuple[int, Sequence[StagedFile], StagedDetails]]) -> dict[str, Owned | Lost]:
        """Fix which staged files get the file numbers of the open intents; ``Lost`` if the files are fixed already."""
        c = t.mirrored_table.c
        with self._engine.begin() as db:
            opened = dict(db.execute(sa.select(c.id, c.intent).where(c.id.in_(manifests))).tuples().all())
            writes: dict[str, tuple[int, dict[str, Any]]] = {}
            for table_id, (version, files, details) in manifests.items():
                intent = _intent_of(opened[table_id])
                if intent is not None and intent.manifest is None:
                    sealed = replace(intent, manifest=tuple(files))
                    writes[table_id] = (version, {"intent": _intent_json(sealed, details)})
            owned = self._write(db, writes, sa.true())
        return {table_id: owned.get(table_id, Lost()) for table_id in manifests}

    def confirm(self, versions: Mapping[str, int]) -> dict[str, Owned | Lost]:
        """Record that all files of the open intents were seen in the landing zone, and close the intents.

        The highest file number and the published batch of each table advance. Columns, counts and dead letters that
        staging found are stored.
        """
        c = t.mirrored_table.c
        with self._engine.begin() as db:
            # Locked, so that what is written is made of the very rows that the versions are compared with.
            rows = db.execute(sa.select(t.mirrored_table).where(c.id.in_(versions)).order_by(c.id).with_for_update())
            intents = ((row, _intent_of(row.intent)) for row in rows)
            sealed = {row.id: (row, intent) for row, intent in intents if intent and intent.manifest is not None}
            writes = {id_: (versions[id_], _after(row, intent)) for id_, (row, intent) in sealed.items()}
            owned = self._write(db, writes, sa.true())
            _record_publications(db, [sealed[table_id] for table_id in owned])
        return {table_id: owned.get(table_id, Lost()) for table_id in versions}

    def stop(self, stops: Mapping[str, tuple[int, str, str]]) -> dict[str, Owned | Lost]:
        """Stop tables; *stops* has, by table, the version of the ledger row, the code, and the text of the stop."""
        return self._each({id_: (version, stopped(code, what)) for id_, (version, code, what) in stops.items()})

    def _each(
        self, writes: Mapping[str, tuple[int, dict[str, Any]]], condition: sa.ColumnElement[bool] | None = None
    ) -> dict[str, Owned | Lost]:
        with self._engine.begin() as db:
            owned = self._write(db, writes, sa.true() if condition is None else condition)
        return {table_id: owned.get(table_id, Lost()) for table_id in writes}

    def _write(
        self, db: Connection, writes: Mapping[str, tuple[int, dict[str, Any]]], condition: sa.ColumnElement[bool]
    ) -> dict[str, Owned]:
        """Write the values, of the same columns, of tables whose row has the version and fulfils the condition."""
        c = t.mirrored_table.c
        # The rows stay locked from here on, so one statement may write them all. Always in one order: writers of the
        # same tables must not wait for each other.
        query = sa.select(c.id, c.version).where(c.id.in_(writes), condition).order_by(c.id).with_for_update()
        found = dict(db.execute(query).tuples().all())
        won = {table_id: values for table_id, (version, values) in writes.items() if found.get(table_id) == version}
        if not won:
            return {}
        statement = t.mirrored_table.update().where(c.id == sa.bindparam("this"), c.version == sa.bindparam("seen"))
        rows = [{"this": id_, "seen": found[id_], **values} for id_, values in won.items()]
        db.execute(statement.values(version=c.version + 1), rows)
        return self._owned(db, list(won))

    @staticmethod
    def _owned(db: Connection, table_ids: Sequence[str]) -> dict[str, Owned]:
        c = t.mirrored_table.c
        rows = db.execute(sa.select(t.mirrored_table).where(c.id.in_(table_ids)))
        return {row.id: Owned(table_row(row)) for row in rows}


def table_row(row: Any) -> TableRow:
    """Convert a table's ledger row to the form that the publish protocol uses."""
    reset = ResetRecord.of(row.reset)
    return TableRow(
        version=row.version,
        generation=row.generation,
        incarnation=row.incarnation,
        established=row.established,
        confirmed=row.confirmed,
        published_batch=row.published_batch,
        intent=_intent_of(row.intent),
        stop=row.stop_code,
        marker_etag=row.marker_etag,
        published_position=row.published_position,
        resetting=reset is not None and reset.stage is not ResetStage.REBUILDING,
    )


def _intent_json(intent: Intent, details: StagedDetails | None) -> str:
    document = asdict(intent)
    if details is not None:
        document["details"] = {
            "columns": details.columns.stored,
            "counts": dict(details.counts),
            "rejected": list(details.rejected),
            "shortest": dict(details.shortest),
        }
    return json.dumps(document, ensure_ascii=False)


_decode = msgspec.json.Decoder(Intent).decode


def _intent_of(text: str | None) -> Intent | None:
    return None if text is None else _decode(text)


def _after(row: Any, intent: Intent) -> dict[str, Any]:
    details = json.loads(row.intent)["details"]
    kept = ("published_batch", "published_position", "waiting_rows", "load_plan", "load_state")
    values: dict[str, Any] = {
        **{name: getattr(row, name) for name in kept},
        "intent": None,
        "confirmed": row.confirmed + len(intent.manifest or ()),
        "columns": json.dumps(details["columns"], ensure_ascii=False),
    }
    if intent.work.kind == "changes":
        values |= {"published_batch": intent.work.batch_to, "published_position": intent.work.position_to}
        let_in, let_out = (details["counts"].get(name, 0) for name in ("waiting", "released"))
        values["waiting_rows"] = (row.waiting_rows or 0) + let_in - let_out
        return values
    plan = LoadPlan.from_json(row.load_plan).having(details.get("shortest", {}), chunks_of(intent.work.chunk))
    values["load_plan"] = plan.to_json()
    if not plan.remaining:
        values |= {"load_state": "loaded", "published_batch": plan.hand_over_batch}
    return values


def _record_publications(db: Connection, confirmed: Iterable[tuple[Any, Intent]]) -> None:
    now = datetime.now(UTC)
    publications: list[dict[str, Any]] = []
    files: list[dict[str, Any]] = []
    rejected: list[dict[str, Any]] = []
    for row, intent in confirmed:
        details = json.loads(row.intent)["details"]
        common = {
            "table_id": row.id,
            "generation": row.generation,
            "kind": intent.work.kind,
            "batch_from": intent.batch_from,
            "batch_to": intent.work.batch_to,
            "confirmed_at": now,
        }
        own = {"version": row.version, "position_to": intent.work.position_to, "counts": json.dumps(details["counts"])}
        publications.append({**own, **common})
        files += [
            {name: value for name, value in asdict(file).items() if name != "object_name"}
            | {"number": intent.first_number + index, **common}
            for index, file in enumerate(intent.manifest or ())
        ]
        rejected += [
            {**reject, "table_id": row.id, "key_digest": hashlib.sha256((reject["key"] or "").encode()).hexdigest()}
            for reject in details["rejected"]
        ]
    for table, rows in ((t.publication, publications), (t.published_file, files)):
        if rows:
            db.execute(table.insert(), rows)
    upsert(db, t.rejected_change, rejected, keys=["table_id", "epoch", "pos", "key_digest"], update=[])
