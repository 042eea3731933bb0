"""A small landing zone for the tests of the emulator, and the Delta tables that it becomes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from fabric_emulator import MirroringService, Settings

MARKER = "__rowMarker__"
ITEM = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
Row = tuple[Any, ...]


class Zone:
    """A zone below *root*, with a clock that stands still until told otherwise."""

    def __init__(self, root: Path) -> None:
        self.zone = root / "zone"
        self.tables = root / "tables"
        self.zone.mkdir()
        self.now = 1_800_000_000.0

    def service(self, **settings: Any) -> MirroringService:
        return MirroringService(self.zone, self.tables, settings=Settings(**settings), clock=lambda: self.now)

    def folder(self, name: str = "dbo.schema/items", keys: Sequence[str] | None = ("id",), **more: Any) -> Path:
        """Create a table folder with its metadata; keys None leaves keyColumns out."""
        folder = self.zone / name
        folder.mkdir(parents=True)
        document = more if keys is None else {"keyColumns": list(keys), **more}
        (folder / "_metadata.json").write_text(json.dumps(document))
        return folder

    def rows(self, name: str = "dbo/items") -> list[Row]:
        """The rows of a Delta table as sorted tuples."""
        found = pa.table(DeltaTable(self.tables / name).scan()).to_pylist()
        return sorted((tuple(row.values()) for row in found), key=repr)

    def version(self, name: str = "dbo/items") -> int:
        return DeltaTable(self.tables / name).version()

    def exists(self, name: str = "dbo/items") -> bool:
        return DeltaTable.is_deltatable(str(self.tables / name))


def items(rows: Sequence[Row], *, marked: bool = True, marker_type: pa.DataType | None = None) -> pa.Table:
    """Rows ``(marker, id, name)`` as a file of the items table, or ``(id, name)`` without marker."""
    columns = rows if not marked else [row[1:] for row in rows]
    table = pa.Table.from_pylist([dict(zip(ITEM.names, row, strict=True)) for row in columns], schema=ITEM)
    if marked:
        field = pa.field(MARKER, marker_type or pa.int32())
        table = table.append_column(field, pa.array([row[0] for row in rows], field.type))
    return table


def put(folder: Path, number: int, content: pa.Table | bytes, *, extension: str = "parquet", **options: Any) -> Path:
    """Publish a data file as a writer should: under another name, then in one step under its own."""
    path, staged = folder / f"{number:020d}.{extension}", folder / f"_{number}"
    if isinstance(content, bytes):
        staged.write_bytes(content)
    else:
        pq.write_table(content, staged, **options)
    return staged.replace(path)


def names(folder: Path) -> list[int]:
    """The numbers of the data files in a folder."""
    return sorted(int(path.stem) for path in folder.glob("*.parquet"))


def recreate(zone: Zone, folder: Path, **more: Any) -> Path:
    shutil.rmtree(folder)
    return zone.folder(str(folder.relative_to(zone.zone)), **more)


def error_of(service: MirroringService, folder: str = "dbo.schema/items") -> str | None:
    """The error code of a table, None while it has none."""
    error: Mapping[str, Any] = service.status()[folder].get("error", {})
    return error.get("errorCode")
