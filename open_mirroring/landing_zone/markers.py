"""Row markers: what a row of a data file does to its table (F-50 to F-54)."""

from __future__ import annotations

from enum import IntEnum


class RowMarker(IntEnum):
    """The value of ``__rowMarker__``.

    Keyed tables use ``UPSERT`` and ``DELETE`` only: ``INSERT`` never looks for a row of the same key, so a row
    applied twice would be there twice (F-51).
    """

    INSERT = 0
    UPDATE = 1
    DELETE = 2
    UPSERT = 4
