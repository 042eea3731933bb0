"""G-86, G-114: what a load brought against the type that a change tells."""

from __future__ import annotations

import pyarrow as pa
import pytest

from open_mirroring.landing_zone.load_columns import LoadColumn, columns_of_both
from open_mirroring.ledger.load_ledger import LoadPlan
from spark_jobs.plan.loaded_columns import LoadedColumn, doubt, doubt_by_deletes, loaded_columns, may_lack_digits
from spark_jobs.sources.exports.columns import landing_column
from spark_jobs.sources.sql_server.chosen_types import spelled_as_streamed

US, MS = pa.timestamp("us"), pa.timestamp("ms")


def loaded(
    kind: pa.DataType, sql_type: str | None = None, shortest: int | None = None, *, key: bool = False
) -> LoadedColumn:
    return LoadedColumn(landing_column("c", kind, sql_type), shortest, key)


@pytest.mark.parametrize(
    ("one", "sql_type"),
    [
        (loaded(US), "datetimeoffset(3)"),
        (loaded(pa.string(), "datetime2(3)"), "datetimeoffset(3)"),
        (loaded(pa.timestamp("us", "Europe/Berlin")), "datetime"),
        (loaded(pa.timestamp("us", "+01:00")), "datetime2(7)"),
        (loaded(pa.string(), shortest=32), "uniqueidentifier"),
        (loaded(pa.string(), shortest=8, key=True), "time(7)"),
        (loaded(pa.string(), shortest=8), "time(7)"),
        (loaded(pa.string(), shortest=18), "time(7)"),
        (loaded(pa.string(), shortest=2), "char(5)"),
        (loaded(pa.binary(), shortest=2), "binary(4)"),
    ],
)
def test_what_can_be_two_things_is_found_g86_g114(one: LoadedColumn, sql_type: str) -> None:
    assert doubt(one, sql_type)


@pytest.mark.parametrize(
    ("one", "sql_type"),
    [
        (loaded(US), "datetime2(7)"),
        (loaded(US, "datetimeoffset(3)"), "datetimeoffset(3)"),
        (loaded(pa.timestamp("us", "UTC")), "datetime2(7)"),
        (loaded(pa.timestamp("us", "Europe/Berlin")), "datetimeoffset(7)"),
        (loaded(pa.timestamp("us", "Europe/Berlin"), "datetime2(3)"), "datetime2(3)"),
        (loaded(pa.string(), shortest=36), "uniqueidentifier"),
        (loaded(pa.string(), shortest=16), "time(7)"),
        (loaded(pa.string(), shortest=8, key=True), "time(0)"),
        (loaded(pa.string(), shortest=0), "varchar(5)"),
        (loaded(pa.int64()), "geography"),
    ],
)
def test_what_is_said_or_sound_is_not_g114(one: LoadedColumn, sql_type: str) -> None:
    assert not doubt(one, sql_type)


@pytest.mark.parametrize(
    ("own", "streamed", "is_alike"),
    [
        ("datetime2(3)", "datetime2(7)", False),
        ("datetime2(3)", "datetime", True),
        ("datetime2(0)", "smalldatetime", True),
        ("datetimeoffset(3)", "datetimeoffset(7)", False),
        ("datetimeoffset(3)", "datetime2(3)", False),
        ("date", "datetime2(0)", False),
        ("date", "date", True),
        ("decimal(9,2)", "decimal(20,4)", False),
        ("decimal(9,2)", "decimal(20,2)", True),
        ("numeric(9,0)", "bigint", True),
        ("decimal(19,4)", "money", True),
        ("float", "float(53)", True),
        ("real", "float", False),
        ("varbinary(max)", "binary(4)", True),
        ("bit", "int", True),
        ("time(3)", "time(7)", False),
        ("time", "time(7)", True),
        ("varchar(30)", "time(7)", False),
        ("nvarchar(36)", "uniqueidentifier", False),
        ("varchar(30)", "nvarchar(max)", True),
    ],
)
def test_texts_with_other_digits_are_found_where_a_column_lands_as_text_g114(
    own: str, streamed: str, is_alike: bool
) -> None:
    column = LoadColumn("c", "string", own)
    for is_key in (False, True):
        assert (doubt(LoadedColumn(column, None, is_key), streamed) == "") is is_alike
    assert doubt(LoadedColumn(column._replace(type="timestamp"), None, False), streamed) == "" or "offset" in streamed


@pytest.mark.parametrize(
    ("own", "streamed", "spelled"),
    [
        ("datetime2(6)", "datetime2(3)", "datetime2(3)"),
        ("datetime2(6)", "datetime", "datetime"),
        ("decimal(9,2)", "decimal(9,4)", "decimal(9,4)"),
        ("date", "datetime2(3)", "date"),
        ("datetimeoffset(6)", "datetime2(3)", "datetimeoffset(6)"),
        ("time(6)", "time(7)", "time(7)"),
        ("varchar(40)", "datetime2(7)", "datetime2(7)"),
        ("datetime2(6)", None, "datetime2(6)"),
    ],
)
def test_a_database_is_read_with_the_digits_of_the_changes_g114(own: str, streamed: str | None, spelled: str) -> None:
    story = {} if streamed is None else {"c": streamed}
    text = LoadColumn("c", "string", own)
    assert spelled_as_streamed([text], story)[0].sql_type == spelled
    assert spelled_as_streamed([text._replace(type="timestamp")], story)[0].sql_type == own, "its value has no digits"


def test_times_in_milliseconds_may_lack_digits_g114() -> None:
    assert may_lack_digits(landing_column("c", MS, None), "datetime2(7)")
    assert not may_lack_digits(landing_column("c", MS, None), "datetime")
    assert not may_lack_digits(landing_column("c", US, None), "datetime2(7)")


def test_deletes_alone_show_the_type_of_a_key_g114() -> None:
    keys = {"id": loaded(pa.string(), shortest=2, key=True)}
    lists = {"gone": '[["id","char(5)",0]]', "kept": '[["id","varchar(5)",0]]'}
    rows = {name: pa.table({"op": ["D"], "cols": [text]}) for name, text in lists.items()}
    found = doubt_by_deletes(keys, rows["gone"])
    assert "is char(5)" in found
    assert not doubt_by_deletes(keys, rows["kept"])
    assert not doubt_by_deletes({}, rows["gone"])


def test_files_of_one_export_may_hold_times_in_other_ways_g114() -> None:
    one, other = landing_column("c", US, None), landing_column("c", pa.timestamp("ms", "+01:00"), None)
    both = columns_of_both([one], [other])
    assert both is not None and both[0].held == ["milliseconds", "wall clock", "zone"]
    assert columns_of_both([one], [LoadColumn("c", "date")]) is None
    plan = LoadPlan("", both, (), shortest={"c": 3})
    assert loaded_columns(plan, ["c"])["c"] == LoadedColumn(both[0], 3, True)
    assert loaded_columns(None, ["c"]) == {}
