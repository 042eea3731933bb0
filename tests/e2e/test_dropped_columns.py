"""A column that is dropped at the source, in every format: its table goes on, and the run says so (G-60).

Through the command line with the emulator as the target. Rows written since have NULL in the column, rows that did not
change since keep what they had (F-84). Nothing here is decided by the order of arrival.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.ces_messages import event, lsn
from tests.pipeline import Pipeline, in_order

COLS = (("id", "int"), ("name", "nvarchar(50)"), ("city", "nvarchar(50)"), ("price", "decimal(8,2)"))
SHORT = COLS[:3]
COST = (*SHORT, ("cost", "decimal(8,2)"))
NOTE = (*SHORT, ("note", "nvarchar(9)"))
Cols = Sequence[tuple[str, str]]


def row(id_: int, name: str = "Ada", price: str | None = "1.50", **more: Any) -> dict[str, Any]:
    return {"id": id_, "name": name, "city": "Linz", "price": None if price is None else Decimal(price), **more}


def texts(id_: int, name: str, cols: Cols, price: str = "1.50") -> dict[str, str]:
    given = {"id": str(id_), "name": name, "city": "Linz", "price": price, "cost": "2.50", "note": "x"}
    return {column: given[column] for column, _ in cols}


def ins(id_: int, commit: int, cols: Cols = COLS, name: str = "Ada", tbl: str = "orders", **more: Any) -> bytes:
    return event("INS", texts(id_, name, cols), cols=cols, commit=commit, tbl=tbl, **more)


def upd(id_: int, commit: int, cols: Cols = COLS, name: str = "Eve", old: str = "Ada", tbl: str = "orders") -> bytes:
    """An update that carries all columns: the city did not change, and is there."""
    return event("UPD", texts(id_, name, cols), texts(id_, old, cols), cols=cols, commit=commit, tbl=tbl)


class Mirror:
    """A mirror of CES in bare JSON lines, driven by the command line."""

    def __init__(self, folder: Path, spark: Any, *tables: str, watched: bool = False, **settings: Any) -> None:
        described = [
            {"source": f"dbo.{name}", "target": f"dbo/{name}", "key": ["id"], **settings}
            for name in tables or ("orders",)
        ]
        zone = {"store": "local", "path": "zone", **({"tables": "tables"} if watched else {})}
        self.pipeline = Pipeline(folder, spark, described, source={"layout": "bare"}, landing_zone=zone)
        self._files = 0

    def run(self, command: str, *arguments: str, table: str = "orders") -> int:
        named = [] if command in ("tick", "status") else ["--table", f"dbo.{table}", "--why", "looked at the source"]
        code = main([command, str(self.pipeline.file), *named, *arguments])
        self.pipeline.service.poll()
        return code

    def tick(self, *messages: bytes) -> int:
        if messages:
            self._files += 1
            self.pipeline.deliver(f"{self._files:04d}.jsonl", b"\n".join(messages) + b"\n")
        return self.run("tick")

    def status(self, capsys: pytest.CaptureFixture[str], table: str = "orders") -> Mapping[str, Any]:
        capsys.readouterr()
        main(["status", str(self.pipeline.file), "--json"])
        tables = json.loads(capsys.readouterr().out)["tables"]
        found: Mapping[str, Any] = next(one for one in tables if one["source"] == f"dbo.{table}")
        return found

    def reload(self, rows: Sequence[Mapping[str, Any]], commit: int) -> None:
        """Drop the table at the target, and load it from an export that holds everything below a commit."""
        kinds = {"id": pa.int32(), "price": pa.decimal128(8, 2), "cost": pa.decimal128(8, 2)}
        schema = pa.schema([pa.field(name, kinds.get(name, pa.string())) for name in rows[0]])
        export = self.pipeline.folder / "export.parquet"
        pq.write_table(pa.Table.from_pylist([dict(one) for one in rows], schema), export)
        document = yaml.safe_load(self.pipeline.file.read_text())
        load = {"format": "parquet", "path": str(export), "stream_from": lsn(commit)}
        document["tables"][0]["initial_load"] = load
        document["landing_zone"]["tables"] = "tables"
        self.pipeline.file.write_text(yaml.safe_dump(document, sort_keys=False))
        reset = ["reload-table", str(self.pipeline.file), "--table", "dbo.orders", "--reason", "x"]
        for _ in range(6):
            code = main([*reset, "--approved-by", "Ada", "--wait", "0", "--request", "a"])
            self.pipeline.service.poll()
            if code == Exit.DONE:
                return
        raise AssertionError("the reset is not over")

    def rows(self, table: str = "orders") -> list[dict[str, Any]]:
        return in_order(self.pipeline.mirrored("dbo", table), ["id"])

    def stop(self, table: str = "orders") -> str | None:
        return self.pipeline.reader.tables()[f"dbo.{table}"].stop_code


def test_a_dropped_column_goes_on_with_null_in_rows_written_since_f84_g60(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    mirror = Mirror(tmp_path, spark)
    assert mirror.tick(ins(1, 10), ins(2, 10, name="Bo"), ins(3, 10)) == Exit.DONE
    assert mirror.status(capsys)["gone_columns"] == []
    assert mirror.tick(ins(4, 20, SHORT), upd(2, 21, SHORT, old="Bo")) == Exit.DONE
    assert "column 'price' gone since position 0:" in capsys.readouterr().out, "the run says so"
    assert mirror.rows() == in_order([row(1), row(2, "Eve", None), row(3), row(4, price=None)], ["id"])
    status = mirror.status(capsys)
    ((column, since),) = status["gone_columns"]
    assert column == "price" and ":00000014" in since.replace("0000002C", "")
    assert f"column 'price' gone since position {since}" in " ".join(status["notes"])
    mirror.run("status")
    assert f"gone since position {since}" in capsys.readouterr().out

    # What is late, or comes twice, was written while the column was there.
    assert mirror.tick(upd(3, 15, old="Ada", name="Late"), ins(5, 16), ins(1, 10)) == Exit.DONE
    assert mirror.rows() == in_order([row(1), row(2, "Eve", None), row(3, "Late"), row(4, price=None), row(5)], ["id"])
    assert mirror.status(capsys)["gone_columns"] == [[column, since]]


def test_an_insert_that_comes_late_proves_that_a_column_was_dropped_g107(tmp_path: Path, spark: Any) -> None:
    """It lies in another partition and comes a batch later; until then the update may be a part of its row."""
    mirror = Mirror(tmp_path, spark)
    few = (COLS[0], COLS[1])
    assert mirror.tick(ins(1, 10), ins(2, 11)) == Exit.DONE
    assert mirror.tick(event("UPD", texts(1, "Eve", few), texts(1, "Ada", few), cols=few, commit=30)) == (
        Exit.TABLES_STOPPED
    )
    assert mirror.stop() == "PARTIAL_ROWS"
    assert mirror.tick(ins(3, 12)) == Exit.TABLES_STOPPED, "it proves nothing of the shorter list"
    assert mirror.tick(ins(4, 20, few)) == Exit.DONE
    gone = {"city": None, "price": None}
    assert mirror.rows() == in_order(
        [row(1, "Eve") | gone, row(2), row(3), row(4) | gone],
        ["id"],
    )


def test_all_in_the_first_run_ends_as_in_many_g09_g60(tmp_path: Path, spark: Any) -> None:
    """Whatever the cuts: once as one batch, once with the newest first."""
    told = [ins(1, 10), ins(2, 11), upd(1, 12), ins(3, 20, SHORT), upd(2, 21, SHORT), ins(4, 22, NOTE)]
    ends = in_order(
        [row(1, "Eve", note=None), row(2, "Eve", None, note=None), row(3, price=None, note=None),
         row(4, price=None, note="x")], ["id"],
    )  # fmt: skip
    once = Mirror(tmp_path / "once", spark)
    assert once.tick(*told) == Exit.DONE
    assert once.rows() == ends
    backwards = Mirror(tmp_path / "backwards", spark)
    for message in reversed(told):
        assert backwards.tick(message) == Exit.DONE
    assert backwards.rows() == ends


def test_a_column_that_comes_back_stops_its_table_g60(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows that did not change since have values of the column that was dropped."""
    mirror = Mirror(tmp_path, spark)
    mirror.tick(ins(1, 10))
    assert mirror.tick(ins(2, 20, SHORT)) == Exit.DONE
    assert mirror.tick(ins(3, 30)) == Exit.TABLES_STOPPED
    assert mirror.stop() == "SCHEMA_CHANGED"
    assert mirror.run("resume") == Exit.TERMINAL
    assert "COMMAND_REFUSED" in capsys.readouterr().err
    truth = [row(1, price=None), row(2, price=None), row(3)]
    mirror.reload(truth, 31)
    assert mirror.tick(ins(4, 40), ins(1, 10)) == Exit.DONE
    assert mirror.rows() == [*truth, row(4)], "what the load holds is asked for no more"


def test_an_update_that_may_be_a_part_of_its_row_proves_nothing_c44_g60(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The operator's word does, and so does a later row."""
    mirror = Mirror(tmp_path, spark)
    mirror.tick(ins(1, 10), ins(2, 10))
    new = texts(1, "Eve", SHORT) | {"city": "Wels"}
    assert mirror.tick(event("UPD", new, texts(1, "Ada", SHORT), cols=SHORT, commit=20)) == Exit.TABLES_STOPPED
    assert mirror.stop() == "PARTIAL_ROWS"
    assert mirror.run("accept-schema", "--dropped", "nothing") == Exit.TERMINAL
    assert "ARGUMENT_INVALID" in capsys.readouterr().err
    assert mirror.run("accept-schema", "--dropped", "name") == Exit.TERMINAL
    assert "ARGUMENT_INVALID" in capsys.readouterr().err
    assert mirror.run("accept-schema", "--dropped", "price") == Exit.DONE
    assert mirror.tick() == Exit.DONE
    assert mirror.rows() == [{**row(1, "Eve", None), "city": "Wels"}, row(2)]


@pytest.mark.parametrize("late", [False, True])
def test_rows_are_completed_but_for_the_column_that_is_gone_g04_g60(tmp_path: Path, spark: Any, late: bool) -> None:
    """A row logged before the drop has the column, and an update that tells only what changed leaves it as it was."""
    mirror = Mirror(tmp_path, spark, complete_rows=True)
    mirror.tick(ins(1, 10), ins(2, 10))
    changed = event("UPD", {"id": "1", "name": "Eve"}, {"id": "1", "name": "Ada"}, cols=COLS[:2], commit=12)
    unknown = upd(9, 21, SHORT)
    dropped = ins(3, 20, SHORT)
    for messages in ([dropped], [changed]) if late else ([changed], [dropped]):
        assert mirror.tick(*messages) == Exit.DONE
    # Nothing that was logged tells more of row 9 than what it carries: all columns that there are.
    assert mirror.tick(unknown) == Exit.DONE
    assert mirror.rows() == [row(1, "Eve"), row(2), row(3, price=None), row(9, "Eve", None)]


def test_a_row_before_the_drop_still_has_to_be_complete_g04_g60(tmp_path: Path, spark: Any) -> None:
    mirror = Mirror(tmp_path, spark, complete_rows=True)
    mirror.tick(ins(1, 10), ins(2, 30))
    mirror.tick(ins(3, 40, SHORT))
    early = event("UPD", {"id": "9", "name": "Eve"}, {"id": "9", "name": "Ada"}, cols=COLS[:2], commit=20)
    assert mirror.tick(early) == Exit.TABLES_STOPPED
    assert mirror.stop() == "ROW_INCOMPLETE"


def test_a_renamed_column_waits_for_a_load_g60(tmp_path: Path, spark: Any) -> None:
    """The way out of COLUMN_RENAMED; the stream began anew, so that change events may have been renamed, too (C-74)."""
    anew = "11111111-2222-3333-4444-555555555555"
    mirror = Mirror(tmp_path, spark)
    mirror.tick(ins(1, 10), ins(2, 10))
    named = {"logicalid": f"{anew}:0000002C000000050001:00000000000000000001"}
    assert mirror.tick(ins(3, 5, COST, replaced=named)) == Exit.TABLES_STOPPED
    assert mirror.stop() == "EPOCH_UNKNOWN"
    assert mirror.run("accept-epoch", "--epoch", anew) == Exit.DONE
    assert mirror.tick() == Exit.TABLES_STOPPED
    assert mirror.stop() == "RENAME_POSSIBLE"
    assert mirror.run("accept-schema", "--renamed", "price=cost") == Exit.TABLES_STOPPED
    renamed = [{**row(n), "cost": Decimal("1.50")} for n in (1, 2)] + [{**row(3), "cost": Decimal("2.50")}]
    truth = [{name: value for name, value in one.items() if name != "price"} for one in renamed]
    mirror.reload(truth, 6)
    assert mirror.rows() == in_order(truth, ["id"])
    assert mirror.tick() == Exit.DONE


def test_a_loaded_column_is_dropped_unless_its_type_may_not_be_streamed_c77_g60(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """C-77: a text without its SQL type may be one that events leave out; a number is not."""
    mirror = Mirror(tmp_path, spark)
    mirror.tick(ins(9, 5))
    mirror.reload([row(1, doc="d"), row(2, doc="d")], 10)
    assert mirror.tick(ins(3, 20, SHORT)) == Exit.TABLES_STOPPED
    assert mirror.stop() == "COLUMN_NOT_STREAMED"
    assert "contains 'doc', but changes do not" in capsys.readouterr().out
    assert mirror.run("accept-schema", "--dropped", "doc") == Exit.DONE
    assert mirror.tick() == Exit.DONE
    assert mirror.rows() == [row(1, doc="d"), row(2, doc="d"), row(3, price=None, doc=None)]
    assert sorted(column for column, _ in mirror.status(capsys)["gone_columns"]) == ["doc", "price"]


def test_a_proof_leaves_out_what_the_source_has_no_more_g60(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-40: rows that did not change keep the column at the target, and are no difference for it."""
    mirror = Mirror(tmp_path, spark, watched=True)
    mirror.tick(ins(1, 10), ins(2, 10))
    assert mirror.tick(upd(2, 20, SHORT)) == Exit.DONE
    (tmp_path / "export").mkdir()
    rows = [{"id": 1, "name": "Ada", "city": "Linz"}, {"id": 2, "name": "Eve", "city": "Linz"}]
    schema = pa.schema([pa.field(n, pa.int32() if n == "id" else pa.string()) for n in rows[0]])
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "export" / "dbo.orders.parquet")
    assert mirror.rows() == [row(1), row(2, "Eve", None)]
    capsys.readouterr()
    code = main(["prove", str(mirror.pipeline.file), "--export", str(tmp_path / "export"), "--settle", "0"])
    assert code == Exit.DONE, capsys.readouterr().out
