"""A mirror whose files are made by hand: the real gate, protocol, ledger and store, and no Spark."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import pyarrow as pa
import sqlalchemy as sa
import yaml

from fabric_emulator.web.emulator_server import EmulatorServer
from open_mirroring.config import load_mirror
from open_mirroring.landing_zone import layout
from open_mirroring.landing_zone.arrow_schema import file_schema
from open_mirroring.landing_zone.data_file import Footer, write_data_file
from open_mirroring.landing_zone.opening import open_store
from open_mirroring.landing_zone.schema import LandingColumn, TableSchema
from open_mirroring.ledger import open_ledger
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.publish_ledger import StagedDetails
from open_mirroring.ledger.reading import LedgerReader, PublishedFile, TableState
from open_mirroring.protocols import publishing as protocol
from open_mirroring.protocols.verdicts import Finding, GateResult, gate
from open_mirroring.reconciliation.inspection import inspect_mirror, zone_address
from spark_jobs.publish.driver import PublicationDriver, StagedWork, Staging
from spark_jobs.publish.staging import create_staged

ORDERS, CUSTOMERS = "dbo.orders", "dbo.customers"
COLUMNS = TableSchema((LandingColumn("id", "int64"), LandingColumn("name", "string")))
SCHEMA = file_schema(COLUMNS.columns, ["id"], marker=True)


class HandPublished:
    """One deployment of the mirror ``shop``: orders and customers, with a ledger of its own unless one is named.

    Its log is a list of batches per table, each a list of keys to upsert; a publication is one file.
    """

    def __init__(
        self,
        folder: Path,
        server: EmulatorServer | None = None,
        *,
        zone: Path | None = None,
        ledger: Path | None = None,
        **gate: Any,
    ) -> None:
        self.folder, self.server = folder, server
        landing_zone: dict[str, Any] = {"store": "local", "path": str(zone or folder / "zone")}
        if server is not None:
            landing_zone = {"store": "onelake", "connection": "lake"}
            landing_zone |= {"workspace": server.workspace_id, "item": server.database_id}
        document = {
            "mirror": "shop",
            "source": {"format": "sqlserver-ces", "transport": "files", "path": "source"},
            "landing_zone": landing_zone,
            "ledger": f"sqlite:///{ledger or 'ledger.db'}",
            "change_log": "log",
            "tables": [
                {"source": name, "target": name.replace(".", "/"), "key": ["id"]} for name in (ORDERS, CUSTOMERS)
            ],
            "gate": gate,
        }
        self.file = folder / "mirrors" / "shop.yaml"
        self.file.parent.mkdir(parents=True)
        self.file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        self.mirror = load_mirror(self.file)
        self.ledger = open_ledger(self.mirror.ledger_url())
        self.batches: dict[str, list[Sequence[int]]] = {ORDERS: [], CUSTOMERS: []}
        self.while_staging: Callable[[], None] = lambda: None

    @property
    def reader(self) -> LedgerReader:
        return LedgerReader(self.ledger, "shop")

    @property
    def store(self) -> Any:
        return open_store(zone_address(self.mirror))

    def table(self, source: str = ORDERS) -> TableState:
        return self.reader.tables()[source]

    def files(self, source: str = ORDERS) -> list[PublishedFile]:
        state = self.table(source)
        return self.reader.published(state.id, state.row.generation)

    def look(self, *, everything: bool = True) -> dict[str, Finding]:
        return inspect_mirror(self.mirror, self.ledger, everything=everything)

    def codes(self) -> dict[str, str]:
        return {source: finding.code for source, finding in self.look().items()}

    def publish(self, **batches: Sequence[int]) -> GateResult:
        """A batch of keys per table name, then one run, as the job does it: gate, and what may be published."""
        for name, keys in batches.items():
            self.batches[f"dbo.{name}"].append(keys)
        verdict = gate(self.look(everything=False))
        before = self.reader.tables()
        open_ones = [source for source in verdict.held if before[source].row.intent is not None]
        self.drive([*verdict.passing, *open_ones])
        return verdict

    def drive(self, sources: Sequence[str]) -> PublicationDriver:
        driver = PublicationDriver(self.mirror, self.ledger, HandMadeWork(self))
        tables = self.reader.tables()
        driver.drive([tables[source] for source in sources])
        for error in driver.postponed.values():
            raise error
        return driver

    def numbers(self, source: str = ORDERS) -> list[int]:
        """Every number that can be seen of a table, wherever the service has moved it; twice what is there twice."""
        folder = self.table(source).folder
        names = [info.path.rpartition("/")[2] for info in self.store.list("") if f"{folder}/" in info.path]
        return sorted(number for name in names if (number := layout.file_number(name)) is not None)

    def path(self, number: int, source: str = ORDERS) -> Path:
        """A published file in the folder of a local zone, or in the folder behind the emulator."""
        zone = Path(self.mirror.landing_zone.path) if self.server is None else self.server.database.folders.zone
        return zone / self.table(source).folder / layout.file_name(number)

    def grow_older(self, age: timedelta) -> None:
        """Let so much time have passed since everything was published, for the ledger and for the emulator."""
        with self.ledger.begin() as db:
            for number, at in db.execute(sa.select(t.published_file.c.number, t.published_file.c.confirmed_at)).all():
                same = (t.published_file.c.number == number) & (t.published_file.c.confirmed_at == at)
                db.execute(t.published_file.update().where(same).values(confirmed_at=at - age))
        if self.server is not None:
            self.server.advance_clock(age.total_seconds())

    def audit(self) -> list[tuple[str, dict[str, Any]]]:
        with self.ledger.connect() as db:
            rows = db.execute(sa.select(t.audit).order_by(t.audit.c.id)).all()
        return [(row.event, json.loads(row.detail)) for row in rows]


class HandMadeWork:
    """What is next is what the lists of batches hold beyond the table's published one."""

    kind: Literal["changes"] = "changes"

    def __init__(self, made: HandPublished) -> None:
        self._made = made

    def find(
        self, tables: Mapping[str, TableState], rows: Mapping[str, protocol.TableRow]
    ) -> Mapping[str, protocol.Work]:
        logged = {table: len(self._made.batches[state.source]) for table, state in tables.items()}
        return {t: protocol.Work("changes", last) for t, last in logged.items() if last > rows[t].published_batch}

    def stage(self, tables: Mapping[str, TableState], intents: Mapping[str, protocol.Intent]) -> Mapping[str, Staging]:
        staged = {table: self.stage_one(tables[table], intent) for table, intent in intents.items()}
        self._made.while_staging()
        return staged

    def stage_one(self, state: TableState, intent: protocol.Intent) -> StagedWork:
        batch_from, batch_to = intent.batch_from, intent.work.batch_to
        keys = [key for batch in self._made.batches[state.source][batch_from:batch_to] for key in batch]
        rows = {"id": keys, "name": [f"n{key}" for key in keys], layout.ROW_MARKER: [4] * len(keys)}
        footer = Footer("shop", state.id, state.row.generation, intent.first_number, batch_from, batch_to, "changes")
        name = f"{layout.staging_folder(state.folder, state.row.generation)}/{intent.first_number:020d}.{uuid4().hex}"
        with tempfile.TemporaryDirectory() as scratch:
            local = Path(scratch) / "file.parquet"
            written = write_data_file(local, pa.table(rows, schema=SCHEMA), SCHEMA, footer)
            file = create_staged(self._made.store, name, local, written, SCHEMA, ["id"])
        counts = {"changes": len(keys), "upserts": len(keys), "published": len(keys)}
        return StagedWork(protocol.Staged((file,)), StagedDetails(COLUMNS, counts))
