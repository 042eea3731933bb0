"""Which decoder reads what: the one place that knows all formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from spark_jobs.change_log_schema import REJECTED, LogRow
from spark_jobs.sources import ces_fragments
from spark_jobs.sources.ces import CesDecoder
from spark_jobs.sources.decoded import (
    Decoded,
    Decoder,
    Dispositions,
    MirroredTable,
    Notices,
    Refused,
    SourceSchema,
    Waiting,
)


class Reading(NamedTuple):
    """How the messages of a mirror are decoded: plain values, for a task carries them to its worker."""

    format: str

    @property
    def has_loads(self) -> bool:
        """Whether rows of a full load may stand among the changes (K-18)."""
        return self.format == "qlik-message"


def decoder_of(reading: Reading, tables: Mapping[str, MirroredTable], schemas: Sequence[SourceSchema] = ()) -> Decoder:
    """The decoder of a mirror's messages, by the tables' names in messages and the structures known so far."""
    return _Ces(tables)


class _Ces(CesDecoder):
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
        return Decoded(outcome.rows, counts, Notices())

    def incomplete(self, pieces: Sequence[LogRow], reason: str) -> list[LogRow]:
        """As :meth:`Decoder.incomplete`."""
        return [ces_fragments.incomplete(pieces, reason)]
