"""Which decoder reads what: the one place that knows all formats."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from spark_jobs.change_log_schema import CHANGE, REJECTED, LogRow, RawMessage
from spark_jobs.sources import ces_fragments
from spark_jobs.sources.ces import CesDecoder, CesSettings
from spark_jobs.sources.ces_ordinary import OrdinaryCes
from spark_jobs.sources.decoded import (
    Decoded,
    Decoder,
    Dispositions,
    MirroredTable,
    Refused,
    SourceSchema,
    ToldHalf,
    Waiting,
    lists_of,
)
from spark_jobs.sources.ordinary_rows import OrdinaryReader
from spark_jobs.sources.qlik_change_table import ChangeTableSettings, QlikChangeTableDecoder
from spark_jobs.sources.qlik_change_table_ordinary import OrdinaryChangeRows
from spark_jobs.sources.qlik_change_table_rows import read_row
from spark_jobs.sources.qlik_masks import MaskOrder
from spark_jobs.sources.qlik_message import QlikMessageDecoder, QlikMessageSettings
from spark_jobs.sources.qlik_message_ordinary import OrdinaryQlik
from spark_jobs.sources.sql_server_types import BinaryText


class Reading(NamedTuple):
    """How the messages of a mirror are decoded: plain values, for a task carries them to its worker.

    Settings have the meaning that the mirror file gives them; *topics* is the table of each topic that has but one;
    *partitions* how many partitions carry changes where a complete position is kept, else 0.
    """

    format: str
    database: str | None = None
    binary: BinaryText = "hex"
    load: str = "1"
    mask_order: MaskOrder = "auto"
    header_prefix: str = "header__"
    sparse_updates: bool = False
    before_images: bool | None = None
    sequence_digits: int = 35
    topics: tuple[tuple[str, str], ...] = ()
    partitions: int = 0
    unframed_avro: bool = False

    @property
    def has_loads(self) -> bool:
        """Whether rows of a full load may stand among the changes (K-18)."""
        return self.format == "qlik-message"

    @property
    def joins_pieces(self) -> bool:
        """Whether messages wait for the other pieces of one change; else they wait for what describes them (K-05)."""
        return self.format != "qlik-message"


def decoder_of(reading: Reading, tables: Mapping[str, MirroredTable], schemas: Sequence[SourceSchema] = ()) -> Decoder:
    """The decoder of a mirror's messages, by the tables' names in messages and the structures known so far."""
    if reading.format == "qlik-change-table":
        return _change_tables(reading, tables)
    if reading.format == "qlik-message":
        return _QlikMessages(tables, schemas, _qlik_settings(reading))
    return _Ces(tables, _ces_settings(reading))


def ordinary_of(
    reading: Reading, tables: Mapping[str, MirroredTable], schemas: Sequence[SourceSchema] = ()
) -> OrdinaryReader | None:
    """What takes ordinary messages from blocks, much faster than the decoder; None where nothing does."""
    if reading.format == "sqlserver-ces":
        return OrdinaryCes(CesDecoder(tables, _ces_settings(reading)))
    if reading.format == "qlik-message":
        return OrdinaryQlik(tables, schemas, _qlik_settings(reading))
    return None


def _ces_settings(reading: Reading) -> CesSettings:
    return CesSettings(database=reading.database, binary=reading.binary)


def _qlik_settings(reading: Reading) -> QlikMessageSettings:
    return QlikMessageSettings(
        reading.load,
        reading.mask_order,
        dict(reading.topics),
        reading.binary,
        reading.sequence_digits,
        reading.unframed_avro,
    )


def ordinary_rows_of(reading: Reading, tables: Mapping[str, MirroredTable]) -> OrdinaryChangeRows:
    """What takes ordinary rows of change tables from blocks of columns, much faster than their decoder."""
    return OrdinaryChangeRows(_change_tables(reading, tables))


def _change_tables(reading: Reading, tables: Mapping[str, MirroredTable]) -> QlikChangeTableDecoder:
    settings = ChangeTableSettings(
        reading.load, reading.header_prefix, reading.mask_order, reading.sparse_updates, reading.before_images
    )
    return QlikChangeTableDecoder(tables, settings)


def message_of_letter(decoder: Decoder, origin: str, place: int, raw: bytes, source: str | None) -> Any:
    """The message that a dead letter of the log holds, as the format's decoder takes it; *source* is its table."""
    if isinstance(decoder, QlikChangeTableDecoder):
        return read_row(origin, place, raw)
    if isinstance(decoder, QlikMessageDecoder):
        return decoder.again(origin, place, raw, source)
    return RawMessage(origin, place, raw)


class _Anywhere:
    """Messages that may be cut anywhere, and say all that they say at once."""

    def cut(self, messages: Iterable[Any], size: int) -> Iterator[list[Any]]:
        """As :meth:`Decoder.cut`."""
        return lists_of(messages, size)

    def belated(self, pieces: Sequence[LogRow], logged: Collection[ToldHalf]) -> list[LogRow]:
        """As :meth:`Decoder.belated`: nothing."""
        return []


class _QlikMessages(_Anywhere, QlikMessageDecoder):
    """Messages of Qlik tasks."""


class _Ces(_Anywhere, CesDecoder):
    """Change events with the joining of their pieces."""

    def join(self, pieces: Sequence[LogRow]) -> Decoded | Waiting | Refused:
        """As :meth:`Decoder.join`."""
        outcome = ces_fragments.join(pieces, self)
        if isinstance(outcome, ces_fragments.Waiting):
            return Waiting()
        if isinstance(outcome, ces_fragments.Refused):
            return Refused(outcome.row)
        count = len(pieces)
        rejected = any(row.kind == REJECTED for row in outcome.rows)
        counts = Dispositions(count, rejected=count) if rejected else Dispositions(count, changes=count)
        foreign = {outcome.foreign: count} if outcome.foreign else {}
        senders = self.unchosen({(row.tbl or "", outcome.sender) for row in outcome.rows if row.kind == CHANGE})
        return Decoded(outcome.rows, counts, outcome.notices, foreign=foreign, senders=senders)

    def incomplete(self, pieces: Sequence[LogRow], reason: str) -> list[LogRow]:
        """As :meth:`Decoder.incomplete`."""
        return ces_fragments.incomplete(pieces, reason, self)
