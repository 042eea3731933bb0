"""Plans the initial load of a table: what is read, which columns, which chunks; the ledger keeps the plan.

The position of the change stream is noted before rows are read, and changes after this position are published over the
loaded rows. A change may repeat what the loaded rows contain already, which does no harm.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic_core import PydanticCustomError

from open_mirroring.changes.column_choice import ColumnChoice
from open_mirroring.changes.log_position import BEGINS_EMPTY, LogPosition, above
from open_mirroring.changes.row_key import columns_lacking
from open_mirroring.codes import next_step_of
from open_mirroring.config import Mirror, Table
from open_mirroring.config.names import BEGINNING, split_source_name
from open_mirroring.config.source import keeps_tables, refuse_unstreamed
from open_mirroring.config.storage import place_of, stream_from
from open_mirroring.config.tables import ExportLoad, JdbcLoad, check_handover
from open_mirroring.errors import MirroringError, TerminalError
from open_mirroring.landing_zone.arrow_schema import file_schema
from open_mirroring.landing_zone.load_columns import LoadColumn
from open_mirroring.landing_zone.schema import TableSchema, extra_columns
from open_mirroring.ledger.load_ledger import HandOver, LoadLedger, LoadPlan
from open_mirroring.protocols.table_stops import HASH_UNMATCHED, unhashed_text
from spark_jobs.load.task import duplicate_key, find_duplicate
from spark_jobs.publish.table_columns import landing_of
from spark_jobs.sources.exports.files import (
    Export,
    ExportRows,
    Piece,
    cut_file,
    dfm_of,
    export_columns,
    export_files,
    keys_as_streamed,
)
from spark_jobs.sources.jdbc.dialects import Range
from spark_jobs.sources.jdbc.tables import JdbcTable, Pace, SplitColumn
from spark_jobs.sources.sql_server.chosen_types import as_wide_as, chosen_key_converter, spelled_as_streamed
from spark_jobs.sources.sql_server.row_filters import refuse_undecided

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHUNK_BYTES = 64 << 20
_FREE = {"stream_from", "max_connections", "max_rows_per_second"}
"""Settings that may differ when a load is continued: the plan keeps `stream_from`, and the others change no rows."""


_MAY_BE_OLD = "the task may not apply its changes to the table that was loaded"
_LOAD_AGAIN = "have it reload the table, name that load as `load` of `source`, and set `stream_from: beginning`"
_IF_APPLIED = "if it applies them, a proof shows it"


class BoundLoad(NamedTuple):
    """The plan of an initial load, and the position from which on changes are published over the loaded rows.

    The position is None if all changes are published. *doubt* is why the mirrored table may lack changes; empty if
    there is no doubt.
    """

    plan: LoadPlan
    stream_from: str | None
    doubt: str = ""


def plan_load(
    mirror: Mirror,
    table: Table,
    table_id: str,
    ledger: LoadLedger,
    spark: SparkSession,
    streamed: Mapping[str, Collection[str]],
) -> BoundLoad:
    """Plan the initial load of a table; *streamed* are all types that each column has in changes.

    Raises:
        TerminalError: the source differs from what the mirror file says about it; nothing was published.
        TransientError: the source does not answer; ``CHANGED_MEANWHILE`` if a batch from before the table's reset is
            not in the change log yet.
    """
    load = table.initial_load
    hand_over = ledger.hand_over(table_id)
    if isinstance(load, ExportLoad):
        name = split_source_name(table.source)
        # `ignore` in the mirror file says that the ignored changes were read again since, or do not matter (G-24).
        ignored = "" if mirror.ignores(name) else ledger.ignored_up_to(".".join(name))
        bound = _plan_export(mirror, table, load, hand_over, ignored)
    elif isinstance(load, JdbcLoad):
        is_kept = keeps_tables(mirror.source, load.connection)
        batch, position, doubt = published_over(table, load, hand_over, is_kept=is_kept)
        refuse_handed_over(table, hand_over.generation, hand_over.highest)
        kinds = {name: kind for name, (kind, *others) in streamed.items() if not others}
        bound = BoundLoad(_plan_jdbc(table, load, batch, kinds, spark), position, doubt)
    else:
        what = "the mirror file has no `initial_load` for it any more"
        raise TerminalError("LOAD_CHANGED", what, next_step="restore `initial_load`, or reset the table")
    where, read = f"table {table.source}", bound.plan.columns
    if lost := table.unhashed({*streamed, *(column.name for column in read)}):
        raise TerminalError(HASH_UNMATCHED, unhashed_text(lost), where=where, next_step=next_step_of(HASH_UNMATCHED))
    if table.row_filter is not None:
        refuse_undecided(table.row_filter, [column.name for column in read])
    refuse_unstreamed(mirror.source, [(column.name, column.sql_type) for column in read], where)
    salt = mirror.salt()
    columns = tuple(_as_published(c, table, None if salt is None else salt.check, streamed) for c in read)
    plan = replace(bound.plan, columns=columns, extra=extra_columns(table.chosen.extra))
    TableSchema(()).extended(plan.schema.columns)
    return bound._replace(plan=plan)


def published_over(table: Table, load: JdbcLoad, hand_over: HandOver, *, is_kept: bool) -> tuple[int, str | None, str]:
    """The batch and position after which changes are published over rows read from a database, and a doubt.

    The doubt is why the mirrored table may lack changes; empty if there is no doubt. Before the first reset, all logged
    changes are published in two cases. Either the loaded rows go through the change log, where they are below every
    change. Or a Qlik task maintains the table that is read: a change that it has already does no harm (T-30). After a
    reset, earlier changes are published only if the mirror file says ``stream_from: beginning``, because nothing else
    shows whether the loaded rows contain these changes. Raises ``STREAM_FROM_INVALID`` if the mirror file says so, but
    the change log lacks some of these changes.
    """
    stays, before = load.stream_from is not None, hand_over.own_before
    if stays and before:
        raise TerminalError(
            "STREAM_FROM_INVALID",
            f"`stream_from: beginning` says that the table stays as the task loaded it; changes of it up to {before} "
            "were logged before a reset, or are no longer in the log, and cannot be published over it",
            where=f"table {table.source}",
            next_step=f"if the task only stores changes, {_LOAD_AGAIN}; if it applies them, leave `stream_from` out",
        )
    position = BEGINS_EMPTY if hand_over.above and stays else hand_over.above
    is_below = table.loads_through_log or is_kept
    batch = hand_over.log_from if is_below and not position else hand_over.batch
    if not is_kept or stays or not (hand_over.above or before):
        return batch, position, ""
    lacking, what = "", "set `stream_from: beginning` of the load and reset the table again"
    if before:
        lacking, what = ", and the log lacks some of them", _LOAD_AGAIN
    return batch, position, f"{_MAY_BE_OLD}{lacking}: if it only stores changes, {what}; {_IF_APPLIED}"


def _as_published(
    column: LoadColumn, table: Table, salted: str | None, streamed: Mapping[str, Collection[str]]
) -> LoadColumn:
    """Name and hash a column as at the target, and widen it to its types in changes.

    The target cannot widen it later (G-65).
    """
    target = landing_of(column.landing, table.chosen, salted)
    column = column._replace(renamed=target.renamed, salted=target.salted)
    kind = as_wide_as(column.type, streamed.get(column.name, ()))
    is_spelled_otherwise = column.name in table.key and not kind.startswith("int")
    return column if table.chosen.type_of(column.name) or is_spelled_otherwise else column._replace(type=kind)


OTHER_SETTINGS = "the settings of its initial load are not those with which the load began"


def refuse_other_load(mirror: Mirror, table: Table, plan: LoadPlan) -> None:
    """Refuse to continue a load after its settings or salt changed: later files would not fit the earlier files."""
    if table.initial_load is None or plan.settings != settings_of(table):
        raise TerminalError("LOAD_CHANGED", OTHER_SETTINGS, next_step="restore these settings, or reset the table")
    # Rows that go through the change log are hashed when they are published, all with one salt.
    begun_with = {column.salted for column in plan.columns if column.salted and not table.loads_through_log}
    salt = mirror.salt() if begun_with else None
    if begun_with and (salt is None or begun_with != {salt.check}):
        what = "its initial load began with another salt than the connection has now"
        raise TerminalError("TABLE_REDECLARED", what, next_step="restore the former salt, or reset the table")


def settings_of(table: Table) -> str:
    """The settings that an initial load depends on, as JSON; if they change, a load under way is not continued."""
    load = table.initial_load
    chosen = load.model_dump(mode="json", exclude=_FREE) if load is not None else {}
    if isinstance(load, ExportLoad):
        chosen.pop("connection")  # it says how the files are reached, not which they are
    of_table = {
        "logged": table.loads_through_log,
        "landing": table.types,
        "hashed": table.chosen.hashed,
        "extra": table.chosen.extra,
        "where": table.chosen.where,
    }
    given = {name: value for name, value in of_table.items() if value}
    columns = table.model_dump(mode="json")["columns"]
    return json.dumps({"columns": columns, **given, **chosen}, sort_keys=True)


def pace_of(load: JdbcLoad) -> Pace:
    """The limits for reading from the database of a load: the number of connections, and the rows per second."""
    return Pace(load.max_connections, load.max_rows_per_second)


def export_of(mirror: Mirror, load: ExportLoad) -> Export:
    """The export that an initial load reads: its place, format and encoding."""
    return Export(place_of(mirror, load.path, load.connection), load.format, mirror.source.text_encoding)


def pieces_of(chunk: Any) -> tuple[Piece, ...]:
    """The pieces of files that a chunk of an export consists of."""
    return tuple(Piece(*piece) for piece in chunk)


def weight_of(spark: SparkSession, table: Table, plan: LoadPlan) -> int:
    """About how many bytes are left to load.

    For a database table, the result is the size of the entire table, or the maximum if the size is unknown.
    """
    load = table.initial_load
    if isinstance(load, JdbcLoad):
        try:
            return JdbcTable(spark, load.connection, split_source_name(load.table or table.source)).size()
        except MirroringError:
            return sys.maxsize  # reading the table reports the error
    return sum(piece.weight for chunk in plan.remaining for piece in pieces_of(plan.chunks[chunk]))


def part_of(chunk: Any) -> tuple[SplitColumn | None, Range]:
    """The split column (if any) and the range of values of a chunk of a database table."""
    column, low, high, nulls = chunk
    return None if column is None else SplitColumn(*column), Range(low, high, nulls)


def _plan_export(mirror: Mirror, table: Table, load: ExportLoad, hand_over: HandOver, ignored: str) -> BoundLoad:
    position = stream_from(mirror, load)
    _check_handover(table, load, position, hand_over)
    # Positions write the commit without separators.
    since = None if position == BEGINNING else position.replace(":", "")
    if hand_over.begins_stream and since is None:
        since = BEGINS_EMPTY
    elif hand_over.log_from or ignored:
        since = _above_old_log(table, since, hand_over, ignored, is_exact=load.handover == "exact")
    export = export_of(mirror, load)
    files = export_files(export)
    columns = export_columns(export, files, table.chosen, load.types)
    if export.is_described:
        key = dfm_of(export.path(files[0])).key
        if table.key and not table.key_is_unique and (lacking := columns_lacking(table.key, key)):
            what = f"the key of the source has {lacking}, which `key` lacks: rows of two keys would become one"
            raise TerminalError(
                "KEY_DIFFERS", what, where=f"table {table.source}", next_step=next_step_of("KEY_DIFFERS")
            )
        columns = keys_as_streamed(columns, {*table.key} - load.types.keys(), table.chosen)
    _check(columns, table)
    pieces = [piece for f in files for piece in cut_file(export, f, mirror.publish.max_rows_per_file, CHUNK_BYTES)]
    chunks = _packed(pieces, mirror.publish.max_rows_per_file)
    if len(chunks) > 1 and table.key:
        _prove_unique(export, pieces, [c for c in columns if c.name in table.key])
    plan = LoadPlan(settings_of(table), columns, tuple(chunks), hand_over_batch=hand_over.log_from)
    return BoundLoad(plan, since)


def _check_handover(table: Table, load: ExportLoad, position: str, hand_over: HandOver) -> None:
    """Refuse `handover` and `stream_from` settings that contradict each other, before anything is read (G-127)."""
    if load.handover is None:
        return
    try:
        check_handover(load.handover, position)
    except PydanticCustomError as error:
        what = f"`stream_from` is {position!r}, and `handover` is {load.handover}"
        next_step = str((error.context or {})["next_step"])
        raise TerminalError("STREAM_FROM_INVALID", what, where=f"table {table.source}", next_step=next_step) from None
    refuse_handed_over(table, hand_over.generation, hand_over.highest)


def refuse_handed_over(table: Table, generation: int, highest: str | None) -> None:
    """Refuse ``handover: quiesced`` if the rows to load may contain changes that were already logged (G-127).

    If changes of the table were logged, rows of a database may contain them; so may an export after a reset. Before the
    first reset, an export is taken as older than every logged change.
    """
    load = table.initial_load
    if load is None or load.handover != "quiesced" or highest is None:
        return
    # An export may be older than every change that was read. A database is read now, so it holds those changes.
    if isinstance(load, JdbcLoad) or generation > 1:
        raise TerminalError(
            "STREAM_FROM_INVALID",
            f"the stream has begun, and reached {highest}: the initial load may contain changes of the stream",
            where=f"table {table.source}",
            next_step="load an export with `handover: exact`, and the first commit that is not in it as `stream_from`",
        )


def _above_old_log(table: Table, since: str | None, hand_over: HandOver, ignored: str, *, is_exact: bool) -> str | None:
    """The position at which the stream continues after an export, above all changes that are not in the change log.

    The export has to contain these: changes of batches that were dropped or are from before a reset, and changes
    *ignored* before the mirror file named the table (G-140). Raises ``STREAM_FROM_INVALID`` if it may not.
    """
    highest = max(hand_over.highest_before or "", ignored)
    if not highest:
        return since
    major = LogPosition.parse(0, highest).major
    if since is None or since < major or (is_exact and since == major):
        raise TerminalError(
            "STREAM_FROM_INVALID",
            f"the export begins at {since or BEGINNING}; changes up to {highest} cannot be published over it. They "
            "were logged before the reset, are no longer in the log, or were ignored before the mirror file named "
            "the table",
            where=f"table {table.source}",
            next_step="export the table again, with the `stream_from` of that export, and go on",
        )
    if is_exact:
        return since
    # The commit that `stream_from` names came before the export: it holds what was logged of it.
    return max(since, above(highest))


def _plan_jdbc(
    table: Table, load: JdbcLoad, hand_over: int, streamed: Mapping[str, str], spark: SparkSession
) -> LoadPlan:
    source = JdbcTable(spark, load.connection, split_source_name(load.table or table.source))
    columns = spelled_as_streamed(source.columns(table.chosen), streamed)
    _check(columns, table)
    split = None
    if load.split_column is not None and load.chunks > 1:
        # The column to cut by need not be one that is mirrored.
        found = source.columns(ColumnChoice((load.split_column,)))[0]
        split = source.split(found.name, found.sql_type or "", load.chunks)
        if split is None:
            raise TerminalError(
                "CONFIG_INVALID",
                f"the column {found.name!r} of type {found.sql_type} cannot be cut into ranges",
                where=f"table {table.source}",
                next_step="name a number or date column as `split_column`, or leave `chunks` out",
            )
    column, parts = split or (None, [Range(None, None, True)])
    return LoadPlan(
        settings_of(table),
        columns,
        tuple([column, *part] for part in parts),
        # A row whose key does not determine its chunk may move between two chunks while they are read.
        together=column is not None and bool(table.key) and column.name not in table.key,
        hand_over_batch=hand_over,
    )


def _check(columns: tuple[LoadColumn, ...], table: Table) -> None:
    keys = table.key
    schema = TableSchema(()).extended(column.landing for column in columns)
    missing = [key for key in keys if key not in {column.name for column in schema.columns}]
    if missing:
        raise TerminalError("KEY_INVALID", f"the source has no key columns {missing}", next_step="correct `key`")
    for column in columns:
        if column.name in keys and column.sql_type is not None:
            try:
                chosen_key_converter(column.sql_type, table.chosen.type_of(column.name))
            except ValueError as error:
                raise TerminalError(
                    "KEY_INVALID", f"the key column {column.name!r}: {error}", next_step="choose another key"
                ) from None


def _packed(pieces: list[Piece], max_rows: int) -> list[list[Piece]]:
    chunks: list[list[Piece]] = [[]]
    for piece in pieces:
        current = chunks[-1]
        rows, weight = sum(p.rows for p in current), sum(p.weight for p in current)
        if current and (rows + piece.rows > max_rows or weight + piece.weight > CHUNK_BYTES):
            chunks.append([])
        chunks[-1].append(piece)
    return chunks


def _prove_unique(export: Export, pieces: list[Piece], keys: list[LoadColumn]) -> None:
    """Check that keys are unique over all chunks, before any is published; workers check within a chunk."""
    schema = file_schema([k.landing for k in keys], [k.name for k in keys], marker=False)
    rows = ExportRows(export, pieces, keys, schema)
    twice = find_duplicate(rows, schema)
    if twice is not None:
        raise duplicate_key(rows.place(twice[0]), rows.place(twice[1]))
