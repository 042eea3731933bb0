"""Decodes change events to rows of the change log. The fast path must give the same rows.

Each message is decoded alone, so the order of messages does not matter; only the pieces of a split event are joined
(C-50 to C-56). Public source: Microsoft Learn, *JSON Message format - change event streaming*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from open_mirroring.changes.manifest import OLD_KEYS_MISSING
from open_mirroring.changes.row_key import key_bucket
from open_mirroring.facts.foreign_tables import FOREIGN, Ignored
from open_mirroring.facts.kind import NewFacts
from open_mirroring.facts.senders import Sender, note_senders
from spark_jobs.changelog.schema import CHANGE, FRAGMENT, REJECTED, LogRow, RawMessage
from spark_jobs.sources.ces.changes import Outcome, SourceTable, change, stale_key
from spark_jobs.sources.ces.envelope import UNSPLIT, Data, Event, is_complete, read_data, read_event
from spark_jobs.sources.ces.unreadable import NamedTable, table_in_line, table_named_in
from spark_jobs.sources.contract.decoded import (
    Damage,
    Decoded,
    Decoder,
    Dispositions,
    MirroredTable,
    Refusal,
    SourceSchema,
    TableNames,
    Unjoinable,
    Waiting,
    damaged_row,
    refused_row,
    shown,
)
from spark_jobs.sources.sql_server.types import BinaryText

MAX_MESSAGE_BYTES = 16 * 2**20
"""A longer message becomes a dead letter (C-50)."""
MAX_EVENT_BYTES = 256 * 2**20
"""An event whose pieces together are longer becomes a dead letter (C-56)."""


class CesDecoder(Decoder):
    """Decodes change events in JSON and Avro, in all three generations of the format, and joins split events.

    Only events of *database* are read, if it is given; events of other databases are ignored (C-12). *binary* is the
    encoding of binary values.
    """

    def __init__(
        self, tables: Mapping[str, MirroredTable], database: str | None = None, binary: BinaryText = "hex"
    ) -> None:
        self._database = database
        self._tables = {source: SourceTable(table, binary) for source, table in tables.items()}
        self._names = TableNames(tables)

    def decode(self, messages: Iterable[RawMessage | Damage]) -> Decoded:
        rows: list[LogRow] = []
        facts: NewFacts = {}
        kinds = Counter[str]()
        senders, without_old_key = set[Sender](), set[str]()
        for message in messages:
            outcome = self._damage(message) if isinstance(message, Damage) else self._message(message)
            found = outcome.rows
            kind = found[0].kind if found else ""
            kinds[kind] += 1
            rows += found
            if not found:
                FOREIGN.add(facts, Ignored(1, outcome.at), name=outcome.foreign)
            elif kind == CHANGE:
                senders.add((found[0].tbl or "", outcome.sender))
                if outcome.old_key_missing:
                    without_old_key.add(found[0].tbl or "")
        counts = Dispositions(kinds.total(), kinds[CHANGE], kinds[FRAGMENT], 0, kinds[""], kinds[REJECTED])
        note_senders(facts, senders)
        return Decoded(rows, counts, old_keys_missing(without_old_key), facts)

    def join(self, pieces: Sequence[LogRow]) -> Decoded | Waiting | Unjoinable:
        outcome = join(pieces, self)
        if not isinstance(outcome, Outcome):
            return outcome
        count = len(pieces)
        rejected = any(row.kind == REJECTED for row in outcome.rows)
        counts = Dispositions(count, rejected=count) if rejected else Dispositions(count, changes=count)
        facts: NewFacts = {}
        if outcome.foreign:
            FOREIGN.add(facts, Ignored(count, outcome.at), name=outcome.foreign)
        note_senders(facts, {(row.tbl or "", outcome.sender) for row in outcome.rows if row.kind == CHANGE})
        schemas = old_keys_missing({row.tbl or "" for row in outcome.rows} if outcome.old_key_missing else ())
        return Decoded([*outcome.rows], counts, schemas, facts)

    def incomplete(self, pieces: Sequence[LogRow], reason: str) -> list[LogRow]:
        outcome = _refused(pieces, Refusal("FRAGMENTS_INCOMPLETE", reason), self)
        return [outcome.row] if isinstance(outcome, Unjoinable) else [*outcome.rows]

    def _damage(self, damage: Damage) -> Outcome:
        """The dead letter of damaged bytes. One line may still contain its table; bytes of several messages cannot."""
        named = table_in_line(damage.raw) if damage.code == "FORMAT_UNSUPPORTED" else None
        return self.placed(damaged_row(damage), named)

    def _message(self, message: RawMessage) -> Outcome:
        body = message.body
        try:
            event = self.read(body)
        except Refusal as refusal:
            return self.placed(refused_row(message.origin, message.place, refusal, body), table_named_in(body))
        if event.split is not UNSPLIT:
            whole = event.split.whole
            if whole is False or (whole is None and not is_complete(event.data)):
                return Outcome((_fragment(message, event),))
        return self.decode_event(event, message.origin, message.place, body)

    def read(self, body: bytes | None) -> Event:
        if body is None:
            raise Refusal("BODY_MISSING", "the message has no body")
        if len(body) > MAX_MESSAGE_BYTES:
            raise Refusal("MESSAGE_INVALID", f"{len(body)} bytes are more than {MAX_MESSAGE_BYTES}")
        return read_event(body)

    def decode_event(self, event: Event, origin: str, place: int, raw: bytes | None) -> Outcome:
        """Decodes a complete event. If the event cannot be read, the result is a dead letter with the bytes *raw*.

        *origin* and *place* locate the event's message at the source.
        """
        table: SourceTable | None = None
        data: Data | None = None
        try:
            data = read_data(event.data)
            table = self.table_of(data)
            if table is None:
                return Outcome((), foreign=self.foreign_name(data), at=event.position(0))
            _check_position(event, data)
            return change(event, data, table, origin, place)._replace(sender=data.eventsource.db)
        except Refusal as refusal:
            row = refused_row(origin, place, refusal, raw)
            position = event.position(0 if event.operation == "DEL" else 1)
            row = row._replace(epoch=event.epoch, pos=position)
            if table and data:
                # Without a key, or with two, no key is recorded: it would be a guess.
                names_row = refusal.code not in ("OLD_KEY_MISSING", "PKKEY_CONTRADICTED", "KEY_DIFFERS")
                key = stale_key(event, data, table, refusal.key) if names_row else None
                row = row._replace(tbl=table.source, key=key, bucket=key_bucket(key))
                return Outcome((row,))
            source = None if data is None else data.eventsource
            named = table_named_in(raw) if source is None else NamedTable(source.db, source.schema, source.tbl)
            return self.placed(row, named)

    def placed(self, letter: LogRow, named: NamedTable | None) -> Outcome:
        """Assigns the dead letter *letter* to the table *named*, which was found in the letter's bytes (C-95).

        If the table is not mirrored, the result has no row. A dead letter without a key stops a table that is mirrored
        by a key, because any row of the table may be outdated.
        """
        if named is None or not (named.schema and named.tbl):
            return Outcome((letter,))
        database = (self._database or "").casefold()
        if database and named.db and named.db.casefold() != database:
            return Outcome((), foreign=f"{named.db}.{named.schema}.{named.tbl}", at=letter.pos or "")
        name = f"{named.schema}.{named.tbl}"
        meant = self._names.meant_by(name) if name not in self._tables else name
        if meant is None:
            return Outcome((), foreign=name, at=letter.pos or "")
        return Outcome((letter._replace(tbl=self._tables[meant].source),))

    def foreign_name(self, data: Data) -> str:
        """The name of an event's table that is not mirrored; with its database if the mirror reads another database."""
        source = data.eventsource
        name = f"{source.schema}.{source.tbl}"
        return name if self._database in (None, source.db) else f"{source.db}.{name}"

    def table_of(self, data: Data) -> SourceTable | None:
        """The mirrored table of an event; None if the event's table is not mirrored.

        Raises a Refusal if the event's name and a mirrored table's name differ in case only: to ignore such an event
        could lose changes.
        """
        source = data.eventsource
        if not (source.db and source.schema and source.tbl):
            raise Refusal("MESSAGE_INVALID", "db, schema or tbl is empty")
        name, database = f"{source.schema}.{source.tbl}", self._database
        if database is not None and source.db != database:
            if source.db.casefold() != database.casefold() or self._names.meant_by(name) is None:
                return None
            raise Refusal(
                "TABLE_NAME_DIFFERS", f"an event of database {shown(source.db)}, and the mirror file says {database!r}"
            )
        table = self._tables.get(name)
        if table is None:
            self._names.refuse_other_case(name)
        elif "." in source.tbl:
            # Schema `a`, table `b.c` and schema `a.b`, table `c` would be equal: streamed tables have no period (C-74).
            raise Refusal("MESSAGE_INVALID", f"the table name {shown(source.tbl)} has a period")
        return table


def old_keys_missing(tables: Collection[str]) -> list[SourceSchema]:
    """Records for the ledger which say that updates of *tables* do not show the row's previous key (C-73)."""
    return [SourceSchema(OLD_KEYS_MISSING, "", table, 0, "") for table in sorted(tables)]


def _check_position(event: Event, data: Data) -> None:
    """The transaction block, if there is one, must match ``logicalid`` (C-30)."""
    transaction = data.eventsource.transaction
    if transaction is None:
        return
    if transaction.commitlsn.replace(":", "").upper() != event.lsn or transaction.sequencenumber != int(event.sequence):
        raise Refusal(
            "MESSAGE_INVALID",
            f"logicalid says {event.lsn}, {event.sequence}, but the transaction block says "
            f"{shown(transaction.commitlsn)}, {transaction.sequencenumber}",
        )


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


class _Piece(NamedTuple):
    row: LogRow
    event: Event


def join(pieces: Sequence[LogRow], decoder: CesDecoder) -> Outcome | Waiting | Unjoinable:
    """Joins the pieces of one split event, and decodes the event like one message at the place of its last piece.

    Returns Waiting if pieces are missing, and Unjoinable (or a dead letter) if the pieces can never be joined.
    """
    read = [_Piece(row, decoder.read(row.raw)) for row in sorted(pieces, key=lambda row: (row.origin, row.place))]
    try:
        run, is_proven = _run(_by_index(read))
    except Refusal as refusal:
        return _refused(pieces, refusal, decoder)
    if isinstance(run, str):
        return Waiting(run)
    size = sum(len(piece.row.raw or b"") for piece in run)
    if size > MAX_EVENT_BYTES:
        reason = f"{size} bytes in {len(run)} pieces exceed {MAX_EVENT_BYTES}"
        return _refused(pieces, Refusal("MESSAGE_INVALID", reason), decoder)
    last = run[-1]
    try:
        data = _concatenated(run)
    except UnicodeError as error:
        if not is_proven:
            return Waiting("piece 0")
        return _refused(pieces, Refusal("MESSAGE_INVALID", f"half a character is missing: {error}"), decoder)
    if not is_proven and not is_complete(data):
        return Waiting("piece 0")
    whole = msgspec.structs.replace(last.event, data=data, split=UNSPLIT)
    raw = data.encode() if isinstance(data, str) else data
    outcome = decoder.decode_event(whole, last.row.origin, last.row.place, raw)
    if outcome.rows and outcome.rows[0].kind == REJECTED:
        return Outcome((outcome.rows[0]._replace(fragment_of=last.row.fragment_of),))
    return outcome


def _refused(pieces: Sequence[LogRow], refusal: Refusal, decoder: CesDecoder) -> Unjoinable | Outcome:
    named = {found for piece in pieces if (found := table_named_in(piece.raw)) is not None}
    # One row for the complete group, at the coordinates of its first piece; the log has the others unchanged.
    first = min(pieces, key=lambda row: (row.origin, row.place))
    letter = refused_row(first.origin, first.place, refusal, first.raw)._replace(reason=refusal.reason)
    letter = letter._replace(epoch=first.epoch, pos=first.pos, fragment_of=first.fragment_of)
    outcome = decoder.placed(letter, named.pop() if len(named) == 1 else None)
    return Unjoinable(outcome.rows[0]) if outcome.rows else outcome


def _by_index(pieces: Sequence[_Piece]) -> dict[int, _Piece]:
    found: dict[int, _Piece] = {}
    for piece in pieces:
        known = found.setdefault(piece.event.split.piece, piece)
        if (known.event.data, known.event.split) != (piece.event.data, piece.event.split):
            raise Refusal(
                "FRAGMENTS_INCOMPLETE",
                f"piece {piece.event.split.piece} came with two contents, from {known.row.origin} "
                f"{known.row.place} and {piece.row.origin} {piece.row.place}",
            )
    heads = {(piece.event.logical_id, piece.event.operation, type(piece.event.data)) for piece in found.values()}
    if len(heads) > 1:
        raise Refusal("FRAGMENTS_INCOMPLETE", "the pieces differ in logicalid, operation or encoding")
    return found


def _run(by_index: dict[int, _Piece]) -> tuple[list[_Piece] | str, bool]:
    totals = {piece.event.split.total for piece in by_index.values()}
    last = sorted(index for index, piece in by_index.items() if piece.event.split.last)
    if len(totals) > 1 or len(last) > 1 or (last and max(by_index) > last[0]):
        raise Refusal("FRAGMENTS_INCOMPLETE", f"the pieces {sorted(by_index)} disagree about which is the last")
    total = totals.pop()
    if total is not None:
        if 0 in by_index and total in by_index:
            raise Refusal("FRAGMENTS_INCOMPLETE", f"pieces 0 and {total} of {total}")
        base = 1 if total in by_index else 0
        end, is_proven = base + total - 1, True
        if total not in by_index and 0 not in by_index:
            return "the first or the last piece", False
    else:
        if not last:
            return "the last piece", False
        base, is_proven = (0, True) if 0 in by_index else (1, False)
        end = last[0]
    missing = [index for index in range(base, end + 1) if index not in by_index]
    if missing:
        return f"piece {missing[0]}" + (f" and {len(missing) - 1} more" if len(missing) > 1 else ""), False
    return [by_index[index] for index in range(base, end + 1)], is_proven


def _concatenated(run: Sequence[_Piece]) -> str | bytes:
    """The joined pieces, with the halves of divided characters combined (C-54)."""
    parts = [piece.event.data for piece in run]
    if isinstance(parts[0], bytes):
        return b"".join(part for part in parts if isinstance(part, bytes))
    text = "".join(part for part in parts if isinstance(part, str))
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
