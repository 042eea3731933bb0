"""From a mirror file to what reads its source: where it is, how it is decoded, and which tables matter."""

from __future__ import annotations

from typing import NamedTuple

from open_mirroring.config import Mirror, Table
from open_mirroring.config.connections import resolve
from open_mirroring.config.names import split_source_name
from spark_jobs.sources.contract.decoded import MirroredTable, SourceSchema
from spark_jobs.sources.formats import Reading
from spark_jobs.sources.kafka.place import place_of
from spark_jobs.sources.message_transports import ChangeFilesPlace, Place
from spark_jobs.sources.qlik.change_table.jdbc import ChangeTablePlace, NamedChangeTable
from spark_jobs.sources.qlik.message.given_structures import given_structures
from spark_jobs.sources.qlik.message.schema_registry import SchemaRegistry
from spark_jobs.sources.transports.message_files import SourcePlace

_SETTINGS = (
    "database",
    "binary",
    "load",
    "mask_order",
    "header_prefix",
    "sparse_updates",
    "before_images",
    "sequence_digits",
    "unframed_avro",
)


class MirrorSource(NamedTuple):
    """The source of a mirror; *tables* by their names in messages, where nothing is quoted.

    *given* are the structures that the mirror file gives by hand.
    """

    place: Place | ChangeTablePlace
    reading: Reading
    tables: dict[str, MirroredTable]
    registry: SchemaRegistry | None
    given: tuple[SourceSchema, ...] = ()


def source_of(mirror: Mirror) -> MirrorSource:
    """The source that a mirror file describes; nothing is looked at yet.

    Raises:
        TerminalError: ``CONNECTION_MISSING``, ``CONNECTION_INVALID``, ``SOURCE_SCHEMA_INVALID``.
    """
    # A table with a period in its name is never streamed (C-74), and must not stand in the way of one that is spelled
    # alike: [a.b].c goes before a.[b.c].
    by_period = sorted(mirror.tables, key=lambda table: "." not in table.source_name.table)
    tables = {".".join(t.source_name): _mirrored(t) for t in by_period}
    registry = mirror.source.schema_registry
    schemas = None if registry is None else SchemaRegistry(resolve(registry))
    return MirrorSource(place_of_mirror(mirror), _reading(mirror), tables, schemas, given_structures(mirror))


def _mirrored(table: Table) -> MirroredTable:
    promised = bool(table.keys_never_change), bool(table.full_rows), bool(table.complete_rows)
    return MirroredTable(table.source, tuple(table.key), table.columns, *promised)


def _reading(mirror: Mirror) -> Reading:
    source = mirror.source
    chosen = {name: value for name in _SETTINGS if (value := getattr(source, name)) is not None}
    topics = tuple((t.topic, ".".join(t.source_name)) for t in mirror.tables if t.topic is not None)
    partitions = source.ordered_partitions if mirror.consistency == "transaction" else 0
    return Reading(source.format, topics=topics, partitions=partitions, **chosen)


def place_of_mirror(mirror: Mirror) -> Place | ChangeTablePlace:
    """Where a mirror's changes are.

    Raises:
        TerminalError: ``CONNECTION_MISSING``, ``CONNECTION_INVALID``.
    """
    source = mirror.source
    suffix = source.table_suffix or "__ct"
    prefix = "header__" if source.header_prefix is None else source.header_prefix
    match source.transport:
        case "kafka":
            place = place_of(resolve(source.connection or ""), source.topics or ())
            limit = source.max_messages_per_run
            return place if limit is None else place._replace(max_messages_per_run=limit)
        case "jdbc":
            return ChangeTablePlace(
                source.connection or "",
                {".".join(table.source_name): _change_table(table, suffix) for table in mirror.tables},
                suffix,
                prefix,
                None if source.partitions is None else split_source_name(source.partitions),
                source.overlap_minutes or 10,
            )
        case "files" if source.format == "qlik-change-table":
            mirrored = tuple(".".join(table.source_name) for table in mirror.tables)
            return ChangeFilesPlace(
                mirror.resolve(source.path), suffix, prefix, mirrored, source.fragment_timeout_hours
            )
        case transport:
            layout, minutes = source.layout or "wrapped", source.gap_timeout_minutes or 60
            return SourcePlace(transport, mirror.resolve(source.path), layout, minutes)


def _change_table(table: Table, suffix: str) -> NamedChangeTable:
    schema, name = table.source_name if table.change_table is None else split_source_name(table.change_table)
    return NamedChangeTable(schema, name + suffix if table.change_table is None else name, table.columns)
