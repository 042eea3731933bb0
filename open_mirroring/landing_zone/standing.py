"""The state of a table as the footer of a data file contains it, so that a lost ledger can be rebuilt."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Standing(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The state of a table when this data file was staged.

    Attributes:
        published_position: the target had the changes of earlier batches up to here; None: all of them.
        position_from: the publication contains the changes above this position; None: nothing was held back.
        position_to: the publication contains the changes up to this position.
        waiting_rows: changes of earlier batches that waited for the end of their transactions.
        stream_from: changes below this position are in the initial load; a position in the stream *stream_epoch*.
        log_from: batches up to this one do not count since the last reset.
        newest_load: the source's full load with which the table begins, as JSON (G-125); None: none.
        loaded_columns: how many of the first columns came with the initial load; None: there was none.
        hand_over_batch: the changes of later batches are published over the initial load.
        untyped: number of changes whose values do not fit their types; only the ledger lists them.
        former: number of columns that earlier rows have under another name (G-66); only the ledger lists them.
        epochs: the number of each stream in the order of the table's streams, by stream name.
        decided: operators' decisions about columns, each as column, position and new name.
        unverified: notes on what is not verified, each as kind, column and position.
        renamed: names of the file's columns by their names at the source, where they differ (G-120).
        salted: the check value of the salt by column name at the source (G-121).
        where: the condition that its rows fulfil (G-193).
    """

    published_position: str | None = None
    position_from: str | None = None
    position_to: str | None = None
    waiting_rows: int = 0
    stream_from: str | None = None
    stream_epoch: int = 0
    log_from: int = 0
    newest_load: str | None = None
    loaded_columns: int | None = None
    hand_over_batch: int = 0
    untyped: int = 0
    former: int = 0
    epochs: Mapping[str, int] = msgspec.field(default_factory=dict)
    decided: tuple[tuple[str, str, str | None], ...] = ()
    unverified: tuple[tuple[str, str, str], ...] = ()
    renamed: Mapping[str, str] = msgspec.field(default_factory=dict)
    salted: Mapping[str, str] = msgspec.field(default_factory=dict)
    where: str = ""

    def to_json(self) -> str:
        """The state as JSON for the footer; default values are left out."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def of(cls, text: str) -> Standing | None:
        """Parse the JSON of :meth:`to_json`; None if it is empty or from an unknown version."""
        try:
            return msgspec.json.decode(text, type=cls) if text else None
        except msgspec.ValidationError:
            return None
