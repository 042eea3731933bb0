"""open_mirroring by its command line: an export of the first rows, and SQL Server change events as files."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from landing_zone_acceptance.source import TABLE, Change, Row
from landing_zone_acceptance.writer import Adapter

_TYPES = {"id": "int", "amount": "int"}
_RUN = '[ -e "$2" ] || { "$0" initial-load "$1" && touch "$2"; } && "$0" tick "$1"'


class OpenMirroring(Adapter):
    """A run is one ``tick``; as long as the first rows are not loaded, it loads them first."""

    name: ClassVar[str] = "open_mirroring"

    def start(self) -> None:
        """Export the rows as they are, and write the mirror file."""
        events = self.feed / "events"
        events.mkdir(exist_ok=True)
        position = self.source.position()
        export = self.feed / f"export-{position}.parquet"
        rows = list(self.source.scan())
        types = [(name, pa.int32() if name in _TYPES else pa.string()) for name in self.source.columns]
        pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(types)), export)
        load = {"format": "parquet", "path": str(export), "stream_from": _lsn(position) if position else "beginning"}
        place = {"workspace": self.zone.workspace, "item": self.zone.database, "connection": "lake"}
        table = {"source": f"dbo.{TABLE}", "target": f"dbo/{TABLE}", "key": [self.source.key], "initial_load": load}
        mirror = {
            "mirror": "acceptance",
            "source": {"format": "sqlserver-ces", "transport": "files", "layout": "bare", "path": str(events)},
            "landing_zone": {"store": "onelake", **place},
            "ledger": "sqlite:///ledger.db",
            "change_log": "change_log",
            "publish": {"max_rows_per_file": self.rows_per_file},
            "tables": [table],
        }
        self._file.parent.mkdir()
        self._file.write_text(json.dumps(mirror), encoding="utf-8")  # JSON is YAML

    def deliver(self, changes: Sequence[Change]) -> None:
        """Write a file of change events."""
        lines = [json.dumps(self._event(change)) for change in changes]
        path = self.feed / "events" / f"{changes[0].position:06d}.jsonl"
        path.with_suffix(".part").write_text("\n".join(lines) + "\n", encoding="utf-8")
        path.with_suffix(".part").rename(path)

    def command(self) -> list[str]:
        """``initial-load`` and ``tick``."""
        program = Path(sys.executable).with_name("open-mirroring")
        return ["sh", "-c", _RUN, str(program), str(self._file), str(self.state / "loaded")]

    def environment(self) -> dict[str, str]:
        """The connection to the zone, and the certificate that it has."""
        endpoints = {"dfs_endpoint": self.zone.url, "fabric_endpoint": self.zone.url, "authority": self.zone.url}
        connection = {
            "conn_type": "open_mirroring_onelake",
            "login": self.zone.client,
            "password": self.zone.secret,
            "extra": {"tenant_id": self.zone.tenant, "timeout_seconds": 10, **endpoints},
        }
        trusted = {"OPEN_MIRRORING_CA_FILE": str(self.zone.certificate)}
        return {**os.environ, **trusted, "AIRFLOW_CONN_LAKE": json.dumps(connection)}

    @property
    def _file(self) -> Path:
        return self.state / "mirrors" / "acceptance.yaml"

    def _event(self, change: Change) -> dict[str, Any]:
        """One change event, as SQL Server's documentation describes it."""
        operation = "INS" if change.before is None else "DEL" if change.after is None else "UPD"
        columns = [
            {"name": name, "type": _TYPES.get(name, "nvarchar(50)"), "index": at}
            for at, name in enumerate(self.source.columns)
        ]
        lsn = _lsn(change.position)
        # SQL Server refuses another key while it streams a table. After streaming was set up again, the guid differs.
        guid = f"9c8d4ad2-bf54-4f10-a96f-{self.source.columns.index(self.source.key):012x}"
        key = str((change.after or change.before or {})[self.source.key])
        transaction = {"commitlsn": lsn, "beginlsn": _lsn(1), "sequencenumber": 1, "finalevent": False}
        data = {
            "eventsource": {
                "db": "shop",
                "schema": "dbo",
                "tbl": TABLE,
                "cols": columns,
                "pkkey": [{"columnname": self.source.key, "value": key}],
                "transaction": {**transaction, "committime": "2026-08-07T16:30:10.123Z"},
            },
            "eventrow": {"old": _image(change.before), "current": _image(change.after)},
        }
        return {
            "specversion": "1.0",
            "type": "com.microsoft.SQL.CES.DML.V1",
            "source": "/",
            "id": f"d43f09a6-d13b-4902-86d4-{change.position:012x}",
            "logicalid": f"{guid}:{lsn.replace(':', '')}:{1:020d}",
            "time": "2026-08-07T16:30:10.123Z",
            "datacontenttype": "application/json",
            "operation": operation,
            "segmentindex": 0,
            "finalsegment": True,
            "data": json.dumps(data),
        }


def _lsn(position: int) -> str:
    return f"0000002C:{position:08X}:0001"


def _image(row: Row | None) -> str:
    return json.dumps({name: None if value is None else str(value) for name, value in (row or {}).items()})
