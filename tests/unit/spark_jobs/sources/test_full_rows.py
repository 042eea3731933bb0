"""`full_rows: true` promises whole rows: a change that is seen to break it is a dead letter (G-04, G-60)."""

from __future__ import annotations

from spark_jobs.changelog.schema import REJECTED
from spark_jobs.sources.contract.decoded import MirroredTable
from spark_jobs.sources.qlik.change_table.decoder import ChangeTableSettings, QlikChangeTableDecoder
from tests import ces_messages, qlik_change_rows, qlik_messages

WHOLE = MirroredTable("dbo.orders", ("id",), full_rows=True)


def test_an_event_whose_row_lacks_what_cols_names_c44_c84() -> None:
    """It would be taken for a column that was dropped."""
    old, new = {"id": "7", "name": "Ada", "price": "1.00"}, {"id": "7", "price": "2.00"}
    row = ces_messages.only(ces_messages.decode(ces_messages.event("UPD", new, old), tables=[WHOLE]))
    assert (row.kind, row.code, "'name'" in (row.reason or "")) == (REJECTED, "ROW_INVALID", True)


def test_a_message_whose_mask_leaves_columns_out_k23() -> None:
    story = qlik_messages.dt("UPDATE", {"id": 7, "name": "Eve"}, {"id": 7, "name": "Ada"}, columnMask="03")
    decoded = qlik_messages.decode(qlik_messages.md(), story, tables=[WHOLE])
    (row,) = [row for row in decoded.rows if row.kind == REJECTED]
    assert (row.code, "full_rows" in (row.reason or "")) == ("ROW_INVALID", True)


def test_a_sparse_update_of_a_change_table_t32() -> None:
    table = MirroredTable(qlik_change_rows.TABLE, ("id",), full_rows=True)
    settings = ChangeTableSettings(sparse_updates=True)
    decoder = QlikChangeTableDecoder({table.source: table}, settings)
    sparse = qlik_change_rows.row(3, "U", ["1", "Eve", None, None], bits=qlik_change_rows.mask(6))
    (row,) = decoder.decode([sparse]).rows
    assert (row.kind, row.code) == (REJECTED, "ROW_INVALID")
