"""The fast path of Qlik messages: JSON is read by patterns, Avro by the compiled reader of its schema.

The fast path reads a message only if its structure is known, its form is the documented one, its masks have one reading
and leave no column out, and both row images have the same key. The decoder reads all other messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter

import numpy as np
import pyarrow as pa

from open_mirroring.facts.foreign_tables import note_foreign
from open_mirroring.facts.kind import NewFacts
from open_mirroring.facts.senders import Sender, note_senders
from spark_jobs.changelog.origins import topic_of
from spark_jobs.changelog.schema import RawMessage
from spark_jobs.sources.contract.decoded import MirroredTable, Refusal, SourceSchema
from spark_jobs.sources.contract.fast_decoder import (
    KnownColumns,
    RowFields,
    Taken,
    rows_table,
)
from spark_jobs.sources.contract.message_blocks import Block, MessageBlock, are_text
from spark_jobs.sources.qlik.message.avro_rows import Spot, record_rows
from spark_jobs.sources.qlik.message.decoder import QlikMessageDecoder, QlikMessageSettings
from spark_jobs.sources.qlik.message.envelope import registry_id, table_of_key
from spark_jobs.sources.qlik.message.followed import Followed
from spark_jobs.sources.qlik.message.patterns import HEADS, IS_DATA, JSON_HEAD, is_record

_MOST_IDS = 1000
"""Ids cached per topic: a task has few, and a hostile stream must not exhaust the memory."""


class FastQlikMessages:
    """Reads Qlik messages from blocks of messages.

    It remembers the structure of each schema id that it has seen, so use one instance for many blocks.
    """

    def __init__(
        self, tables: Mapping[str, MirroredTable], schemas: Sequence[SourceSchema], settings: QlikMessageSettings
    ) -> None:
        self._tables, self._settings, self._schemas = tables, settings, list(schemas)
        self._columns: list[KnownColumns] = []
        self.learn(())

    def learn(self, schemas: Iterable[SourceSchema]) -> None:
        self._schemas += sorted(schemas)
        self._decoder = QlikMessageDecoder(self._tables, self._schemas, self._settings)
        self._topics: dict[str, dict[bytes | None, Followed | None]] = {}

    def take(self, block: Block) -> Taken:
        rows: list[RowFields] = []
        ignored: list[int] = []
        foreign = Counter[str]()
        records: dict[Followed, list[Spot]] = {}
        used = set[Followed]()
        topic, content, limit = topic_of(block.origin), block.content, self._settings.max_message_bytes
        # In a topic of Avro messages JSON is rare and may be left to the decoder.
        is_text = are_text(block).tolist() if content.startswith(b"{") else [False] * len(block.starts)
        known = self._topics.setdefault(topic, {})
        spots = zip(block.places.tolist(), block.starts.tolist(), block.ends.tolist(), strict=True)
        announces = False
        for number, (place, start, end) in enumerate(spots):
            if start == end:
                continue
            pattern = HEADS.get(content[start])
            head = pattern and pattern.match(content, start, end)
            if head is None:
                if not IS_DATA.match(content, start, end):
                    announces = True
                    break
                continue
            schema_id, at = head["id"], head.end()
            if schema_id not in known and len(known) < _MOST_IDS:
                known[schema_id] = self._follow(topic, schema_id)
            followed = known.get(schema_id)
            if followed is None or end - start > limit:
                continue
            if schema_id is None and not _key_agrees(block, number, followed):
                continue
            if pattern is not JSON_HEAD:
                if not is_record(head, end - at):
                    continue
                if followed.is_mirrored:
                    records.setdefault(followed, []).append((number, place, at, end))
                    continue
            elif not is_text[number]:
                continue
            elif followed.is_mirrored:
                row = followed.json_row(number, place, content, at, end)
                if row is not None:
                    rows.append(row)
                    used.add(followed)
                continue
            elif not followed.is_json(content, at, end):
                continue
            ignored.append(number)
            foreign[followed.structure.table] += 1
            used.add(followed)
        senders = set[Sender]()
        for followed, of_one in records.items():
            made = record_rows(followed, content, of_one)
            rows += made
            if made:
                used.add(followed)
                if followed.structure.sender:
                    senders.add((self._tables[followed.structure.table].source, followed.structure.sender))
        rows.sort(key=itemgetter(0))
        load = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(rows), np.int32)), [self._settings.load])
        taken = np.array([row[0] for row in rows] + ignored, np.int64)
        is_mapped = topic in self._settings.topics
        notes = [] if is_mapped else sorted(note for one in used for note in one.structure.used_in(topic))
        table = rows_table(block, rows, self._columns, load)
        facts: NewFacts = {}
        note_foreign(facts, foreign)
        note_senders(facts, senders)
        return Taken(table, taken, announces, schemas=notes, facts=facts)

    def _follow(self, topic: str, schema_id: bytes | None) -> Followed | None:
        name = None if schema_id is None else schema_id.decode("latin-1")
        if schema_id is not None and schema_id.startswith(b"\x00"):
            if self._settings.unframed_avro:
                return None
            name = registry_id(int.from_bytes(schema_id[1:], "big"))
        structure = self._decoder.followed(topic, name)
        if structure is None:
            return None
        number = -1
        try:
            images = self._decoder.images(structure)
            cols = None if images is None else images.plain_columns
        except Refusal:
            return None
        if images is not None:
            if cols is None or images.key_differs or not images.key_converters:
                return None
            number = len(self._columns)
            self._columns.append(KnownColumns(images.source, cols))
        return Followed(structure, number, images, self._settings.mask_order, self._settings.sequence_digits)


def _key_agrees(block: Block, number: int, followed: Followed) -> bool:
    """Whether a message that names no structure has no key that may name another table (K-60)."""
    if not isinstance(block, MessageBlock):
        return True
    message = block.each[number]
    key = message.key if isinstance(message, RawMessage) else None
    return key is None or table_of_key(key) in (None, followed.structure.table)
