"""What a reading task tells the driver of its rows."""

from __future__ import annotations

from spark_jobs.change_log_schema import CHANGE, LOAD_MAJOR, REJECTED, LogRow
from spark_jobs.read_task import Notes
from spark_jobs.sources.decoded import MirroredTable
from spark_jobs.sources.formats import Reading

TABLES = {"dbo.a": MirroredTable("dbo.a", ("id",)), "dbo.log": MirroredTable("dbo.log", ())}
LOADED, CHANGED = f"{LOAD_MAJOR}:0:1", f"{'1' * 35}:0:1"


def row(kind: str, place: int, pos: str, table: str | None = "dbo.a", origin: str = "t/0", **more: str) -> LogRow:
    return LogRow(kind, origin, place, table, pos=pos, **more)  # type: ignore[arg-type]


def test_the_last_row_of_a_load_and_the_first_change_are_told_for_each_partition_k18() -> None:
    notes = Notes(TABLES, Reading("qlik-message"))
    notes.take([row(CHANGE, 3, LOADED), row(CHANGE, 9, CHANGED), row(CHANGE, 7, LOADED, origin="t/1")])
    notes.take([row(CHANGE, 5, LOADED), row(CHANGE, 8, CHANGED), row(CHANGE, 1, CHANGED, "dbo.log")])
    assert notes.to_dict()["reloads"] == {
        "dbo.a": {"t/0": [5, 8], "t/1": [7, None]},
        "dbo.log": {"t/0": [None, 1]},
    }


def test_a_source_without_loads_of_its_own_tells_none() -> None:
    notes = Notes(TABLES, Reading("sqlserver-ces"))
    notes.take([row(CHANGE, 3, LOADED)])
    assert notes.to_dict()["reloads"] == {}


def test_dead_letters_that_hide_a_table_or_its_key_are_told() -> None:
    """A dead letter without table concerns the mirror, one without key its table; a table without key has none."""
    notes = Notes(TABLES, Reading("sqlserver-ces"))
    at = {"code": "KEY_INVALID", "reason": "no number"}
    notes.take([row(REJECTED, 1, CHANGED, None, **at), row(REJECTED, 2, CHANGED, "dbo.log", **at)])
    notes.take(
        [row(REJECTED, 3, CHANGED, **at), row(REJECTED, 4, CHANGED, **at), row(REJECTED, 5, CHANGED, key='["1"]')]
    )
    told = notes.to_dict()
    assert told["homeless_rejects"] == 1
    assert told["keyless_rejects"] == {"dbo.a": {**at, "at": "t/0:3"}}
