"""Keeps in a data file's footer how its table stood: all that a lost ledger would have to know beyond the file."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Standing(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """How the table stood when the publication was staged.

    Attributes:
        published_position: of the batches before, the target had the changes up to here; None: all of them.
        position_from: the publication has the changes above this position; None: nothing was held back.
        position_to: and those up to this one.
        waiting_rows: changes of earlier batches that waited for the end of their transactions.
        stream_from: changes below it are in the initial load, in the stream incarnation *stream_epoch*.
        log_from: batches up to this one tell nothing of this generation's rows.
        lives_above: every row of this generation had its newest change above this place (G-106); None: nobody looked.
        newest_load: the full load of the source in the log with which this generation begins (G-125), as the ledger has
            it; None: it begins with no such load.
        loaded_columns: so many of its first columns came with the initial load; None: it had none.
        hand_over_batch: the changes of later batches are published over the load.
        untyped: changes that could not be typed, which only the ledger names.
        former: columns of earlier rows that are read under another name (G-66), as only the ledger notes.
        epochs: the ordinal of each stream incarnation.
        decided: what operators said of columns, each as column, place and new name.
        unverified: notes on what is not verified, each with its kind, column and place.
        renamed: names of the file's columns by their names at the source, where they differ (G-120).
        salted: what tells the salt of a column's hashes, by its name at the source (G-121).
    """

    published_position: str | None = None
    position_from: str | None = None
    position_to: str | None = None
    waiting_rows: int = 0
    stream_from: str | None = None
    stream_epoch: int = 0
    log_from: int = 0
    lives_above: str | None = None
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

    def to_json(self) -> str:
        """The footer's text: what is as in a table without a past is left out."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def of(cls, text: str) -> Standing | None:
        """What :meth:`to_json` wrote; None where a file says nothing, or what this version does not know."""
        try:
            return msgspec.json.decode(text, type=cls) if text else None
        except msgspec.ValidationError:
            return None
