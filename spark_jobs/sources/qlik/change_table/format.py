"""Defines the format of Qlik change tables, for tables in a database and in files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from open_mirroring.config.source import ChangeTables
from spark_jobs.sources.contract.decoded import MirroredTable, SourceSchema
from spark_jobs.sources.contract.source import Announced, AnnouncedColumn, Format, Note
from spark_jobs.sources.qlik.change_table.decoder import DEFAULT_SETTINGS, ChangeTableSettings, QlikChangeTableDecoder
from spark_jobs.sources.qlik.change_table.fast_path import FastChangeRows
from spark_jobs.sources.qlik.change_table.rows import MASK, ChangeRow, header_name

NO_MASK = Note(
    "the change table has no change mask: an update without before image stops the table; have the task store before "
    "images and set `before_images: true`, or select change_mask, or set `keys_never_change: true`",
    ("keys_never_change",),
)


@dataclass(frozen=True)
class ChangeTableFormat(Format):
    """The format of rows of Qlik change tables (``__ct``)."""

    settings: ChangeTableSettings = DEFAULT_SETTINGS
    partitions: int = 0

    @classmethod
    def of(cls, source: ChangeTables, *, complete_transactions: bool = False) -> ChangeTableFormat:
        return cls(
            ChangeTableSettings(
                source.load,
                source.header_prefix,
                source.mask_order,
                source.sparse_updates,
                source.before_images,
            ),
            source.ordered_partitions if complete_transactions else 0,
        )

    def ordered_in(self, origin: str) -> str:
        """The part of the source in which log positions of *origin* only rise (T-80).

        The closed partitions of all tables are one part, because they follow each other in one order. Rows without a
        partition are in no such part: the result is empty.
        """
        return "" if origin.endswith("/") else "closed partitions"

    @property
    def load(self) -> str:
        return self.settings.load

    @property
    def key_changes(self) -> str:
        if self.settings.before_images:
            return "found by before images; an update waits for its own"
        return "found by change masks or before images; an update with neither stops its table"

    def decoder(
        self, tables: Mapping[str, MirroredTable], schemas: Sequence[SourceSchema] = ()
    ) -> QlikChangeTableDecoder:
        return QlikChangeTableDecoder(tables, self.settings)

    def announced(self, messages: Iterable[ChangeRow]) -> Iterator[Announced]:
        prefix = self.settings.prefix
        for row in messages:
            headers = {header_name(column.name, prefix) for column in row.structure.columns}
            columns = [AnnouncedColumn(*one) for one in row.structure.columns if header_name(one.name, prefix) is None]
            schema, _, table = row.structure.table.partition(".")
            notes = () if MASK in headers or self.settings.before_images else (NO_MASK,)
            yield Announced(schema, table, tuple(columns), notes=notes, sender=row.structure.sender)

    def fast_decoder(self, tables: Mapping[str, MirroredTable], schemas: Sequence[SourceSchema] = ()) -> FastChangeRows:
        return FastChangeRows(QlikChangeTableDecoder(tables, self.settings))
