"""Rows of a change table made by hand, for tests of the decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from open_mirroring.changes.column_choice import ColumnChoice
from spark_jobs.sources.contract.decoded import MirroredTable
from spark_jobs.sources.qlik.change_table.decoder import ChangeTableSettings, QlikChangeTableDecoder
from spark_jobs.sources.qlik.change_table.rows import ChangeColumn, ChangeRow, Structure

TABLE = "shop.items"
HEADERS = (
    ChangeColumn("header__change_seq", "varchar(35)"),
    ChangeColumn("header__change_oper", "varchar(1)"),
    ChangeColumn("header__change_mask", "varchar(256)"),
    ChangeColumn("header__operation", "varchar(12)"),
    ChangeColumn("header__timestamp", "datetime2(7)"),
)
DATA = (
    ChangeColumn("id", "int"),
    ChangeColumn("name", "varchar(100)"),
    ChangeColumn("price", "decimal(10,2)"),
    ChangeColumn("note", "varchar(max)"),
)
ITEMS = Structure(TABLE, HEADERS + DATA)
"""Five header columns: bits 0 to 4; the key ``id`` is bit 5."""

NAMES = {"I": "INSERT", "U": "UPDATE", "D": "DELETE", "B": "BEFOREIMAGE"}


def sequence(number: int) -> str:
    return f"2024010112000000{number:019d}"


def mask(*places: int) -> str:
    """Places as the text of a mask: one number, zero bytes cut on the left."""
    number = sum(1 << place for place in places)
    return f"{number:0{(number.bit_length() + 7) // 8 * 2}X}"


def row(
    number: int | str,
    oper: str,
    values: Sequence[str | None],
    *,
    bits: str | None = None,
    structure: Structure = ITEMS,
    origin: str = "file",
    place: int = 0,
    **header: str | None,
) -> ChangeRow:
    """One row: *values* are those of the data columns."""
    story: Mapping[str, str | None] = {
        "header__change_seq": sequence(number) if isinstance(number, int) else number,
        "header__change_oper": oper,
        "header__change_mask": bits,
        "header__operation": NAMES.get(oper),
        "header__timestamp": "2024-01-01 12:00:00.000000",
        **{f"header__{name}": value for name, value in header.items()},
    }
    headers = [story.get(column.name) for column in structure.columns if column.name.startswith("header__")]
    return ChangeRow(origin, place, structure, (*headers, *values))


def decoder(
    key: tuple[str, ...] = ("id",),
    columns: tuple[str, ...] | None = None,
    *,
    keys_never_change: bool = False,
    **settings: object,
) -> QlikChangeTableDecoder:
    return QlikChangeTableDecoder(
        {TABLE: MirroredTable(TABLE, key, ColumnChoice(columns), keys_never_change)},
        ChangeTableSettings(**settings),  # type: ignore[arg-type]
    )
