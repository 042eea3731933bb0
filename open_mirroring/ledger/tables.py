"""The SQL tables of the ledger, and an upsert.

Positions are stored as strings inside their stream (one enabling of streaming or one Qlik full load), structured values
as JSON.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, TypeVar

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ColumnElement,
    Connection,
    DateTime,
    Dialect,
    Engine,
    Index,
    Integer,
    MetaData,
    Select,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)

R = TypeVar("R", bound=tuple[Any, ...])
V = TypeVar("V")
K = TypeVar("K", bound=Hashable)


class WholeNumber(TypeDecorator[int]):
    """SQL type for an integer of up to 40 digits, stored as a string; Qlik's change sequences have 35 digits (T-10)."""

    impl = String(40)
    cache_ok = True

    def process_bind_param(self, value: int | None, dialect: Dialect) -> str | None:
        return None if value is None else str(value)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> int | None:
        return None if value is None else int(value)


class Moment(TypeDecorator[datetime]):
    """SQL type for a time in UTC. The returned time has its zone, which SQLite does not store."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)


metadata = MetaData()

mirror = Table(
    "mirror",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("version", BigInteger, nullable=False, default=0),
    # Number of the newest batch that was seen in the change log; numbers run from 1 without a gap.
    Column("committed", BigInteger, nullable=False, default=0),
    Column("open_number", BigInteger),
    Column("open_ranges", Text),
    Column("open_manifest", Text),
    Column("open_bound_at", Moment),
    Column("stop_code", String(64)),
    Column("stop_what", Text),
    # Dead letters whose table is unknown: any table may lack them.
    Column("unnamed_rejects", BigInteger, nullable=False, default=0),
    # Whether open_letter has every open dead letter of the committed batches; null: they have to be counted again.
    Column("letters_counted", Boolean, default=True),
    # Where it read and wrote when it was last registered (G-142, G-175); null: unknown.
    Column("reads", Text),
    # The log's rows of batches up to this one may be gone.
    Column("dropped", BigInteger, nullable=False, default=0),
)

log_batch = Table(
    "log_batch",
    metadata,
    Column("mirror", String(64), primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("ranges", Text, nullable=False),
    Column("manifest", Text, nullable=False),
    Column("bound_at", Moment, nullable=False),
    Column("committed_at", Moment, nullable=False),
    # What the source's partitions had shown after the batch; null if no complete position is kept.
    Column("completeness", Text),
)

batch_table = Table(
    "batch_table",
    metadata,
    Column("mirror", String(64), primary_key=True),
    Column("source", String(300), primary_key=True),
    Column("batch", BigInteger, primary_key=True),
    Column("epoch", String(200), primary_key=True),
    Column("rows", BigInteger, nullable=False),
    Column("min_pos", String(200), nullable=False),
    Column("max_pos", String(200), nullable=False),
    # Log files of the batch that hold rows of this table, relative to the change log.
    Column("files", Text, nullable=False),
)

bound_range = Table(
    "bound_range",
    metadata,
    Column("mirror", String(64), primary_key=True),
    # A file below the source path, or a topic partition.
    Column("name", String(1000), primary_key=True),
    # First byte, offset or change sequence that was never bound.
    Column("bound_to", WholeNumber, nullable=False),
    Column("batch", BigInteger, nullable=False),
    # Of a file: a text that changes when the file is written to, and the digest of what is bound; null: unknown.
    Column("version", String(300)),
    Column("digest", String(64)),
)

# Small values of a mirror or a table that are only read and written entirely: see open_mirroring/ledger/documents.py.
document = Table(
    "document",
    metadata,
    # The name of a mirror, or the id of a table.
    Column("owner", String(64), primary_key=True),
    Column("kind", String(20), primary_key=True),
    Column("name", String(1000), primary_key=True),
    Column("value", Text, nullable=False),
)

mirrored_table = Table(
    "mirrored_table",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("mirror", String(64), nullable=False),
    Column("source", String(300), nullable=False),
    Column("folder", String(300), nullable=False),
    Column("keys", Text, nullable=False),
    # How its files of delimited text are written; null: they are Parquet.
    Column("text_format", Text),
    # Types at the target that the mirror file sets for key columns; null: none.
    Column("key_types", Text),
    # Names at the target that the mirror file sets for key columns; null: none.
    Column("key_names", Text),
    Column("version", BigInteger, nullable=False, default=0),
    Column("generation", Integer, nullable=False, default=1),
    Column("incarnation", String(36), nullable=False),
    Column("established", Boolean, nullable=False, default=False),
    # ETag of the marker object in the folder that the table was established with; empty until then.
    Column("marker_etag", String(200), nullable=False, default=""),
    Column("confirmed", BigInteger, nullable=False, default=0),
    Column("published_batch", BigInteger, nullable=False, default=0),
    # Of these batches the target has the changes up to this position over all epochs; null: all of them.
    Column("published_position", String(220)),
    # Number of changes of these batches above that position: they wait for the end of their transactions.
    Column("waiting_rows", BigInteger),
    Column("intent", Text),
    Column("columns", Text, nullable=False, default="[]"),
    # Which columns were read when the table was last registered (G-141); null: unknown.
    Column("takes", Text),
    # The `types` with which its columns were published or compared last (G-129); null: not known.
    Column("types", Text),
    # none | pending | loaded; while pending, changes are logged and not published.
    Column("load_state", String(10), nullable=False, default="none"),
    Column("load_plan", Text),
    # Why the last attempt at its initial load could not begin, as CODE: text; null: it could.
    Column("load_refused", Text),
    # Changes below this position are in the initial load already (G-08): a text that orders like positions, inside the
    # stream of ordinal *stream_epoch*; earlier streams are entirely in the load.
    Column("stream_from", String(200)),
    Column("stream_epoch", Integer, nullable=False, default=0),
    # Batches up to this one do not count for this generation: they have another key, or lack changes.
    Column("log_from", BigInteger, nullable=False, default=0),
    # The full load of the source, in the log, with which this generation begins (G-125); null: with no such load.
    Column("newest_load", Text),
    # Who accepted the newest full load, and why, until a run has begun the reset for it; null: no one.
    Column("reload_accepted", Text),
    # The reset under way: its last record, who asked for it and why; null when there is none.
    Column("reset", Text),
    Column("stop_code", String(64)),
    Column("stop_what", Text),
    Column("stopped_at", Moment),
    UniqueConstraint("mirror", "source"),
    UniqueConstraint("mirror", "folder"),
)

rejected_change = Table(
    "rejected_change",
    metadata,
    Column("table_id", String(36), primary_key=True),
    Column("epoch", String(200), primary_key=True),
    Column("pos", String(200), primary_key=True),
    Column("key_digest", String(64), primary_key=True),
    Column("key", Text),
    Column("batch", BigInteger, nullable=False),
    Column("code", String(64), nullable=False),
    Column("reason", Text, nullable=False),
    Column("origin", Text, nullable=False),
    Column("place", BigInteger, nullable=False),
    # Batches up to this one hold no later change that heals it; null: none was looked at.
    Column("looked_to", BigInteger),
)

published_file = Table(
    "published_file",
    metadata,
    Column("table_id", String(36), primary_key=True),
    Column("generation", Integer, primary_key=True),
    Column("number", BigInteger, primary_key=True),
    Column("etag", String(200), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("first_position", String(200), nullable=False),
    Column("last_position", String(200), nullable=False),
    Column("kind", String(10), nullable=False),
    Column("batch_from", BigInteger, nullable=False),
    Column("batch_to", BigInteger, nullable=False),
    Column("confirmed_at", Moment, nullable=False),
    # What was published in the last hours is asked for by the page.
    Index("published_file_confirmed_at", "confirmed_at"),
)

publication = Table(
    "publication",
    metadata,
    Column("table_id", String(36), primary_key=True),
    Column("generation", Integer, primary_key=True),
    Column("version", BigInteger, primary_key=True),
    Column("kind", String(10), nullable=False),
    Column("batch_from", BigInteger, nullable=False),
    Column("batch_to", BigInteger, nullable=False),
    # The position over all epochs at which transactions were cut; null: nothing was held back.
    Column("position_to", String(220)),
    # changes, upserts, deletes, compacted, duplicates, superseded, rejected: they add up (I1).
    Column("counts", Text, nullable=False),
    Column("confirmed_at", Moment, nullable=False),
)

audit = Table(
    "audit",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("at", Moment, nullable=False),
    Column("mirror", String(64), nullable=False),
    Column("source", String(300)),
    Column("event", String(64), nullable=False),
    Column("detail", Text, nullable=False),
)

# Open dead letters of the log. If a batch has very many, rows with the place -1 count those that are not listed.
open_letter = Table(
    "open_letter",
    metadata,
    Column("mirror", String(64), primary_key=True),
    Column("batch", BigInteger, primary_key=True),
    Column("origin", String(1000), primary_key=True),
    Column("place", BigInteger, primary_key=True),
    # Source table; null if the message did not name it.
    Column("source", String(300)),
    Column("code", String(64), nullable=False),
    Column("reason", Text, nullable=False),
    # The row that it leaves out of date, and its place in the order, as far as they are known.
    Column("key", Text),
    Column("epoch", String(200)),
    Column("pos", String(200)),
    Column("letters", BigInteger, nullable=False, default=1),
    # Batches up to this one hold no later change that heals it.
    Column("looked_to", BigInteger, nullable=False, default=0),
)

# How a job ended whose driver ran on another machine (S-16): *run* is the name that its starter chose.
job_end = Table(
    "job_end",
    metadata,
    Column("run", String(64), primary_key=True),
    Column("mirror", String(64), nullable=False),
    Column("ended_at", Moment, nullable=False),
    Column("exit_code", Integer, nullable=False),
    Column("result", Text, nullable=False),
)

# Settled dead letters: decoded in the end, read again, or accepted as lost.
settled_letter = Table(
    "settled_letter",
    metadata,
    Column("mirror", String(64), primary_key=True),
    Column("batch", BigInteger, primary_key=True),
    Column("origin", String(1000), primary_key=True),
    Column("place", BigInteger, primary_key=True),
    # replayed | reread | accepted | healed | reloaded
    Column("outcome", String(10), nullable=False),
    # The batch that holds what came of it; none for an accepted one.
    Column("settled_in", BigInteger),
    Column("settled_at", Moment, nullable=False),
)

# Results of comparing a table with its source; one row for each proof.
proof = Table(
    "proof",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("table_id", String(36), nullable=False),
    Column("generation", Integer, nullable=False),
    Column("proved_at", Moment, nullable=False),
    # Verdict, position, counts, keys and all else of it.
    Column("document", Text, nullable=False),
)

# Requests, one per approval: the same request again gets the first outcome (G-30).
decision_request = Table(
    "decision_request",
    metadata,
    Column("mirror", String(64), primary_key=True),
    # Given with the approval: a run of a scheduler, or an id of the command line.
    Column("request", String(600), primary_key=True),
    Column("action", String(30), nullable=False),
    # Empty if it concerns the entire mirror.
    Column("source", String(300), nullable=False),
    # The part of the table, such as a column or file number; else empty.
    Column("subject", String(300), nullable=False),
    Column("asked_at", Moment, nullable=False),
    # Null while it is under way.
    Column("finished_at", Moment),
    Column("outcome", Text),
)


def rows(ledger: Engine, query: Select[R]) -> Sequence[R]:
    """Run a query in a transaction of its own, and return its rows."""
    with ledger.connect() as db:
        return db.execute(query).tuples().all()


def first(ledger: Engine, query: Select[tuple[V]]) -> V | None:
    """Run a query in a transaction of its own, and return its first value; None if it returns none."""
    with ledger.connect() as db:
        return db.scalar(query)


def grouped(found: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Group values by key; the values of a group keep their order."""
    groups: dict[K, list[V]] = {}
    for key, value in found:
        groups.setdefault(key, []).append(value)
    return groups


def change_tables(db: Connection, which: ColumnElement[bool], **values: Any) -> int:
    """Change ledger rows of mirrored tables and raise their versions. Returns how many rows matched.

    Processes that read a row before the change cannot write the row any more.
    """
    statement = mirrored_table.update().where(which).values(version=mirrored_table.c.version + 1, **values)
    return db.execute(statement).rowcount


def upsert(
    db: Connection, table: Table, rows: Sequence[dict[str, Any]], *, keys: Sequence[str], update: Sequence[str]
) -> None:
    """Insert rows.

    Where a row with the same *keys* exists, overwrite its columns *update*; without *update*, keep the row.
    """
    if not rows:
        return
    statement = import_module(f"sqlalchemy.dialects.{db.dialect.name}").insert(table)
    if update:
        statement = statement.on_conflict_do_update(
            index_elements=list(keys), set_={column: statement.excluded[column] for column in update}
        )
    else:
        statement = statement.on_conflict_do_nothing(index_elements=list(keys))
    db.execute(statement, list(rows))
