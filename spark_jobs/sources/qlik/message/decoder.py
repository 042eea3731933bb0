"""Decodes messages of Qlik and Talend tasks into rows of the change log.

A metadata message announces the structure of a table, before or after the table's data messages (K-05, K-06). A data
message whose structure is unknown waits as a fragment. Public source: Qlik Help, *Metadata and data messages*, *The
Replicate envelope*.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from open_mirroring.changes.row_key import key_bucket
from open_mirroring.facts.foreign_tables import note_foreign
from open_mirroring.facts.kind import NewFacts
from open_mirroring.facts.senders import Sender, note_senders
from spark_jobs.changelog.origins import topic_of
from spark_jobs.changelog.schema import CHANGE, FRAGMENT, REJECTED, LogRow, RawMessage
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
from spark_jobs.sources.qlik.masks import MaskOrder
from spark_jobs.sources.qlik.message.avro import data_schema
from spark_jobs.sources.qlik.message.changes import MessageContext, change
from spark_jobs.sources.qlik.message.envelope import (
    AvroData,
    JsonData,
    Metadata,
    key_that_decides,
    named_by_key,
    read_message,
    schema_id_in,
    table_of_key,
)
from spark_jobs.sources.qlik.message.headers import read_headers, refuse_other_sections, stated_table
from spark_jobs.sources.qlik.message.images import TableImages, table_images
from spark_jobs.sources.qlik.message.registry import Structures, fitting, shape
from spark_jobs.sources.qlik.message.structures import (
    Structure,
    announced_table,
    derived_structure,
    read_announcement,
    task_of,
)
from spark_jobs.sources.qlik.positions import SEQUENCE_DIGITS
from spark_jobs.sources.sql_server.types import BinaryText


class QlikMessageSettings(NamedTuple):
    """Settings for reading messages that the messages themselves do not show.

    Args:
        load: the setting ``source.load``, which names the Qlik full load to which the messages belong; the epoch of
            log positions (G-01).
        mask_order: how the bytes of masks are ordered (T-24).
        topics: maps a topic to its table, ``schema.table``, if all of its messages are of this table; they need not
            name it (K-15).
        binary: the encoding of binary values in JSON; Avro messages contain bytes.
        sequence_digits: the length of ``changeSequence``; a sequence of another length would not sort correctly
            (T-10).
        unframed_avro: bytes in no known form are Avro records without header, read by the only matching schema of
            their table.
        max_message_bytes: a longer message becomes a dead letter.
    """

    load: str = "1"
    mask_order: MaskOrder = "auto"
    topics: Mapping[str, str] = {}
    binary: BinaryText = "hex"
    sequence_digits: int = SEQUENCE_DIGITS
    unframed_avro: bool = False
    max_message_bytes: int = 16 * 2**20


UNKNOWN = "unknown:"
"""Prefix of ``fragment_of`` for messages that name no table and wait for their structure."""

BY_KEY = ":key:"
"""Within such a ``fragment_of``: before the table that the message's key may name."""

_LONGEST, _LONGEST_NAME = 290, 200

_NO_TABLE = frozenset({"BODY_MISSING", "TABLE_NAME_DIFFERS"})
"""Dead letters without table: the message is empty, or its parts name different tables."""


DEFAULT_SETTINGS = QlikMessageSettings()


class _StructureUnknown(Exception):
    """The structure of a message is not announced yet: its name, and the table if known."""

    def __init__(self, name: str, table: str | None) -> None:
        super().__init__(name, table)
        self.name, self.table = name, table


class _Seen:
    """What was read of a message before it was refused: its members, and its mirrored table if that is certain.

    *foreign* is its table if that is not mirrored, *said* the one in its metadata, *may_be* the one that its key may
    name.
    """

    record: Mapping[str, Any] | None = None
    table: MirroredTable | None = None
    foreign: str | None = None
    said: str | None = None
    may_be: str | None = None


class QlikMessageDecoder(Decoder):
    """Decodes messages of Qlik tasks by known structures: announced by messages, or given in the mirror file (K-06)."""

    def __init__(
        self,
        tables: Mapping[str, MirroredTable],
        schemas: Sequence[SourceSchema] = (),
        settings: QlikMessageSettings = DEFAULT_SETTINGS,
    ) -> None:
        self.settings = settings
        self.tables = dict(tables)
        self.names = TableNames(tables)
        self.known = Structures(schemas)

    def decode(self, messages: Iterable[RawMessage | Damage]) -> Decoded:
        return _MessageReader(self, self.known.copy()).decode(messages)

    def followed(self, topic: str, schema_id: str | None) -> Structure | None:
        """The structure of the messages of *topic* that have the id *schema_id* and name no table.

        None if the structure is unknown, or if only the content of each message shows it.
        """
        reader = _MessageReader(self, self.known)
        try:
            stated = reader.stated({}, topic)
            found = reader.follows(JsonData(schema_id, {}), topic, stated, None)
        except (Refusal, _StructureUnknown):
            return None
        return found if found.table and stated in (None, found.table) else None

    def images(self, structure: Structure) -> TableImages | None:
        table = self.tables.get(structure.table)
        if table is None:
            self.names.refuse_other_case(structure.table)
            return None
        table.refuse_narrower_key(self.known.key_of(structure))
        return table_images(structure, table, self.settings.binary)

    def join(self, pieces: Sequence[LogRow]) -> Decoded | Waiting | Unjoinable:
        """Decodes the messages that waited for one structure, if the structure is known now.

        A message that cannot be read becomes a dead letter among the rows.
        """
        ordered = sorted(pieces, key=lambda piece: (piece.origin, piece.place))
        decoded = self.decode(map(self._waited, ordered))
        return Waiting() if decoded.counts.fragments else decoded

    def again(self, origin: str, place: int, body: bytes | None, source: str | None) -> RawMessage:
        """A message of the change log, as it was read from the source.

        The change log stores no message keys. So the message gets a key that names the table *source*.
        """
        name = next((name for name, table in self.tables.items() if table.source == source), None)
        return RawMessage(origin, place, body, None if name is None else key_that_decides(name))

    def _waited(self, piece: LogRow) -> RawMessage:
        _, by_key, name = (piece.fragment_of or "").partition(BY_KEY)
        if by_key and piece.tbl is None:
            return RawMessage(piece.origin, piece.place, piece.raw, key_that_decides(name))
        return self.again(piece.origin, piece.place, piece.raw, piece.tbl)

    def incomplete(self, pieces: Sequence[LogRow], reason: str) -> list[LogRow]:
        rows = []
        for piece in sorted(pieces, key=lambda piece: (piece.origin, piece.place)):
            if piece.tbl is None and f":schema:{UNKNOWN}" in (piece.fragment_of or ""):
                refusal = Refusal("TABLE_UNNAMED", f"the table of the change is unknown: {reason}")
            else:
                refusal = Refusal("METADATA_MISSING", f"nothing announced the structure {piece.fragment_of}: {reason}")
            row = refused_row(piece.origin, piece.place, refusal, piece.raw)
            rows.append(row._replace(tbl=piece.tbl, epoch=piece.epoch, pos=piece.pos))
        return rows


class _MessageReader:
    """Reads messages with known structures, and adds new ones."""

    def __init__(self, decoder: QlikMessageDecoder, structures: Structures) -> None:
        self._tables, self._names, self._settings = decoder.tables, decoder.names, decoder.settings
        self._structures = structures
        self._found: list[SourceSchema] = []
        self._senders, self._used = set[Sender](), set[SourceSchema]()

    def decode(self, messages: Iterable[RawMessage | Damage]) -> Decoded:
        """Decodes messages; messages that lack their structure are tried again after all others."""
        groups: list[list[LogRow]] = []
        names: list[str | None] = []
        waiting: list[tuple[int, RawMessage]] = []
        metadata = 0
        for message in messages:
            if isinstance(message, Damage):
                groups.append([damaged_row(message)])
                names.append(None)
                continue
            rows, foreign = self._message(message)
            if rows is None:
                metadata += 1
                continue
            # A structure that is announced later may show the table of a dead letter.
            if rows and (rows[0].kind == FRAGMENT or (rows[0].kind == REJECTED and rows[0].tbl is None)):
                waiting.append((len(groups), message))
            groups.append(rows)
            names.append(foreign)
        for place, message in waiting if self._found else ():
            rows, names[place] = self._message(message)
            groups[place] = rows or []
        kinds = [group[0].kind if group else "" for group in groups]
        counts = Dispositions(
            metadata + len(groups),
            kinds.count(CHANGE),
            kinds.count(FRAGMENT),
            metadata,
            kinds.count(""),
            kinds.count(REJECTED),
        )
        rows = [row for group in groups for row in group]
        facts: NewFacts = {}
        note_foreign(facts, Counter(name for name in names if name is not None))
        note_senders(facts, self._senders)
        return Decoded(rows, counts, [*self._found, *sorted(self._used)], facts)

    def _message(self, message: RawMessage) -> tuple[list[LogRow] | None, str | None]:
        """The rows of a message, None for metadata; and its table if that is not mirrored: then it has no rows."""
        seen = _Seen()
        try:
            return self._read(message, seen), seen.foreign
        except Refusal as refusal:
            if seen.table is None and refusal.code not in _NO_TABLE:
                named = self._named_in_remains(message, seen)
                seen.table = self._tables.get(named or "")
                if named is not None and self._names.meant_by(named) is None:
                    return [], named
            row = refused_row(message.origin, message.place, refusal, message.body)
            position = self._position(seen.record, message.place)
            if position is not None:
                row = row._replace(epoch=self._settings.load, pos=position)
            if seen.table is not None:
                row = row._replace(tbl=seen.table.source, key=refusal.key, bucket=key_bucket(refusal.key))
            return [row], None
        except _StructureUnknown as unknown:
            table = None
            if unknown.table is not None:
                if self._names.meant_by(unknown.table) is None:
                    return [], unknown.table
                if unknown.table not in self._tables:
                    try:
                        self._names.refuse_other_case(unknown.table)
                    except Refusal as refusal:
                        return [refused_row(message.origin, message.place, refusal, message.body)], None
                table = self._tables[unknown.table].source
            of_key = f"{BY_KEY}{seen.may_be}" if seen.may_be and unknown.name.startswith(UNKNOWN) else ""
            fragment = LogRow(
                FRAGMENT,
                message.origin,
                message.place,
                tbl=table,
                epoch=self._settings.load,
                pos=self._position(seen.record, message.place),
                fragment_of=_identity(unknown.table or topic_of(message.origin), unknown.name + of_key),
                raw=message.body,
            )
            return [fragment], None

    def _read(self, message: RawMessage, seen: _Seen) -> list[LogRow] | None:
        body, limit = message.body, self._settings.max_message_bytes
        if body is None:
            if message.key is None:
                raise Refusal("BODY_MISSING", "the message has no body")
            return []  # for the compaction of the topic: a task writes none, and it contains no change
        if len(body) > limit:
            raise Refusal("MESSAGE_INVALID", f"{len(body)} bytes are more than {limit}")
        read = read_message(body, unframed_avro=self._settings.unframed_avro)
        topic = topic_of(message.origin)
        by_key = self._named_by_key(message.key)
        seen.may_be = None if by_key is not None or message.key is None else named_by_key(message.key)
        if isinstance(read, Metadata):
            seen.said = announced_table(read.record)
            self._announce(read_announcement(read.record, topic))
            sender = task_of(read.record)
            if sender and seen.said is not None and seen.said in self._tables:
                self._senders.add((self._tables[seen.said].source, sender))
            return None
        if isinstance(read, JsonData):
            seen.record = read.record
            refuse_other_sections(read.record.keys())
            stated = self.stated(read.record, topic)
            structure = self.follows(read, topic, stated, by_key)
        else:
            stated = self._settings.topics.get(topic)
            structure = self._writer(read, topic, stated, by_key)
            if stated in (None, structure.table) and structure.table in self._tables:
                # A message that its schema cannot read is a missing change of this table.
                seen.table = self._tables[structure.table]
                seen.record = structure.avro.read(read.datum)
                seen.table = None
                stated = self.stated(seen.record, topic)
        if stated is not None and stated != structure.table:
            what = f"the message schema is of {shown(structure.table)}, but message or topic name {shown(stated)}"
            raise Refusal("TABLE_NAME_DIFFERS", what)
        if stated is None and read.schema_id is not None:
            self._used.update(structure.used_in(topic))
        seen.table = self._tables.get(structure.table)
        if seen.table is None:
            self._names.refuse_other_case(structure.table)
        if seen.table is None or seen.record is None:
            seen.foreign = structure.table
            return []
        images, settings = table_images(structure, seen.table, self._settings.binary), self._settings
        if images.key_differs:
            self._refuse_changed_key(structure, seen.table)
        seen.table.refuse_narrower_key(self._structures.key_of(structure))
        at = MessageContext(message.origin, message.place, seen.table.source, settings.load)
        is_avro = isinstance(read, AvroData)
        rows = change(seen.record, is_avro, images, settings.mask_order, settings.sequence_digits, at)
        if is_avro and structure.sender:
            self._senders.add((seen.table.source, structure.sender))
        return rows

    def _refuse_changed_key(self, structure: Structure, table: MirroredTable) -> None:
        """Refuse changes of a table whose key no longer is the mirror's: two rows may have the same one (K-68)."""
        key = frozenset(table.key)
        if any(
            known.key_names == key and known.age < structure.age for known in self._structures.of_table(structure.table)
        ):
            raise Refusal(
                "KEY_DIFFERS",
                f"the key of the source is {shown(sorted(structure.key_names))} now, not {shown(sorted(key))}",
            )

    def _announce(self, structure: Structure) -> None:
        mapped = self._settings.topics.get(structure.topic)
        if mapped is not None and mapped != structure.table:
            raise Refusal("TABLE_NAME_DIFFERS", f"metadata of {shown(structure.table)} in the topic of {shown(mapped)}")
        if structure.table.count(".") > 1 and structure.table in self._tables:
            # Schema `a`, table `b.c` and schema `a.b`, table `c` would be equal.
            raise Refusal("METADATA_MISSING", f"the name {shown(structure.table)} has a period in schema or table")
        if self._structures.add(structure):
            self._found.append(structure.announced)

    def stated(self, record: Mapping[str, Any], topic: str) -> str | None:
        stated, mapped = stated_table(record), self._settings.topics.get(topic)
        if stated is not None and mapped is not None and stated != mapped:
            raise Refusal("TABLE_NAME_DIFFERS", f"a change of {shown(stated)} in the topic of {shown(mapped)}")
        return stated or mapped

    def follows(self, read: JsonData, topic: str, stated: str | None, by_key: str | None) -> Structure:
        if read.schema_id is not None:
            table = stated or by_key
            found = self._structures.of_id(topic, read.schema_id, table, self._tables)
            if found is None:
                found = fitting(self._structures.by_hand(table), read.record, self._settings.mask_order)
            if found is None:
                raise _StructureUnknown(read.schema_id, stated)
            return found
        columns = read.record.get("data") or read.record.get("beforeData")
        if isinstance(columns, Mapping) and "schema" in columns and "table" in columns:
            by_key = None  # these are columns of the table, and may be its key
        table, name = self._whose(stated, by_key), shape(read.record)
        if table is None:
            raise _StructureUnknown(UNKNOWN + name, None)
        found = fitting(self._structures.of_table(table), read.record, self._settings.mask_order)
        if found is None:
            raise _StructureUnknown(name, table)
        return found

    def _writer(self, read: AvroData, topic: str, stated: str | None, by_key: str | None) -> Structure:
        table = stated or by_key
        if read.schema_id is not None:
            found = self._structures.of_id(topic, read.schema_id, table, self._tables)
            if found is None:
                able = _readers(self._structures.by_hand(table), read.datum)
                found = able[0] if len(able) == 1 else None
            if found is None:
                raise _StructureUnknown(read.schema_id, stated)
            if found.table:
                return found
            if table is None:  # a registry's schema whose name contains no table
                raise _StructureUnknown(UNKNOWN + read.schema_id, None)
            return derived_structure("", read.schema_id, table, found.version, found.avro.text)
        if read.schema is not None:
            whose = data_schema(read.schema).table or self._whose(stated, by_key)
            if whose is None:
                raise Refusal("METADATA_MISSING", "neither the namespace of the schema nor the topic names the table")
            return derived_structure(topic, "", whose, 0, read.schema)
        whose = self._whose(stated, by_key)
        known = () if whose is None else self._structures.of_table(whose)
        if not known:
            raise _StructureUnknown("unframed" if whose else f"{UNKNOWN}unframed", whose)
        able = _readers(known, read.datum)
        if len(able) != 1:
            raise Refusal("TABLE_UNNAMED", f"{len(able)} of {len(known)} known message schemas fit the Avro record")
        return able[0]

    def _whose(self, stated: str | None, by_key: str | None) -> str | None:
        if stated is not None and by_key not in (None, stated):
            what = f"the message key names {shown(by_key)}, but message or topic name {shown(stated)}"
            raise Refusal("TABLE_NAME_DIFFERS", what)
        return stated or by_key

    def _named_by_key(self, key: bytes | None) -> str | None:
        """The mirrored or announced table that a key names; any other text may be the key of a row (K-60)."""
        named = None if key is None else table_of_key(key)
        if named is None or (self._names.meant_by(named) is None and not self._structures.of_table(named)):
            return None
        return named

    def _named_in_remains(self, message: RawMessage, seen: _Seen) -> str | None:
        """The table of an unreadable message, if all its readable parts name the same one (K-63)."""
        topic, named = topic_of(message.origin), {seen.said, self._settings.topics.get(topic_of(message.origin))}
        with suppress(Refusal):
            named.add(stated_table(seen.record or {}))
        schema_id = schema_id_in(message.body or b"") or ""
        unfit = self._structures.unfit.get(schema_id)
        if unfit is not None:
            named.add(unfit.table)
        else:
            with suppress(Refusal):
                found = self._structures.of_id(topic, schema_id, None, self._tables) if schema_id else None
                named.add(found.table or None if found else None)
        named.add(self._named_by_key(message.key))
        names = named - {None}
        return names.pop() if len(names) == 1 else None

    def _position(self, record: Mapping[str, Any] | None, place: int) -> str | None:
        try:
            headers = read_headers(record or {}, self._settings.sequence_digits)
        except Refusal:
            return None
        return headers.position(place, 0 if headers.operation == "DELETE" else 1)


def _identity(where: str, name: str) -> str:
    """The identity shared by messages that wait for one structure, shortened to the ledger's limit."""
    if len(name) > _LONGEST_NAME:
        name = f"{name[: _LONGEST_NAME - 17]}~{_digest(name)}"
    if len(where) + len(name) > _LONGEST:
        where = f"{where[: _LONGEST - len(name) - 17]}~{_digest(where)}"
    return f"{where}:schema:{name}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _readers(known: Sequence[Structure], datum: bytes) -> list[Structure]:
    """The distinct structures whose writer schema reads *datum*."""
    able = {}
    for one in known:
        with suppress(Refusal):
            one.avro.read(datum)
            able[one.announced.document] = one
    return list(able.values())
