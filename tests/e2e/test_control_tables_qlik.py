"""Control tables of a Qlik task: what they tell of a table is told by each run, until the task takes it back."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from open_mirroring.operate.exit_codes import Exit
from tests.e2e.test_dead_letters_seen import Shop
from tests.e2e.test_histories import TABLES, history
from tests.e2e.test_transaction_cut_qlik import OVER_JDBC, stored
from tests.postgres import PostgresServer
from tests.qlik_change_tables_sql import apply_exception, control_table_statements, suspended
from workload_generator.tables import CUSTOMERS, ORDERS

SINCE = datetime(2024, 1, 1, 12, 30)


@pytest.fixture
def shop(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str], postgres: PostgresServer, monkeypatch: Any
) -> Shop:
    """A mirror of change tables of which all partitions are closed, and without control tables that tell signals."""
    for closing in list(stored(postgres, history(seed=99, transactions=6), monkeypatch)):
        postgres.execute(*closing)
    return Shop(tmp_path / "shop", spark, capsys, tables=TABLES, source=OVER_JDBC)


def test_what_control_tables_tell_is_told_t_81(
    shop: Shop, postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    """T-81: a suspended table is no quiet one; an error is a note; absent tables, or rights, are told once."""
    for times in (1, 1):
        told = shop.tick()
        assert (told.code, told.document["losses"]) == (Exit.DONE, {})
        assert caplog.text.count("CONTROL_TABLE_UNREAD") == times
    postgres.execute(*control_table_statements())
    assert shop.tick().code == Exit.DONE
    postgres.execute(
        suspended(ORDERS, "Failed to\x1b[31m read", SINCE),
        suspended(replace(ORDERS, name="not mirrored"), "no", SINCE),
        apply_exception(CUSTOMERS, "it's full", SINCE),
        apply_exception(CUSTOMERS, "still", SINCE.replace(hour=13)),
    )
    for run in (shop.tick, shop.tick, lambda: shop.run("status")):
        told = run()
        assert (told.code, list(told.document["losses"])) == (Exit.DONE_WITH_LOSSES, ["dbo.orders"])
        loss = told.document["losses"]["dbo.orders"]
        assert loss.startswith("TABLE_SUSPENDED: the task suspended it at 2024-01-01 12:30") and "Failed to" in loss
        assert "\x1b" not in loss, "a foreign text is shown, not printed"
        note = "APPLY_EXCEPTIONS: the task recorded 2 errors of it, the newest at 2024-01-01 13:30"
        assert note in str(told.document)
    (orders,) = (one for one in told.document["tables"] if one["source"] == "dbo.orders")
    assert (orders["verdict"], orders["code"]) == ("LOSSES", "TABLE_SUSPENDED")
    postgres.execute("DELETE FROM control.attrep_suspended_tables", "DROP TABLE control.attrep_apply_exceptions")
    told = shop.tick()
    assert (told.code, told.document["losses"], "APPLY_EXCEPTIONS" in str(told.document)) == (Exit.DONE, {}, False)
    assert caplog.text.count("CONTROL_TABLE_UNREAD") == 2 and "no attrep_apply_exceptions" in caplog.text
