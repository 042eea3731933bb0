"""A mirror in a folder of its own, driven tick by tick: what the end-to-end tests share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import yaml
from deltalake import DeltaTable

from fabric_emulator.service import MirroringService
from open_mirroring.config import load_mirror
from open_mirroring.config.storage import log_place
from open_mirroring.ledger import open_ledger
from open_mirroring.ledger.documents import FRAGMENTS
from open_mirroring.ledger.extract_ledger import ExtractLedger
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.storage.object_path import delta_address
from spark_jobs.runtime.tasks import SessionOnDemand
from tests.attached_job import environment_of
from tests.killed_job import exit_of_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from open_mirroring.protocols.backfilling import Backfill
    from spark_jobs.extract_changes import Extracted
    from spark_jobs.publish.changes import Published

ROOT = Path(__file__).resolve().parent.parent


class Pipeline:
    """One mirror with its own source folder, log, ledger, landing zone and target tables."""

    def __init__(
        self,
        folder: Path,
        spark: SparkSession,
        tables: Sequence[Mapping[str, Any]],
        *,
        source: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.folder, self._spark = folder, spark
        self.source = folder / "source"
        self.source.mkdir(parents=True)
        if not isinstance(spark, SessionOnDemand):
            settings = {"spark": {"start_above": 0}, **settings}  # jobs in other processes do as this one does
        described = {"format": "sqlserver-ces", "transport": "files", "layout": "wrapped", "path": "source"}
        described |= source or {}
        document = {
            "mirror": "test",
            # What a test sets to None or to no path is not of its source.
            "source": {name: one for name, one in described.items() if one is not None and (name, one) != ("path", "")},
            "landing_zone": {"store": "local", "path": "zone"},
            "ledger": "sqlite:///ledger.db",
            "change_log": "log",
            "tables": [dict(table) for table in tables],
            **settings,
        }
        self.name = str(document["mirror"])
        self.file = folder / "mirrors" / f"{self.name}.yaml"
        self.file.parent.mkdir()
        self.file.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), encoding="utf-8")
        self.zone, self.log, self.target = folder / "zone", folder / "log", folder / "tables"
        self.service = MirroringService(self.zone, self.target)

    @property
    def mirror(self) -> Any:
        return load_mirror(self.file)

    @property
    def ledger(self) -> Any:
        return open_ledger(self.mirror.ledger_url())

    @property
    def open_fragments(self) -> int:
        return len(ExtractLedger(self.ledger, self.name).open_fragments())

    @property
    def reader(self) -> LedgerReader:
        return LedgerReader(self.ledger, self.name)

    def deliver(self, name: str, content: bytes) -> None:
        """Put a finished file at the source."""
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def extract(self, backfill: Backfill | None = None) -> Extracted:
        from spark_jobs.extract_changes import extract

        return extract(self.mirror, self.ledger, self._spark, backfill)

    def publish(self) -> Published:
        from spark_jobs.publish.changes import publish

        return publish(self.mirror, self.ledger, self._spark)

    def tick(self, backfill: Backfill | None = None) -> tuple[Extracted, Published]:
        """Extract, publish, and let the service apply."""
        extracted, published = self.extract(backfill), self.publish()
        self.service.poll()
        return extracted, published

    def killed(self, job: str, fault: str, *arguments: str) -> None:
        """Run a job in a process of its own that dies at a fault point; fails when it does not die there."""
        environment, said = {**os.environ, "OPEN_MIRRORING_FAULT": fault}, self.folder / "killed.log"
        if isinstance(self._spark, SessionOnDemand):
            code = exit_of_job(job, [str(self.file), *arguments], environment, said)
        else:
            command = [sys.executable, "-m", "tests.attached_job", f"spark_jobs.{job}", str(self.file), *arguments]
            environment |= environment_of(self._spark)
            with said.open("wb") as file:
                ended = subprocess.run(command, env=environment, stdout=file, stderr=file, timeout=300, cwd=ROOT)
            code = ended.returncode
        assert code == -9, f"{job} was to die at {fault}, but ended with {code}:\n{said.read_text()}"

    def logged(self) -> list[dict[str, Any]]:
        """The rows of the log, read as anybody can read them."""
        uri, options = delta_address(log_place(self.mirror))
        return pa.table(DeltaTable(uri, storage_options=options).scan()).to_pylist()

    def letters(self) -> list[dict[str, Any]]:
        """The dead letters of the log, read as anybody can read them, in the order of their coordinates."""
        found = [row for row in self.logged() if row["kind"] == "rejected"]
        return sorted(found, key=lambda row: (row["batch"], row["origin"], row["place"]))

    def make_overdue(self) -> None:
        """Let everything that waits for other messages have waited longer than any limit."""
        long_ago = datetime.now(UTC) - timedelta(days=400)
        with self.ledger.begin() as db:
            waiting = FRAGMENTS.of(db, self.name)
            assert waiting
            FRAGMENTS.put(db, self.name, {name: one._replace(since=long_ago) for name, one in waiting.items()})

    def mirrored(self, schema: str, table: str) -> list[dict[str, Any]]:
        """The target table's rows, timestamps without their zone (all are UTC)."""
        rows = pa.table(DeltaTable(str(self.target / schema / table)).scan()).to_pylist()
        return [{name: _plain(value) for name, value in row.items()} for row in rows]

    def numbers(self, folder: str) -> list[int]:
        """The numbers of a table's files in the zone, wherever the service has moved them, in order."""
        names = [path.stem for path in (self.zone / folder).rglob("*.parquet") if path.stem.isdigit()]
        return sorted(int(name) for name in names)


def _plain(value: Any) -> Any:
    return value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value


def in_order(rows: Sequence[Mapping[str, Any]], keys: Sequence[str]) -> list[dict[str, Any]]:
    """Rows sorted by key, columns by name: two tables are equal when these are."""
    return sorted(
        ({name: row[name] for name in sorted(row)} for row in rows), key=lambda row: tuple(str(row[k]) for k in keys)
    )
