"""One reading of messages: what each of them is, which table and structure it belongs to, and its disposition.

Public source: Qlik Help, *Metadata and data messages*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from spark_jobs.change_log_schema import CHANGE, FRAGMENT, REJECTED, LogRow, RawMessage
from spark_jobs.sources.ces_changes import bucket
from spark_jobs.sources.decoded import (
    Damage,
    Decoded,
    Dispositions,
    MirroredTable,
    Notices,
    Refusal,
    SourceSchema,
    damaged_row,
    shown,
)
from spark_jobs.sources.qlik_masks import MaskOrder
from spark_jobs.sources.qlik_message_avro import data_schema
from spark_jobs.sources.qlik_message_changes import Place, change
from spark_jobs.sources.qlik_message_envelope import AvroData, JsonData, Metadata, read_message
from spark_jobs.sources.qlik_message_headers import read_headers, stated_table
from spark_jobs.sources.qlik_message_images import ImagesMade
from spark_jobs.sources.qlik_message_registry import Structures, fitting, shape
from spark_jobs.sources.qlik_message_structures import Structure, derived_structure, read_announcement
from spark_jobs.sources.qlik_positions import SEQUENCE_DIGITS
from spark_jobs.sources.sql_server_types import BinaryText
from spark_jobs.sources.table_names import TableNames


class QlikMessageSettings(NamedTuple):
    """How messages are read where the format leaves a choice.

    Args:
        load: name of the load whose messages these are: the epoch of their positions (G-01).
        mask_order: how the bytes of masks are ordered (T-24).
        topics: the table of a topic that holds only one, ``schema.table``; its messages need not name it (K-15).
        binary: how JSON spells binary values; Avro has bytes.
        sequence_digits: length of ``changeSequence``; another length has no place in the order (T-10).
        unframed_avro: bytes in no known form are bare Avro records, read by the only schema of their topic that fits.
        max_message_bytes: a longer message is a dead letter.
    """

    load: str = "1"
    mask_order: MaskOrder = "auto"
    topics: Mapping[str, str] = {}
    binary: BinaryText = "hex"
    sequence_digits: int = SEQUENCE_DIGITS
    unframed_avro: bool = False
    max_message_bytes: int = 16 * 2**20


class _StructureUnknown(Exception):
    """Nothing has announced the structure of a message yet: its name, and the table as far as that is known."""

    def __init__(self, name: str, table: str | None) -> None:
        super().__init__(name, table)
        self.name, self.table = name, table


class _Seen:
    """What a message told before it was given up: its members, and the mirrored table that it surely belongs to."""

    record: Mapping[str, Any] | None = None
    table: MirroredTable | None = None


class Reading:
    """One reading with the structures that it knows and finds.

    Args:
        tables: the mirrored tables by their name at the source.
        structures: what is known; found ones are added to it.
        images: what was made of structures before.
        settings: how the messages are read.
    """

    def __init__(
        self,
        tables: Mapping[str, MirroredTable],
        names: TableNames,
        structures: Structures,
        images: ImagesMade,
        settings: QlikMessageSettings,
    ) -> None:
        self._tables, self._names, self._structures = tables, names, structures
        self._images, self._settings = images, settings
        self._found: list[SourceSchema] = []
        self._mismatches = 0

    def decode(self, messages: Iterable[RawMessage | Damage]) -> Decoded:
        """Decode messages; what waits for metadata is tried again when all of them were seen."""
        groups: list[list[LogRow]] = []
        waiting: list[tuple[int, RawMessage]] = []
        metadata = 0
        for message in messages:
            if isinstance(message, Damage):
                groups.append([damaged_row(message)])
                continue
            rows = self._message(message)
            if rows is None:
                metadata += 1
                continue
            if rows and rows[0].kind == FRAGMENT:
                waiting.append((len(groups), message))
            groups.append(rows)
        for place, message in waiting if self._found else ():
            groups[place] = self._message(message) or []
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
        return Decoded(rows, counts, Notices(key_mismatch=self._mismatches), self._found)

    def followed(self, topic: str, schema_id: str | None) -> Structure | None:
        """The structure that a message with this id follows which names no table; None where it is not known."""
        try:
            stated = self._stated({}, topic)
            found = self._follows(JsonData(schema_id, {}), topic, stated)
        except (Refusal, _StructureUnknown):
            return None
        return found if stated in (None, found.table) else None

    def _message(self, message: RawMessage) -> list[LogRow] | None:
        """The rows of a message: none where its table is not mirrored, None for metadata."""
        seen = _Seen()
        try:
            return self._read(message, seen)
        except Refusal as refusal:
            row = rejected(message.origin, message.place, refusal, message.body)
            position = self._position(seen.record, message.place)
            if position is not None:
                row = row._replace(epoch=self._settings.load, pos=position)
            if seen.table is not None:
                row = row._replace(tbl=seen.table.source, key=refusal.key, bucket=bucket(refusal.key))
            return [row]
        except _StructureUnknown as unknown:
            if unknown.table is not None and self._names.meant_by(unknown.table) is None:
                return []
            return [
                LogRow(
                    FRAGMENT,
                    message.origin,
                    message.place,
                    tbl=unknown.table,
                    epoch=self._settings.load,
                    pos=self._position(seen.record, message.place),
                    fragment_of=f"{unknown.table or topic_of(message.origin)}:schema:{unknown.name}",
                    raw=message.body,
                )
            ]

    def _read(self, message: RawMessage, seen: _Seen) -> list[LogRow] | None:
        body, limit = message.body, self._settings.max_message_bytes
        if body is None:
            raise Refusal("BODY_MISSING", "the message has no body")
        if len(body) > limit:
            raise Refusal("TOO_LARGE", f"{len(body)} bytes are more than {limit}")
        read = read_message(body, unframed_avro=self._settings.unframed_avro)
        topic = topic_of(message.origin)
        if isinstance(read, Metadata):
            self._announce(read_announcement(read.record, topic))
            return None
        if isinstance(read, JsonData):
            seen.record = read.record
            stated = self._stated(read.record, topic)
            structure = self._follows(read, topic, stated)
        else:
            stated = self._settings.topics.get(topic)
            structure = self._writer(read, topic, stated)
            if stated in (None, structure.table) and structure.table in self._tables:
                # A message that cannot be read by its schema is a change of this table that is missing.
                seen.table = self._tables[structure.table]
                seen.record = structure.avro.read(read.datum)
                seen.table = None
                stated = self._stated(seen.record, topic)
        if stated is not None and stated != structure.table:
            raise Refusal("WRONG_TOPIC", f"a change of {shown(structure.table)} where {shown(stated)} was said")
        seen.table = self._tables.get(structure.table)
        if seen.table is None:
            self._names.refuse_other_case(structure.table)
        if seen.table is None or seen.record is None:
            return []
        images, settings = self._images.of(structure, seen.table), self._settings
        at = Place(message.origin, message.place, seen.table.source, settings.load)
        is_avro = isinstance(read, AvroData)
        rows = change(seen.record, is_avro, images, settings.mask_order, settings.sequence_digits, at)
        self._mismatches += images.key_differs
        return rows

    def _announce(self, structure: Structure) -> None:
        mapped = self._settings.topics.get(structure.topic)
        if mapped is not None and mapped != structure.table:
            raise Refusal("WRONG_TOPIC", f"metadata of {shown(structure.table)} in the topic of {shown(mapped)}")
        if structure.table.count(".") > 1 and structure.table in self._tables:
            # Schema `a`, table `b.c` and schema `a.b`, table `c` would be one.
            raise Refusal("METADATA_INVALID", f"the name {shown(structure.table)} has a period in schema or table")
        if self._structures.add(structure):
            self._found.append(structure.announced)

    def _stated(self, record: Mapping[str, Any], topic: str) -> str | None:
        """The table as the message itself or the setting for its topic says it (K-15)."""
        stated, mapped = stated_table(record), self._settings.topics.get(topic)
        if stated is not None and mapped is not None and stated != mapped:
            raise Refusal("WRONG_TOPIC", f"a change of {shown(stated)} in the topic of {shown(mapped)}")
        return stated or mapped

    def _follows(self, read: JsonData, topic: str, stated: str | None) -> Structure:
        """The structure that a JSON message follows (K-11, K-15)."""
        table = stated or self._named_like(topic)
        if read.schema_id is not None:
            name, found = read.schema_id, self._structures.of_id(topic, read.schema_id, table, self._tables)
        else:
            known = self._candidates(topic, table)
            name, found = shape(read.record), fitting(known, read.record, self._settings.mask_order)
        if found is None:
            raise _StructureUnknown(name, table)
        return found

    def _writer(self, read: AvroData, topic: str, stated: str | None) -> Structure:
        """The structure whose schema wrote an Avro message (K-03, K-04)."""
        table = stated or self._named_like(topic)
        if read.schema_id is not None:
            found = self._structures.of_id(topic, read.schema_id, table, self._tables)
            if found is None:
                raise _StructureUnknown(read.schema_id, table)
            return found
        if read.schema is not None:
            table = data_schema(read.schema).table or table
            if table is None:
                raise Refusal(
                    "AVRO_SCHEMA_INVALID", "neither the namespace of the schema nor the topic tells the table"
                )
            return derived_structure(topic, "", table, 0, read.schema)
        known = self._candidates(topic, table)
        if not known:
            raise _StructureUnknown("unframed", table)
        able = {structure.announced.document: structure for structure in known if _reads(structure, read.datum)}
        if len(able) != 1:
            raise Refusal("SCHEMA_AMBIGUOUS", f"{len(able)} of {len(known)} known schemas read the bare Avro record")
        return next(iter(able.values()))

    def _named_like(self, topic: str) -> str | None:
        """The mirrored table that has the name of a topic."""
        return topic if topic in self._tables else None

    def _candidates(self, topic: str, table: str | None) -> Sequence[Structure]:
        """What a message without id may follow; one that tells no table, only the one table announced in its topic."""
        if table is not None:
            return self._structures.of_table(table)
        known = self._structures.of_topic(topic)
        return known if len({structure.table for structure in known}) == 1 else ()

    def _position(self, record: Mapping[str, Any] | None, place: int) -> str | None:
        try:
            headers = read_headers(record or {}, self._settings.sequence_digits)
        except Refusal:
            return None
        return headers.position(place, 0 if headers.operation == "DELETE" else 1)


def rejected(origin: str, place: int, refusal: Refusal, raw: bytes | None) -> LogRow:
    """The dead letter of a message, homeless as yet."""
    return LogRow(REJECTED, origin, place, code=refusal.code, reason=refusal.reason, raw=raw)


@lru_cache(maxsize=1024)
def topic_of(origin: str) -> str:
    """The topic of ``topic/partition``; empty where the origin is a file, which tells none."""
    topic, _, partition = origin.rpartition("/")
    return topic if partition.isdecimal() else ""


def _reads(structure: Structure, datum: bytes) -> bool:
    try:
        structure.avro.read(datum)
    except Refusal:
        return False
    return True
