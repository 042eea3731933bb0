"""Defines the format of Qlik and Talend messages, and finds tables and their columns in messages (K-10 to K-15).

Tables and columns are in metadata messages, Avro schemas and headers. Public source: Qlik Help, *Metadata and data
messages*.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from open_mirroring.changes import column_history as history
from open_mirroring.config import Mirror
from open_mirroring.config.connections import resolve
from open_mirroring.config.source import Messages
from open_mirroring.errors import TerminalError
from spark_jobs.changelog.origins import topic_of
from spark_jobs.changelog.schema import RawMessage
from spark_jobs.sources.contract.decoded import BY_HAND, Damage, MirroredTable, Refusal, SourceSchema, is_described
from spark_jobs.sources.contract.source import Announced, AnnouncedColumn, Format, Note
from spark_jobs.sources.qlik.message.avro import data_schema
from spark_jobs.sources.qlik.message.decoder import DEFAULT_SETTINGS, QlikMessageDecoder, QlikMessageSettings
from spark_jobs.sources.qlik.message.envelope import AvroData, Metadata, read_message, registry_number, table_of_key
from spark_jobs.sources.qlik.message.fast_path import FastQlikMessages
from spark_jobs.sources.qlik.message.headers import stated_table
from spark_jobs.sources.qlik.message.structures import (
    Column,
    Structure,
    derived_structure,
    known_structure,
    read_announcement,
    task_of,
)
from spark_jobs.sources.qlik.positions import FIRST_COUNTER

NO_MASKS = Note(
    "updates come with neither a change mask nor the row before: they stop the table unless keys never change; have "
    "the task send beforeData, or set `keys_never_change: true`",
    ("keys_never_change",),
)


@dataclass(frozen=True)
class QlikMessageFormat(Format):
    """The format of data and metadata messages of Qlik and Talend tasks, in JSON and Avro."""

    settings: QlikMessageSettings = DEFAULT_SETTINGS
    registry: str | None = None
    partitions: int = 0

    work_per_byte: ClassVar[float] = 0.25
    has_loads: ClassVar[bool] = True
    joins_pieces: ClassVar[bool] = False
    first_place: ClassVar[str] = FIRST_COUNTER

    @classmethod
    def of(cls, mirror: Mirror, source: Messages) -> QlikMessageFormat:
        return cls(
            QlikMessageSettings(
                source.load,
                source.mask_order,
                {t.topic: ".".join(t.source_name) for t in mirror.tables if t.topic is not None},
                source.binary,
                source.sequence_digits,
                source.unframed_avro,
            ),
            source.schema_registry,
            source.ordered_partitions if mirror.consistency == "transaction" else 0,
        )

    @property
    def load(self) -> str:
        return self.settings.load

    @property
    def key_changes(self) -> str:
        return "found by changeMask or beforeData; an update with neither stops its table"

    def decoder(self, tables: Mapping[str, MirroredTable], schemas: Sequence[SourceSchema] = ()) -> QlikMessageDecoder:
        return QlikMessageDecoder(tables, schemas, self.settings)

    def described(self, schemas: Sequence[SourceSchema]) -> Iterator[Announced]:
        known = [
            one
            for one in map(known_structure, filter(is_described, schemas))
            if isinstance(one, Structure) and one.table
        ]
        return (_structure(one, "") for one in sorted(known, key=lambda one: one.age))

    def structures(self, schemas: Sequence[SourceSchema]) -> Mapping[str, Sequence[history.Structure]]:
        tables: dict[str, list[Structure]] = {}
        for one in map(known_structure, (one for one in schemas if one.document and is_described(one))):
            if isinstance(one, Structure) and one.table and one.topic != BY_HAND:
                tables.setdefault(one.table, []).append(one)
        return {table: [*map(_as_history, in_order(known))] for table, known in tables.items()}

    def announced(self, messages: Iterable[RawMessage | Damage]) -> Iterator[Announced]:
        """The tables that messages show. If messages show several structures of a table, the newest comes last."""
        found: list[tuple[Structure, str]] = []
        by_id: dict[str, Structure] = {}
        unknown, tables = set[str](), set[str]()
        for message in messages:
            if isinstance(message, Damage) or message.body is None:
                continue
            try:
                read = read_message(message.body, unframed_avro=self.settings.unframed_avro)
                topic = topic_of(message.origin)
                if isinstance(read, Metadata):
                    structure = read_announcement(read.record, topic)
                    found.append((structure, task_of(read.record) or ""))
                    by_id[structure.schema_id] = structure
                    tables.add(structure.table)
                    continue
                record: Mapping[str, Any] | None = None
                known = by_id.get(read.schema_id or "")
                if isinstance(read, AvroData):
                    table = data_schema(read.schema).table if known is None and read.schema is not None else ""
                    if table and read.schema is not None:
                        known = derived_structure(topic, read.schema_id or "", table, 0, read.schema)
                        found.append((known, ""))
                    if known is not None:
                        record = known.avro.read(read.datum)
                    elif registry_number(f":schema:{read.schema_id}") is not None:
                        unknown.add(f":schema:{read.schema_id}")
                else:
                    record = read.record
                stated = None if record is None else stated_table(record)
                by_key = table_of_key(message.key or b"")
                # The key may be any other text: it names a table only if that was announced (K-60).
                heard = by_key if by_key in tables else None
                name = stated or (None if known is None else known.table) or heard or self.settings.topics.get(topic)
            except Refusal:
                continue  # it becomes a dead letter when it is read
            if name is not None:
                yield _change(name, record or {})
        structures = map(known_structure, self._registered(unknown) if unknown else ())
        found += [(one, "") for one in structures if isinstance(one, Structure) and one.table]
        for structure, task in sorted(found, key=lambda one: one[0].age):
            yield _structure(structure, task)

    def _registered(self, identities: Collection[str]) -> list[SourceSchema]:
        if self.registry is None:
            return []
        # Importing its client takes as long as checking a source that has nothing new.
        from spark_jobs.sources.qlik.message.schema_registry import SchemaRegistry

        return SchemaRegistry(resolve(self.registry)).schemas(identities)

    def fast_decoder(
        self, tables: Mapping[str, MirroredTable], schemas: Sequence[SourceSchema] = ()
    ) -> FastQlikMessages:
        return FastQlikMessages(tables, schemas, self.settings)


def _change(name: str, record: Mapping[str, Any]) -> Announced:
    schema, _, table = name.partition(".")
    headers = record.get("headers")
    headers = headers if isinstance(headers, Mapping) else {}
    operation = headers.get("operation")
    is_blind = operation == "UPDATE" and not headers.get("changeMask") and not record.get("beforeData")
    notes = (NO_MASKS,) if is_blind else ()
    return Announced(schema, table, notes=notes, changes_rows=operation in ("UPDATE", "DELETE"))


def _structure(structure: Structure, task: str) -> Announced:
    schema, _, table = structure.table.partition(".")
    in_key = sorted((one for one in structure.columns if one.key_position), key=lambda one: one.key_position)
    return Announced(
        schema,
        table,
        tuple(AnnouncedColumn(column.name, _type(column)) for column in structure.columns),
        # A writer schema alone contains no key; a description without key columns means that there is none (K-12,
        # K-14).
        tuple(column.name for column in in_key) if structure.is_described else None,
        sender=task,
    )


def in_order(structures: Sequence[Structure]) -> list[Structure]:
    """The structures of one table, the oldest first; empty if their versions and times contradict each other."""
    known = [one for one in structures if one.is_described] or structures
    ordered = sorted(known, key=lambda one: one.age)
    times = [one.age[1] for one in ordered]
    return ordered if times == sorted(times) else []


def _as_history(structure: Structure) -> history.Structure:
    types = {column.name: _type(column) for column in structure.columns}
    return history.Structure(types, {column.name: column.ordinal for column in structure.columns})


def _type(column: Column) -> str:
    try:
        return column.log_type()
    except TerminalError:
        return f"{column.type}({column.precision},{column.scale})"
