"""A mirror whose ledger is filled by hand: what status, decisions and the command line are tested on, without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Table

from open_mirroring import config
from open_mirroring.changes.complete_position import Completeness
from open_mirroring.changes.places_seen import PlacesSeen
from open_mirroring.config import Mirror, load_mirror
from open_mirroring.ledger import open_ledger
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.columns import record_columns
from open_mirroring.ledger.documents import EPOCHS, Documents
from open_mirroring.ledger.reading import LedgerReader, TableState
from open_mirroring.reconciliation.inspection import declare_tables

MIRROR_FILE = """\
mirror: shop
source: {format: sqlserver-ces, transport: files, path: source}
landing_zone: {store: local, path: zone}
ledger: sqlite:///ledger.db
change_log: change log
tables:
  - {source: dbo.orders, target: dbo/orders, key: [order_id]}
  - {source: dbo.customers, target: dbo/customers, key: [customer_id]}
"""
GUID, OTHER_GUID = "11111111-2222-3333-4444-555555555555", "99999999-2222-3333-4444-555555555555"


class HandMadeMirror:
    """The mirror ``shop`` below a folder; its ledger has the tables of :data:`MIRROR_FILE` and one committed batch."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "mirrors" / "shop.yaml"
        self.file.parent.mkdir(parents=True)
        self.file.write_text(MIRROR_FILE, encoding="utf-8")
        (folder / "source").mkdir()
        self.mirror = load_mirror(self.file)
        self.ledger = open_ledger(self.mirror.ledger_url())
        self.ids = declare_tables(self.mirror, self.ledger)

    def with_tables(self, *tables: config.Table) -> Mirror:
        """The mirror with other tables in its file."""
        mirror = self.mirror.model_copy()
        mirror._tables = tables
        return mirror

    @property
    def reader(self) -> LedgerReader:
        return LedgerReader(self.ledger, "shop")

    def table(self, source: str) -> TableState:
        return self.reader.tables()[source]

    def insert(self, table: Table, **values: Any) -> None:
        with self.ledger.begin() as db:
            db.execute(table.insert().values(**values))

    def set_mirror(self, **values: Any) -> None:
        with self.ledger.begin() as db:
            db.execute(t.mirror.update().values(**values))

    def set_table(self, source: str, **values: Any) -> None:
        with self.ledger.begin() as db:
            db.execute(t.mirrored_table.update().where(t.mirrored_table.c.source == source).values(**values))

    def stop(self, source: str, code: str, what: str = "it was seen") -> None:
        self.set_table(source, stop_code=code, stop_what=what, stopped_at=datetime(2026, 1, 5, 9, 0, tzinfo=UTC))

    def accept(self, source: str, epoch: str, ordinal: int) -> None:
        self.keep(EPOCHS, self.ids[source], **{epoch: ordinal})

    def keep(self, kind: Documents[Any], owner: str, **values: Any) -> None:
        """Documents of a mirror or a table, by name."""
        with self.ledger.begin() as db:
            kind.put(db, owner, values)

    def list_columns(self, source: str, cols: list[Any], *places: str, whole: bool = True, epoch: str = GUID) -> None:
        """A column list that rows at these places have."""
        seen = PlacesSeen(min(places), max(places), *((min(places), max(places)) if whole else ()))
        with self.ledger.begin() as db:
            record_columns(db, self.ids[source], {json.dumps(cols): {epoch: seen}}, of_reading=False)

    def letter(self, place: int, source: str | None = None, **values: Any) -> None:
        """An open dead letter of the log, at a place of ``f``."""
        known = {"batch": 1, "origin": "f", "code": "MESSAGE_INVALID", "reason": "cut", "letters": 1, "looked_to": 0}
        self.insert(t.open_letter, mirror="shop", place=place, source=source, **{**known, **values})

    def commit(
        self,
        number: int,
        contents: Mapping[str, tuple[int, str]],
        *,
        epoch: str = GUID,
        counts: Mapping[str, int] | None = None,
        at: datetime = datetime(2026, 1, 5, 10, 0, tzinfo=UTC),
    ) -> None:
        """A committed batch; *contents*: table → (rows, highest position)."""
        manifest = json.dumps({"files": [], "counts": dict(counts or {})})
        times = {"bound_at": at, "committed_at": at}
        self.insert(t.log_batch, mirror="shop", number=number, ranges="[]", manifest=manifest, **times)
        for source, (rows, position) in contents.items():
            bounds = {"min_pos": position, "max_pos": position, "files": "[]"}
            self.insert(t.batch_table, mirror="shop", source=source, batch=number, epoch=epoch, rows=rows, **bounds)
        self.set_mirror(committed=number)

    def set_completeness(self, number: int, known: Completeness) -> None:
        with self.ledger.begin() as db:
            values = {"completeness": known.to_json()}
            db.execute(t.log_batch.update().where(t.log_batch.c.number == number).values(**values))

    def audit(self) -> list[tuple[str | None, str, dict[str, Any]]]:
        """The audit's entries in order: source, event, detail."""
        with self.ledger.connect() as db:
            rows = db.execute(t.audit.select().order_by(t.audit.c.id))
            return [(row.source, row.event, json.loads(row.detail)) for row in rows]
