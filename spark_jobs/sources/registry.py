"""Creates the format and transport for the source in a mirror file; the only module that knows all sources.

The code of a source is imported only when a mirror file uses the source. An installed package can add a source by an
entry point.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from open_mirroring.changes.column_history import Structure
from open_mirroring.changes.manifest import AnnouncedSchema
from open_mirroring.config import Mirror, Table
from open_mirroring.config import source as described
from open_mirroring.config.connections import resolve
from spark_jobs.sources.contract.decoded import MirroredTable, SourceSchema
from spark_jobs.sources.contract.source import Format, SchemaLookup, Transport


class MirrorSource(NamedTuple):
    """The source of a mirror: transport, format and mirrored tables.

    *tables* are by their names without quotes, as messages contain them. *registry* finds structures in a schema
    registry; None if the mirror has none. *given* are the table structures under `structures` in the mirror file.
    """

    transport: Transport
    format: Format
    tables: dict[str, MirroredTable]
    registry: SchemaLookup | None
    given: tuple[SourceSchema, ...] = ()


def source_of(mirror: Mirror) -> MirrorSource:
    """Creates the source that a mirror file describes, without reading from the source.

    Raises:
        TerminalError: ``CONNECTION_INVALID`` if a connection is wrong; ``METADATA_MISSING`` if a structure in the
            mirror file is not valid.
    """
    # A table with a period in its name is never streamed (C-74), and must not stand in the way of one that is spelled
    # alike: [a.b].c goes before a.[b.c].
    by_period = sorted(mirror.tables, key=lambda table: "." not in table.source_name.table)
    tables = {".".join(table.source_name): _mirrored(table) for table in by_period}
    schemas: SchemaLookup | None = None
    given: tuple[SourceSchema, ...] = ()
    if registry := mirror.source.connections.get("schema_registry"):
        # What its client brings takes as long to load as a look at a source that has nothing new.
        from spark_jobs.sources.qlik.message.schema_registry import SchemaRegistry

        schemas = SchemaRegistry(resolve(registry))
    if mirror.structures:
        from spark_jobs.sources.qlik.message.given_structures import given_structures

        given = given_structures(mirror)
    return MirrorSource(transport_of(mirror), format_of(mirror), tables, schemas, given)


def structures_of(mirror: Mirror, kept: Iterable[AnnouncedSchema]) -> Mapping[str, Sequence[Structure]]:
    """The table structures that a mirror's source announced, by ``schema.table``, in order.

    *kept* are the structures in the ledger; :meth:`Format.structures` sorts them.
    """
    return format_of(mirror).structures([SourceSchema(*one) for one in kept])


def _mirrored(table: Table) -> MirroredTable:
    promised = table.keys_never_change, table.full_rows, table.complete_rows, table.key_is_unique
    return MirroredTable(table.source, tuple(table.key), table.chosen, *map(bool, promised))


def transport_of(mirror: Mirror) -> Transport:
    """Creates the transport of a mirror, which lists and reads the mirror's changes."""
    match mirror.source:
        case described.InCapture() as source:
            from spark_jobs.sources.transports.capture import CaptureFiles

            return CaptureFiles.of(mirror, source)
        case described.InLines() as source:
            from spark_jobs.sources.transports.message_files import LineFiles

            return LineFiles.of(mirror, source)
        case described.InTopics() as source:
            from spark_jobs.sources.transports.topics import KafkaTopics

            return KafkaTopics.of(source)
        case described.ChangeTablesInFolder() as source:
            from spark_jobs.sources.qlik.change_table.files import ChangeFiles

            return ChangeFiles.of(mirror, source)
        case described.ChangeTablesInDatabase() as source:
            from spark_jobs.sources.qlik.change_table.jdbc import ChangeTables

            return ChangeTables.of(mirror, source)


def format_of(mirror: Mirror) -> Format:
    """Creates the format of a mirror, which decodes the mirror's changes."""
    match mirror.source:
        case described.ChangeEvents() as source:
            from spark_jobs.sources.ces.format import CesFormat

            return CesFormat.of(mirror, source)
        case described.ChangeTables() as source:
            from spark_jobs.sources.qlik.change_table.format import ChangeTableFormat

            return ChangeTableFormat.of(source, complete_transactions=mirror.consistency == "transaction")
        case described.Messages() as source:
            from spark_jobs.sources.qlik.message.format import QlikMessageFormat

            return QlikMessageFormat.of(mirror, source)
        case described.RegisteredMessages() as source:
            from importlib.metadata import entry_points

            registered: Format = entry_points(group=described.FORMATS)[source.format].load()()
            return registered
