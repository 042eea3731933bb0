"""Defines the format of change event streaming, and finds tables, columns and primary keys in its events.

Public source: Microsoft Learn, *JSON Message format - change event streaming*; *sys.sp_create_event_stream_group*.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from spark_jobs.changelog.schema import RawMessage
from spark_jobs.sources.ces.changes import ColumnList, SourceTable
from spark_jobs.sources.ces.decoder import CesDecoder
from spark_jobs.sources.ces.envelope import Data, is_complete, read_data
from spark_jobs.sources.ces.unreadable import table_named_in
from spark_jobs.sources.contract.decoded import Damage, MirroredTable, Refusal, SourceSchema
from spark_jobs.sources.contract.source import Announced, AnnouncedColumn, Format, Note
from spark_jobs.sources.sql_server.types import BinaryText

if TYPE_CHECKING:
    from open_mirroring.config import Mirror
    from open_mirroring.config.source import ChangeEvents
    from spark_jobs.sources.ces.fast_path import FastCes

NO_OLD_VALUES = Note(
    "updates come without old values (@include_old_values = 0): an update that changes the key stops the table, or is "
    "not seen where its event names the new key only"
)
SOME_COLUMNS = Note(
    "updates leave columns out (@include_all_columns = 0), and what they leave out is not known to be NULL: set it to "
    "1 at the source, or `complete_rows: true` here",
    ("complete_rows", "full_rows"),
)


@dataclass(frozen=True)
class CesFormat(Format):
    """The format of change events of SQL Server and Azure SQL."""

    renames_columns: ClassVar[bool] = False
    """Renaming is not possible while a table is streamed (C-74)."""
    work_per_byte: ClassVar[float] = 0.25
    database: str | None = None
    binary: BinaryText = "hex"
    partitions: int = 0

    @classmethod
    def of(cls, mirror: Mirror, source: ChangeEvents) -> CesFormat:
        partitions = source.ordered_partitions if mirror.consistency == "transaction" else 0
        return cls(source.database, source.binary, partitions)

    def decoder(self, tables: Mapping[str, MirroredTable], schemas: Sequence[SourceSchema] = ()) -> CesDecoder:
        return CesDecoder(tables, self.database, self.binary)

    def fast_decoder(self, tables: Mapping[str, MirroredTable], schemas: Sequence[SourceSchema] = ()) -> FastCes:
        from spark_jobs.sources.ces.fast_path import FastCes

        return FastCes(self.decoder(tables))

    def announced(self, messages: Iterable[RawMessage | Damage]) -> Iterator[Announced]:
        """Finds the tables in messages; unreadable messages are skipped.

        Of a split event only the first piece contains the table, and only the table's name.
        """
        decoder = CesDecoder({})
        lists = SourceTable(MirroredTable("", ()), self.binary)
        partial, whole = set[Announced](), set[Announced]()
        for message in messages:
            if isinstance(message, Damage):
                continue
            try:
                event = decoder.read(message.body)
                if event.split.whole is False or (event.split.whole is None and not is_complete(event.data)):
                    named = table_named_in(message.body)
                    if named is not None and self.database in (None, named.db):
                        yield Announced(named.schema, named.tbl, sender=named.db or "")
                    continue
                data = read_data(event.data)
                source = data.eventsource
                if self.database not in (None, source.db):
                    continue
                columns = lists.columns(bytes(source.cols))
                is_partial, notes = _update(data, columns) if event.operation == "UPD" else (None, ())
            except Refusal:
                continue  # it becomes a dead letter when it is read
            table = Announced(source.schema, source.tbl)
            if is_partial is not None:
                (partial if is_partial else whole).add(table)
            yield table._replace(
                columns=tuple(AnnouncedColumn(name, sql_type) for name, sql_type in columns.types.items()),
                key=tuple(part.columnname for part in source.pkkey or ()),
                notes=notes,
                changes_rows=event.operation != "INS",
                sender=source.db,
            )
        for table in partial - whole:
            yield table._replace(notes=(SOME_COLUMNS,))


def _update(data: Data, columns: ColumnList) -> tuple[bool | None, tuple[Note, ...]]:
    """Whether an update leaves columns out (None: unknown), and notes on the stream.

    An unchanged column outside the key proves that all are sent (C-44). A gap in the positions may be a dropped column.
    """
    images = data.images
    if images is None or images.current is None:
        return None, ()
    current = columns.read(images.current)[0]
    old = {} if images.old is None else columns.read(images.old)[0]
    key = {part.columnname for part in data.eventsource.pkkey or ()}
    if any(value is not None and name not in key and current.get(name) == value for name, value in old.items()):
        return False, ()
    unsent = [name for name in columns.absent_from(current) if old.get(name, "") is not None]
    places = sorted(place for _, _, place in json.loads(columns.text))
    has_gap = places != list(range(places[0], places[0] + len(places)))
    return True if unsent or has_gap else None, () if old else (NO_OLD_VALUES,)
