"""A lost number made again from the change log: the target ends exactly as if nobody had touched anything (F-40)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from open_mirroring.errors import TerminalError
from open_mirroring.ledger.auditing import Reason
from open_mirroring.reconciliation.inspection import inspect_mirror
from spark_jobs.reconcile_sequence import reconcile_deep
from spark_jobs.repairs import repair_number
from tests.ces_messages import event
from tests.e2e.test_bad_input import landed, row, wrapped
from tests.e2e.test_hashed_columns import hashed, salted
from tests.pipeline import Pipeline, in_order

ORDERS = "dbo.orders"
ASKED = Reason("Ada", "ticket 4711")
TABLES = [{"source": ORDERS, "target": "dbo/orders", "key": ["id"]}]
NAMES = {"commit_time": "committed", "log_position": "place", "operation": "what"}
NAMES |= {"transaction": "in", "source_table": "of"}
CHOSEN = {"columns": {"rename": {"id": "number", "name": "id"}}, "hash": ["name"], "extra_columns": NAMES}


@pytest.mark.parametrize("chosen", [{}, CHOSEN], ids=["as at the source", "renamed, hashed, with extra columns"])
def test_a_lost_number_is_made_again_from_the_log_or_not_at_all_f_40(
    chosen: dict[str, Any], tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-40, F-34, I9, G-118, G-120, G-121: several files of one publication, later changes: the digest decides."""
    salted(monkeypatch)
    tables = [{**TABLES[0], **chosen}]
    pipeline = Pipeline(tmp_path, spark, tables, publish={"max_rows_per_file": 2}, hash={"salt": "shop_salt"})
    pipeline.deliver("1.jsonl", wrapped([event("INS", row(key, "first"), commit=key) for key in range(1, 6)]))
    pipeline.extract()
    pipeline.publish()
    pipeline.deliver(
        "2.jsonl", wrapped([event("UPD", row(2, "second"), row(2, "first"), commit=9)], 10, partition=len(chosen))
    )
    pipeline.extract()
    pipeline.publish()
    assert pipeline.numbers("dbo.schema/orders") == [1, 2, 3, 4]
    lost = pipeline.zone / "dbo.schema" / "orders" / "00000000000000000002.parquet"
    lost.unlink()
    pipeline.service.poll()
    finding = inspect_mirror(pipeline.mirror, pipeline.ledger)[ORDERS]
    assert (finding.code, finding.lost) == ("FILE_MISSING", (2,)) and "open-mirroring repair" in finding.next_step

    text = pipeline.file.read_text()
    pipeline.file.write_text(text.replace("max_rows_per_file: 2", "max_rows_per_file: 3"))
    with pytest.raises(TerminalError, match=r"REPAIR_REFUSED.*now gives other rows"):
        repair_number(pipeline.mirror, pipeline.ledger, ORDERS, 2, ASKED, not_applied="looked")
    assert not lost.exists() and not list(lost.parent.glob("_stage-1/*")), "nothing is left of the attempt"

    pipeline.file.write_text(text)
    done = repair_number(pipeline.mirror, pipeline.ledger, ORDERS, 2, ASKED, not_applied="looked")
    assert (done.number, done.rows) == (2, 2)
    assert inspect_mirror(pipeline.mirror, pipeline.ledger)[ORDERS].code == "OK"
    pipeline.service.poll()
    wanted = [landed(key, "second" if key == 2 else "first") for key in range(1, 6)]
    rows = pipeline.mirrored("dbo", "orders")
    if chosen:
        assert {(row["of"], row["what"]) for row in rows} == {(ORDERS, "insert"), (ORDERS, "update")}
        assert all(row["place"].split(":")[1] == row["in"] and row["committed"] for row in rows)
        wanted = [{**one, "name": hashed(one["name"])} for one in wanted]
        rows = [{"id": row["number"], "name": row["id"], "price": row["price"]} for row in rows]
    assert in_order(rows, ["id"]) == in_order(wanted, ["id"])
    assert reconcile_deep(pipeline.mirror, pipeline.ledger, spark).findings == []
