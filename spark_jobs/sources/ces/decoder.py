"""Decodes change events: messages in, rows of the change log out.

This decoder defines the format: whatever is faster must give the same. It is a pure function of each message. It knows
no clock, no order of arrival and no other message, so repetitions and other batches give the same rows.

Public source: Microsoft Learn, *JSON Message format - change event streaming* (editions of March 2025 and August
2026); where it is silent, the rule ids name the reading taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from open_mirroring.changes.row_key import key_bucket
from spark_jobs.changelog.schema import CHANGE, FRAGMENT, REJECTED, LogRow, RawMessage
from spark_jobs.sources.ces.changes import NOTHING_NOTICED, Outcome, SourceTable, change, stale_key
from spark_jobs.sources.ces.envelope import UNSPLIT, Data, Event, is_complete, read_data_leniently, read_event
from spark_jobs.sources.ces.unreadable import NamedTable, table_in_body, table_in_data, table_in_line
from spark_jobs.sources.contract.decoded import (
    Damage,
    Decoded,
    Dispositions,
    MirroredTable,
    Notices,
    Refusal,
    Sender,
    damaged_row,
    shown,
)
from spark_jobs.sources.contract.table_names import TableNames
from spark_jobs.sources.sql_server.types import BinaryText

__all__ = ["CesDecoder", "CesSettings", "Damage", "Decoded", "Dispositions", "MirroredTable", "Notices"]


class CesSettings(NamedTuple):
    """How a stream is read where the format leaves a choice.

    Args:
        database: read only events of this database and ignore others; None reads all (C-12).
        binary: how binary values are spelled (C-84).
        max_message_bytes: a longer message is a dead letter; the source sends 1 MB at most (C-50).
        max_event_bytes: an event whose pieces are longer together is a dead letter (C-56).
    """

    database: str | None = None
    binary: BinaryText = "hex"
    max_message_bytes: int = 16 * 2**20
    max_event_bytes: int = 256 * 2**20


DEFAULT_SETTINGS = CesSettings()


class CesDecoder:
    """Decodes CES messages of every generation, JSON and Avro.

    Args:
        tables: the mirrored tables by their name at the source, ``schema.table``, spelled as the source spells it.
        settings: how the stream is read.
    """

    def __init__(self, tables: Mapping[str, MirroredTable], settings: CesSettings = DEFAULT_SETTINGS) -> None:
        self.settings = settings
        self._tables = {source: SourceTable(table, settings.binary) for source, table in tables.items()}
        self._names = TableNames(tables)

    def decode(self, messages: Iterable[RawMessage | Damage]) -> Decoded:
        """Decode messages: no message is passed over, and none stops the others.

        Damaged bytes that a transport reports count as one rejected message each.
        """
        rows: list[LogRow] = []
        foreign = Counter[str]()
        total = changes = fragments = ignored = rejected = 0
        notices = NOTHING_NOTICED
        senders = set[Sender]()
        for message in messages:
            total += 1
            outcome = self._damage(message) if isinstance(message, Damage) else self._message(message)
            found = outcome.rows
            if outcome.notices is not NOTHING_NOTICED:
                notices = notices.plus(outcome.notices)
            if not found:
                ignored += 1
                foreign[outcome.foreign] += 1
                continue
            rows += found
            kind = found[0].kind
            if kind == CHANGE:
                changes += 1
                senders.add((found[0].tbl or "", outcome.sender))
            elif kind == FRAGMENT:
                fragments += 1
            else:
                rejected += 1
        counts = Dispositions(total, changes, fragments, 0, ignored, rejected)
        return Decoded(rows, counts, notices, foreign=foreign, senders=self.unchosen(senders))

    def unchosen(self, senders: Collection[Sender]) -> Collection[Sender]:
        """The tables and their databases, unless the mirror file chose one (C-12)."""
        return () if self.settings.database else senders

    def _damage(self, damage: Damage) -> Outcome:
        """Bytes without a message; a line of its own may still tell its table, bytes of many messages never do."""
        if damage.code != "WRAPPER_MALFORMED":
            return Outcome((damaged_row(damage),))
        return self.placed(damaged_row(damage), table_in_line(damage.raw))

    def _message(self, message: RawMessage) -> Outcome:
        body = message.body
        try:
            event = self.read(body)
        except Refusal as refusal:
            return self.placed(_rejected(message.origin, message.place, refusal, body), table_in_body(body))
        if event.split is not UNSPLIT:
            whole = event.split.whole
            if whole is False or (whole is None and not is_complete(event.data)):
                return Outcome((_fragment(message, event),))
        return self.decode_event(event, message.origin, message.place, body)

    def read(self, body: bytes | None) -> Event:
        """The envelope of one message.

        Raises:
            Refusal: as :func:`spark_jobs.sources.ces.envelope.read_event`, or ``TOO_LARGE``.
        """
        if body is None:
            raise Refusal("BODY_MISSING", "the message has no body")
        if len(body) > self.settings.max_message_bytes:
            raise Refusal("TOO_LARGE", f"{len(body)} bytes are more than {self.settings.max_message_bytes}")
        return read_event(body)

    def decode_event(self, event: Event, origin: str, place: int, raw: bytes | None) -> Outcome:
        """Decode an event that is whole; *raw* is what a dead letter keeps of it."""
        table: SourceTable | None = None
        data: Data | None = None
        try:
            data, is_prose = read_data_leniently(event.data)
            table = self.table_of(data)
            if table is None:
                return Outcome((), foreign=self.foreign_name(data))
            _check_position(event, data)
            outcome = change(event, data, table, origin, place)._replace(sender=data.eventsource.db)
            if is_prose or any(event.notices):
                notices = outcome.notices.plus(event.notices).plus(Notices(prose_names=int(is_prose)))
                return outcome._replace(notices=notices)
            return outcome
        except Refusal as refusal:
            row = _rejected(origin, place, refusal, raw)
            position = event.position(0 if event.operation == "DEL" else 1)
            row = row._replace(epoch=event.epoch, pos=position)
            if table and data:
                # A key that is not told, or told twice, is no reason to take one.
                is_told = refusal.code not in ("OLD_KEY_MISSING", "PKKEY_CONTRADICTED")
                key = stale_key(event, data, table, refusal.key) if is_told else None
                row = row._replace(tbl=table.source, key=key, bucket=key_bucket(key))
                return Outcome((row,))
            source = None if data is None else data.eventsource
            told = table_in_data(event.data) if source is None else NamedTable(source.db, source.schema, source.tbl)
            return self.placed(row, told)

    def placed(self, letter: LogRow, told: NamedTable | None) -> Outcome:
        """A dead letter of the table that its bytes still tell; nothing where that table is not mirrored (C-95).

        Without a key it stops its table, for any row of that may be out of date.
        """
        if told is None or not (told.schema and told.tbl):
            return Outcome((letter,))
        database = (self.settings.database or "").casefold()
        if database and told.db and told.db.casefold() != database:
            return Outcome((), foreign=f"{told.db}.{told.schema}.{told.tbl}")
        name = f"{told.schema}.{told.tbl}"
        meant = self._names.meant_by(name) if name not in self._tables else name
        if meant is None:
            return Outcome((), foreign=name)
        return Outcome((letter._replace(tbl=self._tables[meant].source),))

    def foreign_name(self, data: Data) -> str:
        """The name of a table that is not mirrored; with its database where only another one is read."""
        source = data.eventsource
        name = f"{source.schema}.{source.tbl}"
        return name if self.settings.database in (None, source.db) else f"{source.db}.{name}"

    def table_of(self, data: Data) -> SourceTable | None:
        """The mirrored table of an event; None when it is not mirrored.

        Raises:
            Refusal: ``DATA_MALFORMED`` when the name has a period or is empty, ``TABLE_CASE`` when the table is a
                mirrored one but for the case of its name, or of the database's.
        """
        source = data.eventsource
        if not (source.db and source.schema and source.tbl):
            raise Refusal("DATA_MALFORMED", "db, schema or tbl is empty")
        name, database = f"{source.schema}.{source.tbl}", self.settings.database
        if database is not None and source.db != database:
            if source.db.casefold() != database.casefold() or self._names.meant_by(name) is None:
                return None
            raise Refusal(
                "TABLE_CASE", f"an event of database {shown(source.db)}, and the mirror file says {database!r}"
            )
        table = self._tables.get(name)
        if table is None:
            self._names.refuse_other_case(name)
        elif "." in source.tbl:
            # Schema `a`, table `b.c` and schema `a.b`, table `c` would be one: streamed tables have no period (C-74).
            raise Refusal("DATA_MALFORMED", f"the table name {shown(source.tbl)} has a period")
        return table


def _check_position(event: Event, data: Data) -> None:
    """The transaction block, where there is one, must say the same as ``logicalid`` (C-30)."""
    transaction = data.eventsource.transaction
    if transaction is None:
        return
    if transaction.commitlsn.replace(":", "").upper() != event.lsn or transaction.sequencenumber != int(event.sequence):
        raise Refusal(
            "POSITION_MISMATCH",
            f"logicalid says {event.lsn}, {event.sequence}, but the transaction block says "
            f"{shown(transaction.commitlsn)}, {transaction.sequencenumber}",
        )


def _rejected(origin: str, place: int, refusal: Refusal, raw: bytes | None) -> LogRow:
    return LogRow(REJECTED, origin, place, code=refusal.code, reason=refusal.reason, raw=raw)


def _fragment(message: RawMessage, event: Event) -> LogRow:
    return LogRow(
        FRAGMENT,
        message.origin,
        message.place,
        epoch=event.epoch,
        pos=event.position(1),
        fragment_of=event.logical_id,
        piece=event.split.piece,
        last_piece=event.split.last,
        pieces=event.split.total,
        raw=message.body,
    )
