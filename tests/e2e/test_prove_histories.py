"""Proofs of histories (G-194, G-195): each spoiled row is found, and nothing that is right is called wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from open_mirroring.operate.exit_codes import Exit
from open_mirroring.page.fixes import of_difference
from spark_jobs.cli.command_line import main
from spark_jobs.prove import prove
from tests.ces_messages import event
from tests.e2e.test_first_day import declare, declare_mirror
from tests.e2e.test_history_tables import HISTORY, LOAD, ORDERS, SCD2, TABLES, VERSIONS, Versions
from tests.e2e.test_kept_rows import COLS
from tests.e2e.test_kept_rows import scene as sent_at
from tests.shaped_tables import FORMS, mirrored
from workload_generator.history import SHOP_TABLES, random_history

HISTORY_OF = "dbo.orders (history)"
PROOF = {"prove": {"format": "csv", "path": "now.csv", "types": dict(COLS)}}
Row = dict[str, Any]


def told(*parts: Any) -> bytes:
    """A change, committed in the second of its position."""
    return timed(sent_at(*parts), parts[-1])


def timed(message: bytes, at: int) -> bytes:
    return message.replace(b"16:30:10.123Z", f"16:30:{at:02}.000Z".encode())


def moved(old: int, new: int, at: int) -> bytes:
    row = {"id": str(new), "name": f"n{at}", "photo": "p"}
    return timed(event("UPD", row, {"id": str(old)}, cols=COLS, commit=at) + b"\n", at)


STORY = [
    told("INS", 1, "one", 1), told("UPD", 1, "two", 2), told("UPD", 1, "three", 3),
    told("INS", 2, "a", 4), told("DEL", 2, "", 5), told("INS", 2, "b", 6), told("INS", 3, "x", 7),
    told("INS", 4, "y", 8), told("DEL", 4, "", 9), moved(3, 4, 11), told("INS", 5, "gone", 12), told("DEL", 5, "", 13),
]  # fmt: skip
NOW = "id,name,photo\n1,three,p\n2,b,p\n4,n11,p\n"


class Proved(Versions):
    def __init__(self, folder: Path, spark: Any, table: Row, now: str = NOW) -> None:
        super().__init__(folder, spark, {**ORDERS, **PROOF, **table})
        (folder / "now.csv").write_text(now, encoding="utf-8")

    def proved(self, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = main(["prove", str(self.pipeline.file), "--json", *words])
        return code, json.loads(capsys.readouterr().out)["tables"]

    def spoil(self, change: Callable[[list[Row]], object], table: str = "orders_history") -> None:
        """Change rows at the target, as a service that has lost some would."""
        place = str(self.pipeline.target / "dbo" / table)
        rows = pa.table(DeltaTable(place).scan())
        found = sorted(rows.to_pylist(), key=lambda row: (row["id"], row.get("_position")))
        change(found)
        write_deltalake(place, pa.Table.from_pylist(found, schema=rows.schema), mode="overwrite")


def version(rows: list[Row], key: int, name: str) -> Row:
    return next(row for row in rows if (row["id"], row["name"]) == (key, name))


SPOILED: list[tuple[str, Callable[[list[Row]], object], dict[str, str], str]] = [
    ("scd2", lambda rows: version(rows, 1, "one").update(valid_to=version(rows, 1, "three")["valid_from"]),
     {'["1"]': "different"}, "1 key: versions overlap"),
    ("scd2", lambda rows: version(rows, 1, "two").update(valid_to=None, is_current=True),
     {'["1"]': "different"}, "1 key: versions overlap"),
    ("scd2", lambda rows: rows.remove(version(rows, 1, "two")),
     {'["1"]': "different"}, "1 key: a version is missing between two others"),
    ("scd2", lambda rows: rows.remove(version(rows, 4, "n11")),
     {'["4"]': "missing"}, "1 key: the newest row is not that of the table"),
    ("scd2", lambda rows: version(rows, 2, "b").update(name="B"),
     {'["2"]': "different"}, "1 key: the newest row is not that of the table"),
    ("scd2", lambda rows: version(rows, 5, "gone").update(valid_to=None, is_current=True),
     {'["5"]': "extra"}, "1 key: the newest row is not that of the table"),
    ("scd2", lambda rows: rows.append(version(rows, 2, "a")),
     {'["2"]': "doubled"}, "1 key: a change is there twice"),
    ("changes", lambda rows: rows.append(version(rows, 1, "two")),
     {'["1"]': "doubled"}, "1 key: a change is there twice"),
    ("changes", lambda rows: rows.remove(version(rows, 1, "three")),
     {'["1"]': "different"}, "1 key: the newest row is not that of the table"),
    ("changes", lambda rows: rows.remove(version(rows, 4, "n11")),
     {'["4"]': "missing"}, "1 key: the newest row is not that of the table"),
    ("changes", lambda rows: rows.remove(next(r for r in rows if r["id"] == 5 and r["_operation"] == "delete")),
     {'["5"]': "extra"}, "1 key: the newest row is not that of the table"),
]  # fmt: skip


@pytest.mark.parametrize("at", range(len(SPOILED)))
def test_a_spoiled_history_is_found_g194_g195(
    at: int, tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    form, spoil, expected, why = SPOILED[at]
    orders = Proved(tmp_path / "shop", spark, {"history": {**HISTORY, "form": form}})
    assert orders.tick(*STORY) == Exit.DONE
    code, found = orders.proved(capsys)
    assert (code, {one["verdict"] for one in found.values()}) == (Exit.DONE, {"EQUAL"}), found
    orders.spoil(spoil)
    code, found = orders.proved(capsys)
    one = found[HISTORY_OF]
    assert (code, found["dbo.orders"]["verdict"], one["verdict"]) == (Exit.NOT_EQUAL, "EQUAL", "DIFFERENT"), found
    assert {key["key"]: key["kind"] for key in one["keys"]} == expected
    assert why in one["reasons"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tables", [TABLES, VERSIONS], ids=["changes", "scd2"])
def test_a_right_history_is_equal_g194_g195(tables: list[Row], form: str, tmp_path: Path, spark: Any) -> None:
    """Key changes, exchanged keys, keys that come back; late, repeated and over kills."""
    nothing = {"prove": {"format": "parquet", "path": "nowhere"}}
    pipeline = mirrored(
        form, random_history(94, 60), tmp_path, spark, [{**table, **nothing} for table in tables],
        landing_zone={"store": "local", "path": "zone", "tables": "tables"}, prove={"settle_seconds": 0},
    )  # fmt: skip
    found = prove(pipeline.mirror, pipeline.ledger, spark).tables
    for table in SHOP_TABLES:
        one = found[f"{table.full_name} (history)"]
        assert (one["verdict"], one["reasons"]) == ("EQUAL", []), one
        assert one["rows_target"] >= one["rows_source"] > 0


@pytest.mark.parametrize("form", ["changes", "scd2"])
def test_what_is_on_its_way_is_not_wrong(
    form: str, tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The service has applied the change to the table, and not yet to its history."""
    orders = Proved(tmp_path / "shop", spark, {"history": {**HISTORY, "form": form}})
    assert orders.tick(*STORY) == Exit.DONE
    before = orders.pipeline.target / "dbo" / "orders_history"
    kept = DeltaTable(str(before)).version()
    orders.pipeline.deliver("more.jsonl", told("UPD", 1, "four", 14))
    assert main(["tick", str(orders.pipeline.file)]) == Exit.DONE
    (tmp_path / "shop" / "now.csv").write_text(NOW.replace("three", "four"), encoding="utf-8")
    zone = orders.pipeline.zone / "dbo.schema" / "orders_history"
    newest = max(zone.glob("0*.parquet"))
    away = newest.rename(tmp_path / newest.name)
    orders.pipeline.service.poll()
    away.rename(newest)
    assert DeltaTable(str(before)).version() == kept
    code, found = orders.proved(capsys)
    assert (code, found[HISTORY_OF]["verdict"]) == (Exit.ON_HOLD, "UNPROVEN"), found
    assert found[HISTORY_OF]["unproven"] == 1
    orders.pipeline.service.poll()
    code, found = orders.proved(capsys)
    assert (code, found[HISTORY_OF]["verdict"]) == (Exit.DONE, "EQUAL"), found


def test_what_a_reload_brought_and_what_was_before_is_not_missed(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-194: loaded rows of a reload are no changes; what changes later is compared again."""
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "export.csv").write_text("id,name,photo\n1,Ada,p\n2,Eve,p\n")
    orders = Proved(folder, spark, {"initial_load": LOAD, "history": SCD2}, "id,name,photo\n1,Ada,p\n2,Eve,p\n")
    assert orders.command("initial-load") == Exit.DONE == orders.command("tick"), capsys.readouterr().out
    code, found = orders.proved(capsys)
    assert (code, found[HISTORY_OF]["verdict"], found[HISTORY_OF]["reasons"]) == (Exit.DONE, "EQUAL", []), found

    (folder / "export.csv").write_text("id,name,photo\n1,Eda,p\n3,Joe,p\n")
    (folder / "now.csv").write_text("id,name,photo\n1,Eda,p\n3,Joe,p\n")
    approved = ["--table", "dbo.orders", "--approved-by", "Ada", "--reason", "x", "--wait", "0", "--request", "a"]
    assert [orders.command("reload-table", *approved) for _ in range(6)][-1] == Exit.DONE, capsys.readouterr().out
    assert orders.command("tick") == Exit.DONE
    code, found = orders.proved(capsys)
    one = found[HISTORY_OF]
    assert (code, one["verdict"]) == (Exit.DONE, "EQUAL"), found
    assert one["reasons"] == ["3 rows of the table did not change since it began, or was loaded again"]

    assert orders.tick(told("UPD", 1, "new", 51)) == Exit.DONE
    (folder / "now.csv").write_text("id,name,photo\n1,new,p\n3,Joe,p\n")
    orders.spoil(lambda rows: version(rows, 1, "new").update(name="old"))
    code, found = orders.proved(capsys)
    assert (code, {key["key"] for key in found[HISTORY_OF]["keys"]}) == (Exit.NOT_EQUAL, {'["1"]'}), found

    corrected = orders.proved(capsys, "--correct", "--approved-by", "Ada", "--why", "x")[1][HISTORY_OF]
    assert "REPAIR_REFUSED" in corrected["correction"] and "reload-table" in corrected["correction"]


def test_a_history_that_was_declared_later_lacks_nothing(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = Proved(tmp_path / "shop", spark, {})
    assert orders.tick(*STORY) == Exit.DONE
    declare(orders, history=SCD2)
    assert orders.tick(told("UPD", 1, "four", 14)) == Exit.DONE
    (tmp_path / "shop" / "now.csv").write_text(NOW.replace("three", "four"), encoding="utf-8")
    code, found = orders.proved(capsys)
    assert (code, found[HISTORY_OF]["verdict"]) == (Exit.DONE, "EQUAL"), found
    orders.spoil(lambda rows: rows.clear())
    code, found = orders.proved(capsys)
    assert {key["key"] for key in found[HISTORY_OF]["keys"]} == {'["1"]'}, found


def test_a_routine_proves_a_history_once_in_its_days_and_again_if_it_differs(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = Proved(tmp_path / "shop", spark, {"history": SCD2})
    declare_mirror(orders, prove={"settle_seconds": 0, "cover_in_days": 7})
    assert orders.tick(*STORY) == Exit.DONE
    code, first = orders.proved(capsys, "--routine")
    assert (code, first[HISTORY_OF]["verdict"]) == (Exit.DONE, "EQUAL"), first
    orders.spoil(lambda rows: rows.remove(version(rows, 1, "two")))
    code, found = orders.proved(capsys, "--routine")
    assert (code, found[HISTORY_OF]["proof"]) == (Exit.DONE, first[HISTORY_OF]["proof"]), "nothing is due"
    assert orders.proved(capsys)[0] == Exit.NOT_EQUAL
    orders.spoil(lambda rows: rows.remove(version(rows, 4, "n11")))
    code, found = orders.proved(capsys, "--routine")
    assert (code, found[HISTORY_OF]["different"], found[HISTORY_OF]["missing"]) == (Exit.NOT_EQUAL, 1, 1), found
    _, commands = of_difference(orders.pipeline.mirror, HISTORY_OF, found[HISTORY_OF]["proof"])
    assert ["reload-table" in one.text for one in commands] == [True]


@pytest.mark.parametrize("form", ["changes", "scd2"])
def test_a_key_that_the_log_spells_in_another_way_is_proved_as_far_as_it_can_be(
    form: str, tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Keys are times: which of them changed meanwhile is unknown, so none is called wrong while there are changes."""
    cols = (("id", "datetime2(3)"), ("name", "nvarchar(9)"))

    def change(operation: str, key: int, name: str, at: int) -> bytes:
        row = {"id": f"2026-01-0{key}T00:00:00.000", "name": name}
        images = (None, {"id": row["id"]}) if operation == "DEL" else (row, None)
        images = (row, {"id": row["id"]}) if operation == "UPD" else images
        return timed(event(operation, *images, cols=cols, commit=at) + b"\n", at)

    proof = {"prove": {"format": "parquet", "path": "nowhere"}}
    orders = Proved(tmp_path / "shop", spark, {"history": {**HISTORY, "form": form}, **proof})
    story = [
        change("INS", 1, "one", 1),
        change("UPD", 1, "two", 2),
        change("DEL", 1, "", 3),
        change("INS", 1, "back", 4),
    ]
    assert orders.tick(*story, change("INS", 2, "a", 5)) == Exit.DONE
    assert orders.proved(capsys)[1][HISTORY_OF]["verdict"] == "EQUAL"
    orders.spoil(lambda rows: next(row for row in rows if row["name"] == "back").update(name="wrong"))
    found = orders.proved(capsys)[1][HISTORY_OF]
    assert (found["verdict"], found["different"]) == ("DIFFERENT", 1), found
    orders.pipeline.deliver("more.jsonl", change("INS", 3, "b", 6))
    assert main(["tick", str(orders.pipeline.file)]) == Exit.DONE
    found = orders.proved(capsys)[1][HISTORY_OF]
    assert (found["verdict"], found["unproven"]) == ("UNPROVEN", 1), found
