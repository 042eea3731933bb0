"""Creates the format and transport for the source in a mirror file, and checks what is missing at the source.

This is the only module that knows all sources. The code of a source is imported only when a mirror file uses the
source. An installed package can add a source by an entry point.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from open_mirroring.changes.column_history import Structure
from open_mirroring.changes.manifest import AnnouncedSchema
from open_mirroring.config import Mirror, Table
from open_mirroring.config import source as described
from open_mirroring.config.connections import resolve
from open_mirroring.config.problems import Problem
from open_mirroring.errors import MirroringError, TerminalError
from open_mirroring.protocols.table_losses import CONTROL_TABLE_UNREAD, NOT_SEEN, SETUP_INCOMPLETE
from spark_jobs.sources.contract.decoded import MirroredTable, SourceSchema
from spark_jobs.sources.contract.source import Format, SchemaLookup, Survey, Transport


class MirrorSource(NamedTuple):
    """The source of a mirror: transport, format and mirrored tables.

    The keys of *tables* are the tables' names without quotes, as messages contain them. *registry* finds structures in
    a schema registry; None if the mirror has no schema registry. *given* are the table structures under `structures` in
    the mirror file.
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


def unread_topics(source: described.AnySource, named: Mapping[str, str]) -> dict[str, str]:
    """What is wrong with each table whose own topic is not under ``source.topics`` in the mirror file.

    *named* maps tables to their topics.
    """
    topics = source.topics if isinstance(source, described.InTopics) else named.values()
    missing = {table: topic for table, topic in named.items() if topic not in topics}
    return {table: f"its topic {topic!r} is none of `source.topics`" for table, topic in missing.items()}


def survey_warnings(mirror: Mirror) -> list[Problem]:
    """The warnings about a mirror's source before the first run.

    They are ``NOT_SEEN``, ``SETUP_INCOMPLETE`` and ``CONTROL_TABLE_UNREAD``. A database that only Spark can read, or
    that does not answer, is not checked.
    """
    try:
        survey = transport_of(mirror).survey()
    except MirroringError:
        survey = Survey()  # what is wrong with the source itself is said by others
    named = {".".join(table.source_name): table.topic for table in mirror.tables if table.topic is not None}
    unseen = {**survey.unseen, **unread_topics(mirror.source, named)}
    found: list[Problem] = []
    paired = isinstance(mirror.source, described.ChangeTables) and mirror.source.before_images
    for place, table in mirror.placed_tables:
        name = ".".join(table.source_name)
        if name in unseen:
            next_step = "fix `source` or `change_table` if the source spells them otherwise; if not, wait for a change"
            found.append(mirror.problem((*place, "source"), NOT_SEEN, unseen[name], next_step))
        if name in survey.without_mask and table.key and not (table.keys_never_change or paired):
            what = "its change table has no change mask: an update without before image stops it"
            next_step = "have the task store before images and set `before_images: true`, or select change_mask; or "
            next_step += "set `keys_never_change: true`"
            found.append(mirror.problem((*place, "key"), SETUP_INCOMPLETE, what, next_step))
    for setting, what in survey.settings.items():
        next_step = "correct it, or grant the login SELECT on the tables: otherwise suspended tables are not reported"
        found.append(mirror.problem(("source", setting), CONTROL_TABLE_UNREAD, what, next_step))
    return found


def check_structures(mirror: Mirror) -> list[Problem]:
    """Mistakes in the table structures under `structures` in a mirror file."""
    from spark_jobs.sources.qlik.message.given_structures import given_structures

    try:
        given_structures(mirror)
    except TerminalError as error:
        return [mirror.problem_of(("structures",), error)]
    return []
