"""The how-to pages about rows: what each says of the target after a statement at the source is what is there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from open_mirroring.operate.exit_codes import Exit
from tests.ces_messages import event
from tests.e2e.test_kept_rows import Orders
from tests.e2e.test_tutorial import ROOT

PAGES = ["append-only", "keep-deleted-rows", "filter-rows", "history", "versions"]
COLS = (("id", "int"), ("country", "nvarchar(2)"), ("amount", "decimal(8,2)"))
Row = dict[str, str | None]


def rows_of(source: Any) -> dict[str, Row]:
    """The rows of the source by their key."""
    found = source.execute("SELECT id::text, country, amount::text FROM orders").fetchall()
    return {row[0]: {name: value for (name, _), value in zip(COLS, row, strict=True)} for row in found}


def changes(before: dict[str, Row], after: dict[str, Row], commit: int) -> bytes:
    """The events of a commit, from the rows before and after it."""
    moved = [*(before.keys() - after.keys()), *(after.keys() - before.keys())]
    if len(moved) == 2 and len(before) == len(after):
        return event("UPD", after[moved[1]], before[moved[0]], cols=COLS, commit=commit) + b"\n"
    images = [(after.get(key), before.get(key)) for key in sorted({*before, *after})]
    story = [one for one in images if one[0] != one[1]]
    kinds = {(True, False): "INS", (False, True): "DEL", (True, True): "UPD"}
    events = [
        event(kinds[now is not None, old is not None], now, old, cols=COLS, commit=commit, sequence=at)
        for at, (now, old) in enumerate(story, 1)
    ]
    return b"".join(one + b"\n" for one in events)


@pytest.mark.parametrize("page", PAGES)
def test_the_page_shows_what_lands_g191_g192_g193(page: str, tmp_path: Path, spark: Any) -> None:
    text = (ROOT / "docs" / "how-to" / f"{page}.md").read_text(encoding="utf-8")
    (declared,), (created,) = re.findall(r"```yaml\n(.*?)```", text, re.S), re.findall(r"```sql\n(.*?)```", text, re.S)
    steps = re.findall(r"^\| `((?:INSERT|UPDATE|DELETE)[^`]*)` \| (.*) \|$", text, re.M)
    assert len(steps) > 2
    (table,) = yaml.safe_load(declared)["tables"]
    orders, source = Orders(tmp_path, spark, table), duckdb.connect()
    source.execute(created)
    for commit, (statement, shown) in enumerate(steps, 1):
        before = rows_of(source)
        source.execute(statement)
        code = orders.tick(changes(before, rows_of(source), commit))
        if shown.startswith("stops: "):
            assert (code, orders.stop) == (Exit.TABLES_STOPPED, shown.removeprefix("stops: "))
            continue
        assert code == Exit.DONE
        expected = sorted(re.findall(r"`([^`]*)`", shown))
        names = [*(name for name, _ in COLS), *(["_deleted_at"] if "on_delete" in table else [])]
        if "history" in table:
            names = [*names, "is_current"] if "form" in table["history"] else ["_operation", *names]
        rows = orders.pipeline.mirrored("dbo", "orders_history" if "history" in table else "orders")
        found = [" ".join("NULL" if row[name] is None else str(row[name]) for name in names) for row in rows]
        assert sorted(found) == expected, statement
