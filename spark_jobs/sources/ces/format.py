"""Change event streaming as a format: its decoders, and how pieces of a split event are joined."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from open_mirroring.config import Mirror
from spark_jobs.changelog.schema import CHANGE, REJECTED, LogRow, RawMessage
from spark_jobs.sources.ces import announced, fragments
from spark_jobs.sources.ces.decoder import DEFAULT_SETTINGS, CesDecoder, CesSettings
from spark_jobs.sources.ces.fast_path import FastCes
from spark_jobs.sources.contract.announced import Announced
from spark_jobs.sources.contract.decoded import (
    Damage,
    Decoded,
    Dispositions,
    IndependentMessages,
    MirroredTable,
    Refused,
    SourceSchema,
    Waiting,
)
from spark_jobs.sources.contract.source import Format


@dataclass(frozen=True)
class CesFormat(Format):
    """Change events of SQL Server and Azure SQL."""

    renames_columns: ClassVar[bool] = False
    """It cannot, while a table is streamed (C-74)."""
    settings: CesSettings = DEFAULT_SETTINGS
    partitions: int = 0

    @classmethod
    def of(cls, mirror: Mirror) -> CesFormat:
        """The format as a mirror file chooses it."""
        source = mirror.source
        settings = CesSettings(database=source.database, binary=source.binary or "hex")
        return cls(settings, source.ordered_partitions if mirror.consistency == "transaction" else 0)

    def decoder(self, tables: Mapping[str, MirroredTable], schemas: Sequence[SourceSchema] = ()) -> JoiningCesDecoder:
        """As :meth:`Format.decoder`."""
        return JoiningCesDecoder(tables, self.settings)

    def announced(self, messages: Iterable[RawMessage | Damage]) -> Iterator[Announced]:
        """As :meth:`Format.announced`."""
        return announced.announced(messages, self.settings)

    def fast_decoder(self, tables: Mapping[str, MirroredTable], schemas: Sequence[SourceSchema] = ()) -> FastCes:
        """As :meth:`Format.fast_decoder`."""
        return FastCes(CesDecoder(tables, self.settings))


class JoiningCesDecoder(IndependentMessages, CesDecoder):
    """Decodes change events, and joins those that the source has split."""

    def join(self, pieces: Sequence[LogRow]) -> Decoded | Waiting | Refused:
        """As :meth:`Decoder.join`."""
        outcome = fragments.join(pieces, self)
        if not isinstance(outcome, fragments.Joined):
            return outcome
        count = len(pieces)
        rejected = any(row.kind == REJECTED for row in outcome.rows)
        counts = Dispositions(count, rejected=count) if rejected else Dispositions(count, changes=count)
        foreign = {outcome.foreign: count} if outcome.foreign else {}
        senders = self.unchosen({(row.tbl or "", outcome.sender) for row in outcome.rows if row.kind == CHANGE})
        return Decoded(outcome.rows, counts, outcome.notices, foreign=foreign, senders=senders)

    def again(self, origin: str, place: int, body: bytes, source: str | None) -> RawMessage:
        """As :meth:`Decoder.again`."""
        return RawMessage(origin, place, body)

    def incomplete(self, pieces: Sequence[LogRow], reason: str) -> list[LogRow]:
        """As :meth:`Decoder.incomplete`."""
        return fragments.incomplete(pieces, reason, self)
