"""Decodes messages of Qlik and Talend tasks into rows of the change log.

A metadata message announces the structure of a table, before or after its data messages (K-05, K-06). A message whose
structure is unknown waits as a fragment. Public source: Qlik Help, *Metadata and data messages*, *The Replicate
envelope*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from spark_jobs.changelog.schema import LogRow, RawMessage
from spark_jobs.sources.contract.decoded import (
    Damage,
    Decoded,
    Decoder,
    MirroredTable,
    Refusal,
    SourceSchema,
    Unjoinable,
    Waiting,
    refused_row,
)
from spark_jobs.sources.contract.table_names import TableNames
from spark_jobs.sources.qlik.message.images import ImagesMade, TableImages
from spark_jobs.sources.qlik.message.reading import BY_KEY, UNTOLD, MessageReader, QlikMessageSettings
from spark_jobs.sources.qlik.message.registry import Structures
from spark_jobs.sources.qlik.message.structures import Structure
from spark_jobs.sources.qlik.message.tables import key_that_tells

DEFAULT_SETTINGS = QlikMessageSettings()


class QlikMessageDecoder(Decoder):
    """Decodes messages of Qlik tasks by known structures, announced earlier or given in the mirror file (K-06)."""

    def __init__(
        self,
        tables: Mapping[str, MirroredTable],
        schemas: Sequence[SourceSchema] = (),
        settings: QlikMessageSettings = DEFAULT_SETTINGS,
    ) -> None:
        self.settings = settings
        self._tables = dict(tables)
        self._names = TableNames(tables)
        self._known = Structures(schemas)
        self._images = ImagesMade(settings.binary)

    def decode(self, messages: Iterable[RawMessage | Damage]) -> Decoded:
        return MessageReader(self._tables, self._names, self._known.copy(), self._images, self.settings).decode(
            messages
        )

    def followed(self, topic: str, schema_id: str | None) -> Structure | None:
        """The structure of a message with this id that names no table; None if only reading it shows that."""
        return MessageReader(self._tables, self._names, self._known, self._images, self.settings).followed(
            topic, schema_id
        )

    def images(self, structure: Structure) -> TableImages | None:
        """How rows of a structure are written; None if its table is not mirrored."""
        table = self._tables.get(structure.table)
        if table is None:
            self._names.refuse_other_case(structure.table)
            return None
        table.refuse_narrower_key(self._known.key_of(structure))
        return self._images.of(structure, table)

    def join(self, pieces: Sequence[LogRow]) -> Decoded | Waiting | Unjoinable:
        """The messages that waited for one structure, if it is known now; each may be a dead letter among the rows."""
        ordered = sorted(pieces, key=lambda piece: (piece.origin, piece.place))
        decoded = self.decode(map(self._waited, ordered))
        return Waiting() if decoded.counts.fragments else decoded

    def again(self, origin: str, place: int, body: bytes | None, source: str | None) -> RawMessage:
        """A logged message as it was read. The log stores no message key, so one with the logged table replaces it."""
        name = next((name for name, table in self._tables.items() if table.source == source), None)
        return RawMessage(origin, place, body, None if name is None else key_that_tells(name))

    def _waited(self, piece: LogRow) -> RawMessage:
        _, by_key, name = (piece.fragment_of or "").partition(BY_KEY)
        if by_key and piece.tbl is None:
            return RawMessage(piece.origin, piece.place, piece.raw, key_that_tells(name))
        return self.again(piece.origin, piece.place, piece.raw, piece.tbl)

    def incomplete(self, pieces: Sequence[LogRow], reason: str) -> list[LogRow]:
        """One dead letter for each message whose structure was not announced in time."""
        rows = []
        for piece in sorted(pieces, key=lambda piece: (piece.origin, piece.place)):
            if piece.tbl is None and f":schema:{UNTOLD}" in (piece.fragment_of or ""):
                refusal = Refusal("TABLE_UNTOLD", f"the table of the change is unknown: {reason}")
            else:
                refusal = Refusal("METADATA_MISSING", f"nothing announced the structure {piece.fragment_of}: {reason}")
            row = refused_row(piece.origin, piece.place, refusal, piece.raw)
            rows.append(row._replace(tbl=piece.tbl, epoch=piece.epoch, pos=piece.pos))
        return rows
