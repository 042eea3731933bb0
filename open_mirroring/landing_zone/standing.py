"""The state of a table in a data file's footer: what a lost ledger would need beyond the file itself."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Standing(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """The state of the table when the publication was staged.

    Attributes:
        published_position: of earlier batches, the target had the changes up to here; None: all of them.
        position_from: the publication contains the changes above this position; None: nothing was held back.
        position_to: the publication contains the changes up to this position.
        waiting_rows: changes of earlier batches that waited for the end of their transactions.
        stream_from: changes below it are in the initial load, in the stream incarnation *stream_epoch*.
        log_from: batches up to this one are not part of this generation.
        newest_load: the full load of the source in the log with which this generation begins (G-125); None: none.
        loaded_columns: this many of its first columns came with the initial load; None: it had none.
        hand_over_batch: the changes of later batches are published over the load.
        untyped: changes that could not be typed, which only the ledger lists.
        former: columns of earlier rows that are read under another name (G-66), which only the ledger lists.
        epochs: the ordinal of each stream incarnation.
        decided: operators' decisions about columns, each as column, position and new name.
        unverified: notes on what is not verified, each with its kind, column and position.
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
        """The footer's text; default values are left out."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def of(cls, text: str) -> Standing | None:
        """Read back what :meth:`to_json` wrote; None if it is empty or from an unknown version."""
        try:
            return msgspec.json.decode(text, type=cls) if text else None
        except msgspec.ValidationError:
            return None
