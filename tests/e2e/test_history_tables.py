"""History tables (G-194): one row for each change, against the changes of the generator's own list."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.shaped_tables import FORMS, commits, mirrored, plain
from workload_generator.history import SHOP_TABLES, random_history
from workload_generator.sql_values import typed

TABLES = [
    {
        "source": t.full_name,
        "target": f"shop/{t.name}",
        "key": list(t.key),
        "history": {"target": f"shop/{t.name}_history"},
    }
    for t in SHOP_TABLES
]


def expected_changes(made: Any, table: Any) -> Counter[str]:
    """Each change of a table as its history shows it: the values after, of a removed row its key."""
    types = {column.name: column.sql_type for column in table.columns}
    found = Counter[str]()
    for change in commits(made):
        if change.table.full_name != table.full_name:
            continue
        before, after = change.before, change.after
        moved = before is not None and after is not None and table.key_of(before) != table.key_of(after)
        if before is not None and (after is None or moved):
            found[plain({"_operation": "delete", **{k: typed(types[k], before[k]) for k in table.key}})] += 1
        if after is not None:
            named = "insert" if change.op == "I" else "update"
            found[plain({"_operation": named, **{name: typed(types[name], text) for name, text in after.items()}})] += 1
    return found


def shown(pipeline: Any, table: Any) -> Counter[str]:
    """The rows of a history, of removed rows only the key."""
    found = Counter[str]()
    positions = []
    for row in pipeline.mirrored("shop", f"{table.name}_history"):
        positions.append(row["_position"])
        own = {name: value for name, value in row.items() if name == "_operation" or not name.startswith("_")}
        if own["_operation"] == "delete":
            own = {name: own[name] for name in ("_operation", *table.key)}
        found[plain(own)] += 1
        assert row["_commit_time"] is not None and row["_transaction"]
    return found


@pytest.mark.parametrize("form", FORMS)
def test_a_history_has_each_change_once_g194(
    form: str, tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-194: key changes and deletes, late, repeated and over kills; the current tables are as they were without."""
    made = random_history(94, 60)
    pipeline = mirrored(form, made, tmp_path, spark, TABLES, publish={"max_rows_per_file": 3})
    for table in SHOP_TABLES:
        assert shown(pipeline, table) == expected_changes(made, table), table.name
    capsys.readouterr()
    assert main(["status", str(pipeline.file)]) == Exit.DONE
    assert f"{SHOP_TABLES[0].full_name} (history)" in capsys.readouterr().out
