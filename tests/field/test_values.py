"""Values that other tools spell or store in their own way land exactly, or are named (C-82, G-02, G-110, G-114)."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.field import made
from tests.field.trial import Trial

MOMENT = datetime(2023, 3, 21, 14, 34, 21, tzinfo=UTC)
ID = {"name": "id", "type": "INT4", "primaryKeyPos": 1}
TS = {"name": "ts", "type": "DATETIME", "scale": 9}


def ticked(trial: Trial, code: int | None = 0) -> str:
    """What the run prints; then the service applies it."""
    loaded = trial.run("initial-load")
    ended = trial.run("tick")
    trial.apply()
    assert code is None or ended.code == code, loaded.text + ended.text
    return loaded.text + ended.text


def column(trial: Trial, table: str, name: str, key: str = "id") -> dict[Any, Any]:
    return {row[key]: row[name] for row in trial.rows(table)}


DIGITS = ["", ".1", ".123456", ".1234567", ".123456000", ".123456789", ".123456789012"]


@pytest.mark.parametrize("way", ["csv", "json", "load csv", "load json", "messages"])
def test_0_to_12_digits_of_a_second_are_read_alike_and_cut_at_the_sixth(way: str, tmp_path: Path) -> None:
    texts = [f"2023-03-21{'T' if at % 2 else ' '}14:34:21{digits}" for at, digits in enumerate(DIGITS)]
    rows = [[at, text, text] for at, text in enumerate(texts)]
    columns = [ID, TS, {"name": "words", "type": "DATETIME", "scale": 0}]
    table: dict[str, Any] = {"source": "dbo.t", "target": "dbo/t", "key": ["id"], "types": {"words": "string"}}
    form = way.split()[-1]
    if way.startswith("load"):
        load = {"format": "qlik-full-load", "path": "data/dbo.t", "stream_from": "beginning"}
        trial = made.mirror(tmp_path / "m", made.CHANGE_FILES, [{**table, "initial_load": load}])
        made.write_load(trial, "dbo.t", columns, rows, form=form)
        made.write_changes(trial, "dbo.t", columns, [("I", 99, texts[0], texts[0])], form=form)
    elif way == "messages":
        trial = made.mirror(tmp_path / "m", made.MESSAGES, [table])
        names = [one["name"] for one in columns]
        sent = [("INSERT", dict(zip(names, row, strict=True)), None) for row in rows]
        made.write_messages(trial, "dbo.t", columns, sent)
    else:
        trial = made.mirror(tmp_path / "m", made.CHANGE_FILES, [table])
        made.write_changes(trial, "dbo.t", columns, [("I", *row) for row in rows], form=form)
    ticked(trial)
    micros = [0, 100_000, *[123_456] * 5]
    found = column(trial, "dbo/t", "ts")
    assert [found[at] for at in range(len(DIGITS))] == [MOMENT.replace(microsecond=one) for one in micros]
    # As text nothing is cut: all digits that the source sent, and at least those of the type.
    tails = ["0000000", "1000000", "1234560", "1234567", "1234560", "123456789", "123456789012"]
    found = column(trial, "dbo/t", "words")
    assert [found[at] for at in range(len(DIGITS))] == [f"2023-03-21T14:34:21.{tail}" for tail in tails]


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_parquet_of_a_qlik_task_is_read_in_every_unit(unit: str, tmp_path: Path) -> None:
    table = {"source": "dbo.t", "target": "dbo/t", "key": ["id"]}
    trial = made.mirror(tmp_path / "m", made.CHANGE_FILES, [table])
    columns = [ID, TS, {"name": "t", "type": "TIME"}, {"name": "d", "type": "DATE"}, {"name": "n", "type": "INT8"}]
    per = {"ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    kinds = {
        **{"ts": pa.timestamp(unit), "t": pa.time32(unit) if unit == "ms" else pa.time64(unit)},
        **{"d": pa.timestamp(unit), "n": pa.decimal128(20, 2)},
    }
    seconds = int(MOMENT.timestamp())
    row = ("I", 1, seconds * per + 123_456_789 * per // 10**9, 45_296 * per + 1, 86_400 * per, Decimal("7.00"))
    made.write_changes(trial, "dbo.t", columns, [row], form="parquet", kinds=kinds)
    ticked(trial)
    (found,) = trial.rows("dbo/t")
    assert found["ts"] == MOMENT.replace(microsecond=123_000 if unit == "ms" else 123_456)
    assert found["t"] == f"12:34:56.{1:0{len(str(per)) - 1}d}"
    assert (found["d"], found["n"]) == (date(1970, 1, 2), 7)


@pytest.mark.parametrize("way", ["csv", "json", "parquet", "messages"])
def test_a_key_with_nine_digits_stops_only_where_a_lost_digit_is_not_0(way: str, tmp_path: Path) -> None:
    key = {**TS, "primaryKeyPos": 1}
    columns = [key, {"name": "v", "type": "INT4"}]
    tables = [
        {"source": "dbo.good", "target": "dbo/good", "key": ["ts"]},
        {"source": "dbo.lost", "target": "dbo/lost", "key": ["ts"]},
        {"source": "dbo.text", "target": "dbo/text", "key": ["ts"], "types": {"ts": "string"}},
    ]
    source = made.MESSAGES if way == "messages" else made.CHANGE_FILES
    trial = made.mirror(tmp_path / "m", source, tables)
    whole, fine = "2023-03-21 14:34:21.123456000", "2023-03-21 14:34:21.123456789"
    for at, (table, text) in enumerate((("good", whole), ("lost", fine), ("text", fine))):
        if way == "messages":
            continue
        nanos = int(MOMENT.timestamp()) * 10**9 + int(text[-9:])
        value = nanos if way == "parquet" else text
        rows = [("I", value, 1), ("I", value - value % 10**9 if way == "parquet" else text[:19], 2), ("D", value, None)]
        made.write_changes(
            trial, f"dbo.{table}", columns, rows, form=way, kinds={"ts": pa.timestamp("ns")}, first=10 * at + 1
        )
    if way == "messages":
        for name, text in (("good", whole), ("lost", fine), ("text", fine)):
            alone = made.mirror(tmp_path / name, source, [one for one in tables if name in str(one["source"])])
            sent: list[Any] = [("INSERT", {"ts": text, "v": 1}, None), ("INSERT", {"ts": text[:19], "v": 2}, None)]
            made.write_messages(alone, f"dbo.{name}", columns, [*sent, ("DELETE", None, {"ts": text, "v": 1})])
            said = ticked(alone, 3 if name == "lost" else 0)
            _check_keys(alone, name, said)
        return
    said = ticked(trial, 3)
    for name in ("good", "lost", "text"):
        _check_keys(trial, name, said)


def _check_keys(trial: Trial, name: str, said: str) -> None:
    if name == "good":
        assert trial.rows("dbo/good") == [{"ts": MOMENT, "v": 2}]
    elif name == "text":
        assert trial.rows("dbo/text") == [{"ts": "2023-03-21T14:34:21.0000000", "v": 2}]
    else:
        assert "dbo.lost: KEY_UNKNOWN" in said and "more than 6 digits of a second" in said


IMPOSSIBLE = ["0000-00-00 00:00:00", "9999-12-31 24:00:00", "10000-01-01 00:00:00", "-4712-01-01 00:00:00"]


@pytest.mark.parametrize("form", ["csv", "json"])
def test_impossible_dates_are_dead_letters_and_land_where_types_says_string(form: str, tmp_path: Path) -> None:
    table: dict[str, Any] = {"source": "dbo.t", "target": "dbo/t", "key": ["id"]}
    trial = made.mirror(tmp_path / "m", made.CHANGE_FILES, [table])
    columns = [ID, TS, {"name": "d", "type": "DATE"}, {"name": "t", "type": "TIME"}]
    rows = [("I", at, text, text[:-9], "24:00:00") for at, text in enumerate(IMPOSSIBLE)]
    rows.append(("I", 9, "2023-03-21 14:34:21", "2023-03-21 00:00:00", "-838:59:59"))
    made.write_changes(trial, "dbo.t", columns, rows, form=form)
    said = ticked(trial, 6)
    assert "is no datetime2" in said and "`types: {column: string}` lands it as text" in said
    assert trial.rows("dbo/t") == [{"id": 9, "ts": MOMENT, "d": date(2023, 3, 21), "t": "-838:59:59"}]
    text = made.mirror(tmp_path / "text", made.CHANGE_FILES, [{**table, "types": {"ts": "string", "d": "string"}}])
    made.write_changes(text, "dbo.t", columns, rows, form=form)
    ticked(text)
    found = {row["id"]: (row["ts"], row["d"], row["t"]) for row in text.rows("dbo/t")}
    assert found == {
        0: ("0000-00-00T00:00:00.0000000", "0000-00-00", "24:00:00"),
        1: ("9999-12-31T24:00:00.0000000", "9999-12-31", "24:00:00"),
        2: ("10000-01-01T00:00:00.0000000", "10000-01-01", "24:00:00"),
        3: ("-4712-01-01T00:00:00.0000000", "-4712-01-01", "24:00:00"),
        9: ("2023-03-21T14:34:21.0000000", "2023-03-21", "-838:59:59"),
    }


def test_a_zero_date_as_key_lands_as_text_and_is_found_again(tmp_path: Path) -> None:
    table = {"source": "dbo.t", "target": "dbo/t", "key": ["d"], "types": {"d": "string"}}
    trial = made.mirror(tmp_path / "m", made.CHANGE_FILES, [table])
    columns = [{"name": "d", "type": "DATE", "primaryKeyPos": 1}, {"name": "v", "type": "INT4"}]
    rows = [("I", "0000-00-00", 1), ("I", "2023-00-00", 1), ("D", "2023-00-00 00:00:00.000000", 1)]
    made.write_changes(trial, "dbo.t", columns, rows)
    ticked(trial)
    assert trial.rows("dbo/t") == [{"d": "0000-00-00", "v": 1}]


NODE = [("node", "hierarchyid"), ("any", "sql_variant"), ("flag", "dbo.Flag"), ("place", "geometry"), ("v", "int")]


def _nodes(first: int = 1, *, table: str = "dbo.t") -> list[str]:
    def row(node: str, v: int) -> dict[str, str | None]:
        return {"node": node, "any": "3.50", "flag": "1", "place": "POINT (1 2)", "v": str(v)}

    return [
        made.event(first, table, NODE, ["node"], row("/1/", 1)),
        made.event(first + 1, table, NODE, ["node"], row("/1/2/", 1)),
        made.event(first + 2, table, NODE, ["node"], row("/1/", 2), row("/1/", 1)),
        made.event(first + 3, table, NODE, ["node"], None, row("/1/2/", 1)),
    ]


TEXTS = dict.fromkeys(("node", "any", "flag", "place"), "string")
LANDED = [{"node": "/1/", "any": "3.50", "flag": "1", "place": "POINT (1 2)", "v": 2}]


def test_types_that_cannot_be_mirrored_land_as_they_were_sent_also_as_key(tmp_path: Path) -> None:
    table: dict[str, Any] = {"source": "dbo.t", "target": "dbo/t", "key": ["node"]}
    trial = made.mirror(tmp_path / "m", made.CES, [{**table, "types": TEXTS}])
    made.write_events(trial, _nodes())
    assert trial.run("check", "--sample", "100").code == 0
    ticked(trial)
    assert trial.rows("dbo/t") == LANDED


def test_a_key_that_cannot_be_mirrored_is_read_once_types_says_string(tmp_path: Path) -> None:
    table: dict[str, Any] = {"source": "dbo.t", "target": "dbo/t", "key": ["node"]}
    trial = made.mirror(tmp_path / "m", made.CES, [table])
    made.write_events(trial, _nodes())
    said = ticked(trial, 3)
    assert "land it as text (`types: {column: string}`)" in said
    assert "leave the column out" not in said
    made.write_mirror(trial, made.CES, [{**table, "types": TEXTS}])
    ticked(trial, None)
    ticked(trial)
    assert trial.rows("dbo/t") == LANDED


def test_a_column_that_cannot_be_mirrored_is_built_from_the_log_once_types_says_string(tmp_path: Path) -> None:
    table: dict[str, Any] = {"source": "dbo.t", "target": "dbo/t", "key": ["id"]}
    trial = made.mirror(tmp_path / "m", made.CES, [table])
    columns = [("id", "int"), ("flag", "dbo.Flag")]
    made.write_events(trial, [made.event(1, "dbo.t", columns, ["id"], {"id": "1", "flag": "yes"})])
    said = ticked(trial, 3)
    assert "TYPE_UNSUPPORTED" in said
    assert "types: {column: string}" in trial.run("status").text
    made.write_mirror(trial, made.CES, [{**table, "types": {"flag": "string"}}])
    trial.run("resume", "--table", "dbo.t", "--why", "lands as text")
    ticked(trial)
    assert trial.rows("dbo/t") == [{"id": 1, "flag": "yes"}]


def test_an_export_of_such_a_type_lands_beside_its_changes(tmp_path: Path) -> None:
    load = {"format": "csv", "path": "export", "stream_from": "beginning"}
    table = {"source": "dbo.t", "target": "dbo/t", "key": ["id"], "types": {"id": "string"}}
    trial = made.mirror(
        tmp_path / "m", made.CES, [{**table, "initial_load": {**load, "types": {"id": "varchar(9)", "v": "int"}}}]
    )
    (trial.folder / "export").mkdir()
    (trial.folder / "export" / "a.csv").write_text("id,v\n007,1\n8,1\n")
    columns = [("id", "dbo.Number"), ("v", "int")]
    made.write_events(
        trial,
        [
            made.event(1, "dbo.t", columns, ["id"], {"id": "007", "v": "2"}, {"id": "007", "v": "1"}),
            made.event(2, "dbo.t", columns, ["id"], None, {"id": "8", "v": "1"}),
        ],
    )
    ticked(trial)
    assert trial.rows("dbo/t") == [{"id": "007", "v": 2}]


@pytest.mark.parametrize("way", ["csv", "messages"])
def test_a_qlik_type_that_cannot_be_mirrored_lands_as_text(way: str, tmp_path: Path) -> None:
    columns = [{"name": "id", "type": "XML", "primaryKeyPos": 1}, {"name": "v", "type": "INT4"}]
    table = {"source": "dbo.t", "target": "dbo/t", "key": ["id"], "types": {"id": "string"}}
    trial = made.mirror(tmp_path / "m", made.MESSAGES if way == "messages" else made.CHANGE_FILES, [table])
    if way == "csv":
        made.write_changes(trial, "dbo.t", columns, [("I", "<a/>", 1), ("I", "<b/>", 1), ("D", "<a/>", None)])
    else:
        sent: list[Any] = [("INSERT", {"id": text, "v": 1}, None) for text in ("<a/>", "<b/>")]
        made.write_messages(trial, "dbo.t", columns, [*sent, ("DELETE", None, {"id": "<a/>", "v": 1})])
    ticked(trial)
    assert trial.rows("dbo/t") == [{"id": "<b/>", "v": 1}]


def test_a_file_that_holds_times_of_day_stops_where_the_source_has_texts(tmp_path: Path) -> None:
    load = {
        "format": "parquet",
        "path": "export",
        "stream_from": "beginning",
        "types": {"id": "int", "t": "varchar(20)"},
    }
    trial = made.mirror(
        tmp_path / "m", made.CES, [{"source": "dbo.t", "target": "dbo/t", "key": ["id"], "initial_load": load}]
    )
    (trial.folder / "export").mkdir()
    made.write_parquet(
        trial.folder / "export" / "a.parquet", {"id": [1], "t": pa.array([3_600_000_000], pa.time64("us"))}
    )
    columns = [("id", "int"), ("t", "varchar(20)")]
    made.write_events(trial, [made.event(1, "dbo.t", columns, ["id"], {"id": "2", "t": "1 AM"})])
    said = ticked(trial, 3)
    assert "VALUE_INVALID" in said and "times of day" in said


def test_the_field_inputs_end_equal(shared_data: Path, tmp_path: Path) -> None:
    """Issue 28: what is exact in another Arrow type, nine digits, alias types, 24:00:00 and zero dates."""
    days = datetime(2026, 1, 1, 10, tzinfo=UTC)
    wanted: dict[str, dict[str, dict[Any, Any]]] = {
        "D2_load": {
            "dbo/t_us_varchar.t": {1: "10:11:12.123456", 9: "01:02:03.000001"},
            "dbo/t_us_time6.t": {1: "10:11:12.123456", 9: "01:02:03.000001"},
            "dbo/t_ms_time3.t": {1: "10:11:12.123", 9: "01:02:03.001"},
            "dbo/price_double.p": {1: Decimal("9.99"), 9: Decimal("1.50")},
            "dbo/qty_double.q": {1: 5, 9: 7},
            "dbo/bit_int8.b": {1: True, 9: False},
            "dbo/date_as_ts.d": {1: date(2026, 1, 1), 9: date(2026, 11, 20)},
            "dbo/dec256.p": {1: Decimal("9.99"), 9: Decimal("1.50")},
            "dbo/half.p": {1: 1.5, 9: 1.5},
        },
        "D_load": {
            "dbo/duck.t": {1: "10:11:12.123456", 9: "01:02:03.000001"},
            "dbo/duck2.t": {1: "10:11:12.123456", 9: "01:02:03.000001"},
            "dbo/frame3.qty": {1: 5, 2: None, 9: 3},
            "dbo/frame3.price": {1: Decimal("9.99"), 2: Decimal("0.10"), 9: Decimal("1.50")},
        },
        "B_qmsg": {"app/q03.t": {1: "23:59:59", 2: "24:00:00"}},
        "C_ct": {"dbo/nine.ts": {1: MOMENT.replace(microsecond=123_456), 2: MOMENT}},
        "H_qlik": {
            "dbo/fl_nine.ts": {1: MOMENT.replace(microsecond=123_456), 2: MOMENT, 3: MOMENT},
            "dbo/json_nine.ts": {1: MOMENT.replace(microsecond=123_456), 2: MOMENT.replace(microsecond=123_456)},
            "dbo/weird.t": {**dict.fromkeys((1, 3, 4, 5), "10:00:00"), 2: "24:00:00"},
        },
        "A_ces": {"Sales/SalesOrderHeader.SalesOrderNumber/SalesOrderID": {1: "SO1"}},
        "X_hkey": {"Production/Document.Title/DocumentNode": {"/1/": "u"}, "dbo/Customer.Name/CustomerId": {"7": "n"}},
        "T_csv": {
            "dbo/exp.price": {1: Decimal("1.50"), 9: Decimal("1.00")},
            "dbo/iso_z.at": {1: days, 9: datetime(2026, 11, 20, 8, tzinfo=UTC)},
            "dbo/iso_ms_z.at": {1: days, 9: datetime(2026, 11, 20, 8, tzinfo=UTC)},
        },
    }
    for folder, tables in wanted.items():
        trial = Trial.of(folder, shared_data, tmp_path)
        ticked(trial, None)
        for place, values in tables.items():
            table, _, rest = place.partition(".")
            name, _, key = rest.partition("/")
            assert column(trial, table, name, key or "id") == values, place
