"""The state of a table as stored in the footer of a data file, from which a lost ledger can be rebuilt."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Standing(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The state of a table when this data file was staged.

    A stream is one enabling of change event streaming or one full load by a Qlik task. The publication is the one to
    which the data file belongs.

    Attributes:
        published_position: the target had the changes of earlier batches up to this position; None: all changes of
            earlier batches.
        position_from: the publication contains changes above this position; None: no earlier change was held back.
        position_to: the publication contains changes up to this position.
        waiting_rows: number of changes of earlier batches that waited for the end of their transactions.
        stream_from: changes below this position are in the initial load; it is a position in the stream
            *stream_epoch*.
        stream_epoch: the number of the stream of *stream_from*.
        log_from: batches up to this number do not count since the table's last reset.
        newest_load: the Qlik full load with which the table begins, as JSON (G-125); None: the table begins without
            one.
        loaded_columns: how many of the first columns were in the initial load; None: there was no initial load.
        hand_over_batch: the changes of batches after this one are published over the initial load.
        untyped: number of changes with a value that does not fit its type; only the ledger lists the changes.
        former: number of columns that earlier rows have under another name (G-66); only the ledger lists the columns.
        epochs: the number of each stream in the order of the table's streams, by stream name.
        decided: operators' decisions about columns, each as column, position and new name.
        unverified: notes on what is not verified about the table, each as kind, column and position.
        renamed: names of the file's columns by their names at the source, for columns whose two names differ (G-120).
        salted: the check value of the salt by column name at the source, for hashed columns (G-121).
        where: the condition for mirroring a row (`where` in the mirror file) (G-193).
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
        """Parse the JSON of :meth:`to_json`; None if *text* is empty or was written by an unknown version."""
        try:
            return msgspec.json.decode(text, type=cls) if text else None
        except msgspec.ValidationError:
            return None
