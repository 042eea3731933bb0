"""Change tables in a real PostgreSQL: ranges, exact values, what arrives late, a connection that breaks."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from open_mirroring.changes.column_choice import ColumnChoice
from open_mirroring.changes.manifest import BoundRange, FileVersion
from open_mirroring.config.connections import resolve
from open_mirroring.config.names import SourceName
from open_mirroring.errors import TerminalError, TransientError
from spark_jobs.changelog.arrow_schema import LOG_SCHEMA
from spark_jobs.changelog.schema import LogRow
from spark_jobs.extract.read_task import LogTarget, begin_log
from spark_jobs.sources.contract.decoded import MirroredTable
from spark_jobs.sources.contract.source import Found
from spark_jobs.sources.jdbc import postgres_client
from spark_jobs.sources.jdbc.dialects import PostgreSql
from spark_jobs.sources.jdbc.postgres_client import rows_of
from spark_jobs.sources.qlik.change_table.format import ChangeTableFormat
from spark_jobs.sources.qlik.change_table.jdbc import (
    ChangeTables,
    NamedChangeTable,
    overlapping_start,
)
from spark_jobs.sources.qlik.change_table.jdbc_table import Slice
from spark_jobs.sources.qlik.positions import qlik_position
from tests.postgres import PostgresServer
from tests.qlik_change_rows import sequence
from tests.qlik_change_tables_sql import (
    apply_exception,
    control_table_statements,
    suspended,
)
from tests.spark.test_initial_load_jdbc import HOSTILE_COLUMN, Cable, connect
from workload_generator.tables import TableDef

READING = ChangeTableFormat()
HEADER = (
    "header__change_seq varchar(35), header__change_oper varchar(1), header__change_mask bytea, "
    "header__partition_name varchar(50), id int, name text"
)


@pytest.fixture
def source(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> PostgresServer:
    """The server with an empty change table `shop.items__ct`, and a connection `shop_db` that names it."""
    postgres.execute(
        "DROP SCHEMA IF EXISTS shop CASCADE",
        "CREATE SCHEMA shop",
        f"CREATE TABLE shop.items__ct ({HEADER})",
        "CREATE TABLE shop.attrep_cdc_partitions (server_name text, task_name text, partition_name text, "
        "partition_start_time timestamp, partition_end_time timestamp, table_owner text, table_name text)",
    )
    connect(monkeypatch, postgres, postgres.port)
    return postgres


def place(*sources: str, **settings: Any) -> ChangeTables:
    named = {name: NamedChangeTable(*f"{name}__ct".split(".")) for name in sources or ("shop.items",)}
    return ChangeTables("shop_db", named, **settings)


def partitioned(**settings: Any) -> ChangeTables:
    return place(control=SourceName("shop", "attrep_cdc_partitions"), **settings)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def insert(server: PostgresServer, number: int, oper: str, id_: int, name: str, partition: str | None = None) -> None:
    part = "NULL" if partition is None else quoted(partition)
    server.execute(
        f"INSERT INTO shop.items__ct VALUES ('{sequence(number)}', '{oper}', NULL, {part}, {id_}, {quoted(name)})"
    )


def close(server: PostgresServer, partition: str, table: str = "items__ct") -> None:
    values = f"'S', 'task', {quoted(partition)}, now(), now(), 'shop', '{table}'"
    server.execute(f"INSERT INTO shop.attrep_cdc_partitions VALUES ({values})")


def bound_of(*ranges: BoundRange) -> dict[str, int]:
    """What the ledger says after these ranges were bound."""
    bound: dict[str, int] = {}
    for one in ranges:
        bound[one.name] = max(bound.get(one.name, 0), one.end)
    return bound


def read(spark: Any, at: ChangeTables, ranges: list[BoundRange], folder: Path, key: str = "id") -> list[LogRow]:
    tables = {source: MirroredTable(source, (key,)) for source in at.tables}
    parts = at.read(spark, ranges, partial(begin_log, READING, tables, LogTarget(folder, 1, "a", 5)), "test")
    assert len(parts) == len(ranges)
    counted = [part.counts for part in parts]
    for counts in counted:
        assert counts.get("messages", 0) == sum(
            counts.get(kind, 0) for kind in ("changes", "fragments", "metadata", "ignored", "rejected")
        )
    files = [str(folder / file["path"]) for part in parts for file in part.written.files]
    if not files:
        return []
    lines = ds.dataset(files, format="parquet", schema=LOG_SCHEMA).to_table(columns=list(LogRow._fields)).to_pylist()
    return sorted((LogRow(**line) for line in lines), key=lambda row: (row.pos or "", row.origin, row.place))


def test_t18_intervals_of_change_seq_overlap_and_nothing_new_is_no_range(
    tmp_path: Path, spark, source: PostgresServer
) -> None:
    """T-18: a lower sequence committed after the last read is found by the overlap."""
    at = place()
    assert at.find(spark, {}) == Found([], [])
    insert(source, 5, "I", 1, "one")
    (first,) = at.find(spark, {}).ranges
    assert first == BoundRange("shop.items__ct", 0, int(sequence(5)) + 1)
    assert [row.key for row in read(spark, at, [first], tmp_path / "1")] == ['["1"]']
    assert at.find(spark, bound_of(first)).ranges == []
    insert(source, 4, "I", 2, "late")
    insert(source, 6, "I", 3, "new")
    (second,) = at.find(spark, bound_of(first)).ranges
    assert (second.start, second.end) == (int("2024010111500000" + "0" * 19), int(sequence(6)) + 1)
    rows = read(spark, at, [second], tmp_path / "2")
    assert [(row.pos, row.key) for row in rows] == [
        (qlik_position(sequence(4), 1), '["2"]'),
        (qlik_position(sequence(5), 1), '["1"]'),
        (qlik_position(sequence(6), 1), '["3"]'),
    ]
    assert {(row.origin, row.tbl) for row in rows} == {("shop.items__ct", "shop.items")}


@pytest.mark.parametrize(
    ("end", "minutes", "start"),
    [
        ("2024010100050000" + "7" * 19, 10, "2023123123550000" + "0" * 19),
        ("2024010100050042" + "7" * 19, 0, "2024010100050042" + "0" * 19),
        ("0001010100050000" + "7" * 19, 10, "0" * 35),
        ("9" * 35, 10, "0" * 35),
    ],
)
def test_t18_the_overlap_is_counted_in_the_time_part(end: str, minutes: int, start: str) -> None:
    """T-10: the time part orders and is no clock; where it is no time at all, everything is read again."""
    assert overlapping_start(int(end), minutes) == int(start)


def test_t34_closed_partitions_are_caught_up_and_open_ones_wait(tmp_path: Path, spark, source: PostgresServer) -> None:
    """T-18, T-34: one range per closed partition, whether the control table names the table with suffix or without."""
    at = partitioned()
    for number, partition in enumerate(("p1", "p2", "o'pen", "empty", "p5"), 1):
        insert(source, number, "I", number, partition, partition)
    source.execute("DELETE FROM shop.items__ct WHERE name = 'empty'")
    close(source, "p1")
    close(source, "p2", table="items")
    close(source, "empty")
    close(source, "p1", table="other")
    found = at.find(spark, {}).ranges
    assert found == [BoundRange(f"shop.items__ct/{p}", 0, e) for p, e in (("empty", 1), ("p1", 2), ("p2", 2))]
    assert [row.key for row in read(spark, at, found, tmp_path / "1")] == ['["1"]', '["2"]']
    assert at.find(spark, bound_of(*found)).ranges == []
    close(source, "o'pen")
    (last,) = at.find(spark, bound_of(*found)).ranges
    (row,) = read(spark, at, [last], tmp_path / "2")
    assert (row.key, row.origin) == ('["3"]', "shop.items__ct/o'pen")


def test_t90_a_partition_that_has_ended_and_is_not_listed_is_not_awaited_in_silence(
    spark, source: PostgresServer
) -> None:
    """The control table is half filled: each run says what waits; the newest partition is just open."""
    at = partitioned()
    names = [f"20240101T{h:02d}0000_20240101T{h + 1:02d}0000" for h in range(4)]
    for number, partition in enumerate((*names, "p5"), 1):
        insert(source, number, "I", number, "x", partition)
    close(source, names[0])
    close(source, names[2])
    found = at.find(spark, {})
    assert [one.name for one in found.ranges] == [f"shop.items__ct/{names[at]}" for at in (0, 2)]
    assert (found.waiting, [*found.overdue]) == ([f"shop.items__ct/{names[1]}"],) * 2
    assert not at.find(spark, {f"shop.items__ct/{names[1]}": 2}).overdue, "it was read: its line may go"


def test_t90_partitions_are_one_whatever_blanks_stand_behind_their_names(
    tmp_path: Path, spark, source: PostgresServer
) -> None:
    at = partitioned()
    source.execute("ALTER TABLE shop.items__ct ALTER header__partition_name TYPE char(50)")
    insert(source, 1, "I", 1, "x", "p1")
    insert(source, 2, "I", 2, "x", "")
    insert(source, 3, "I", 3, "x")
    close(source, "p1")
    found = at.find(spark, {}).ranges
    assert found == [BoundRange("shop.items__ct/", 0, 3), BoundRange("shop.items__ct/p1", 0, 2)]
    assert [row.key for row in read(spark, at, found, tmp_path)] == ['["1"]', '["2"]', '["3"]']


def test_rows_that_arrive_after_closing_are_found(tmp_path: Path, spark, source: PostgresServer) -> None:
    """T-34: bound again as a whole, and the plan drops what it holds twice; all are looked at."""
    at = partitioned()
    for number, partition in enumerate(("p1", "p2", "p3"), 1):
        insert(source, number, "I", number, "x", partition)
        close(source, partition)
    bound = bound_of(*at.find(spark, {}).ranges)
    insert(source, 9, "I", 9, "late", "p2")
    insert(source, 10, "I", 10, "later still", "p1")
    first, again = at.find(spark, bound).ranges
    assert again == BoundRange("shop.items__ct/p2", 0, 3)
    assert [row.key for row in read(spark, at, [again], tmp_path)] == ['["2"]', '["9"]']
    assert first == BoundRange("shop.items__ct/p1", 0, 3)


def test_as_many_rows_that_came_as_are_gone_from_a_closed_partition_are_found(
    tmp_path: Path, spark, source: PostgresServer
) -> None:
    """T-82: by the range of its change_seq, which a retention moves; where all rows are gone, nothing is read."""
    at, seen = partitioned(), dict[str, FileVersion]()
    for number in (1, 2, 4):
        insert(source, number, "I", number, "x", "p1")
    close(source, "p1")

    def look(bound: dict[str, int]) -> list[BoundRange]:
        found = at.find(spark, bound, lambda _: seen)
        seen.update(found.versions)
        return found.ranges

    ranges = look({})
    bound = bound_of(*ranges)
    assert (look(bound), seen.keys()) == ([], {"shop.items__ct/p1"})
    source.execute("DELETE FROM shop.items__ct WHERE id = 1")
    insert(source, 3, "I", 3, "late", "p1")
    assert look(bound) == ranges
    assert [row.key for row in read(spark, at, ranges, tmp_path)] == ['["2"]', '["3"]', '["4"]']
    assert look(bound) == []
    source.execute("DELETE FROM shop.items__ct")
    assert look(bound) == [], "nothing is left to be read"


@pytest.mark.parametrize("change_table", ["shop.ITEMS__ct", '"Shop".items__ct', "shop.items__CT"])
def test_t62_a_change_table_of_another_case_is_refused(spark, source: PostgresServer, change_table: str) -> None:
    """T-01: one that is not there yet is waited for; one that only differs in case would be waited for for ever."""
    schema, _, name = change_table.partition(".")
    source.execute(
        "DROP TABLE shop.items__ct",
        'DROP SCHEMA IF EXISTS "Shop" CASCADE',
        'CREATE SCHEMA "Shop"',
        "CREATE TABLE shop.other__ct (id int)",
    )
    assert place().find(spark, {}).waiting == ["shop.items__ct"]
    source.execute(f'CREATE TABLE {schema}."{name}" ({HEADER})')
    found = place().find(spark, {})
    source.execute('DROP SCHEMA "Shop" CASCADE')
    assert (found.ranges, found.waiting, [one.code for one in found.refused.values()]) == (
        [],
        [],
        ["TABLE_NAME_DIFFERS"],
    )
    assert name in found.refused["shop.items"].what


@pytest.mark.parametrize(("owner", "table"), [("SHOP", "items__ct"), ("shop", "Items"), ("Shop", "ITEMS__CT")])
def test_t62_a_control_table_that_names_it_in_another_case_is_read(
    spark, source: PostgresServer, owner: str, table: str
) -> None:
    insert(source, 1, "I", 1, "x", "p1")
    source.execute(
        f"INSERT INTO shop.attrep_cdc_partitions (partition_name, table_owner, table_name) "
        f"VALUES ('p1', '{owner}', '{table}')"
    )
    assert partitioned().find(spark, {}).ranges == [BoundRange("shop.items__ct/p1", 0, 2)]


def test_t18_a_change_table_that_counts_from_below_what_was_read_is_refused(spark, source: PostgresServer) -> None:
    """Made anew or restored: its rows would never be read; an emptied one is a reload, and waits for new rows."""
    insert(source, 5, "I", 1, "one")
    (first,) = place().find(spark, {}).ranges
    source.execute("DELETE FROM shop.items__ct")
    assert place().find(spark, bound_of(first)) == Found([], [])
    insert(source, 4, "I", 2, "below")
    found = place().find(spark, bound_of(first))
    assert (found.ranges, found.refused["shop.items"].code) == ([], "CHANGES_WENT_BACK")
    insert(source, 6, "I", 3, "above")
    assert place().find(spark, bound_of(first)).ranges[0].end == int(sequence(6)) + 1


def test_rows_from_before_partitioning_are_read_too(tmp_path: Path, spark, source: PostgresServer) -> None:
    at = partitioned()
    insert(source, 1, "I", 1, "old")
    (found,) = at.find(spark, {}).ranges
    assert found == BoundRange("shop.items__ct/", 0, 2)
    assert [row.key for row in read(spark, at, [found], tmp_path)] == ['["1"]']
    assert at.find(spark, bound_of(found)).ranges == []


def test_a_table_that_cannot_be_read_stops_alone(spark, source: PostgresServer) -> None:
    """Bad input: the reason is reported, the other tables go on, and what is not there yet is waited for."""
    source.execute(
        f"CREATE TABLE shop.odd__ct ({HEADER}, l int[])",
        "CREATE TABLE shop.bare__ct (header__change_oper varchar(1), id int)",
        f"CREATE TABLE shop.foreign__ct ({HEADER})",
        "INSERT INTO shop.foreign__ct VALUES ('not a sequence', 'I', NULL, NULL, 1, 'x')",
    )
    insert(source, 1, "I", 1, "x")
    found = place("shop.odd", "shop.bare", "shop.foreign", "shop.none", "shop.items").find(spark, {})
    assert {table: error.code for table, error in found.refused.items()} == {
        "shop.odd": "TYPE_UNSUPPORTED",
        "shop.bare": "HEADER_INVALID",
        "shop.foreign": "HEADER_INVALID",
    }
    assert all(error.next_step for error in found.refused.values())
    assert found.waiting == ["shop.none__ct"]
    assert [one.name for one in found.ranges] == ["shop.items__ct"]
    with pytest.raises(TerminalError, match="TABLE_REDECLARED"):
        place().slice_of(BoundRange("shop.gone__ct", 0, 1))
    with pytest.raises(TerminalError, match="PLACE_MISSING"):
        replace(partitioned(), control=SourceName("shop", "nothing")).find(spark, {})


def test_a_column_without_text_keeps_its_place_when_it_is_not_mirrored(
    tmp_path: Path, spark, source: PostgresServer
) -> None:
    """G-12, T-20: the mask counts it."""
    source.execute("ALTER TABLE shop.items__ct ADD l int[], ADD last int")
    source.execute(f"INSERT INTO shop.items__ct VALUES ('{sequence(1)}', 'I', NULL, NULL, 1, 'x', '{{1}}', 7)")
    at = ChangeTables("shop_db", {"shop.items": NamedChangeTable("shop", "items__ct", ColumnChoice(("id", "last")))})
    (found,) = at.find(spark, {}).ranges
    tables = {"shop.items": MirroredTable("shop.items", ("id",), ColumnChoice(("id", "last")))}
    (part,) = at.read(spark, [found], partial(begin_log, READING, tables, LogTarget(tmp_path, 1, "a", 0)), "test")
    (line,) = pq.read_table(tmp_path / part.written.files[0]["path"]).to_pylist()
    assert json.loads(line["row"]) == {"id": "1", "last": "7"}
    assert [index for _, _, index in json.loads(line["cols"])] == [0, 3]


@pytest.mark.usefixtures("way")
def test_values_arrive_exactly_and_names_are_names(tmp_path: Path, spark, source: PostgresServer) -> None:
    """G-06: every value as the database's own text; T-33: a column added later is NULL in older rows."""
    column = '"' + HOSTILE_COLUMN.replace('"', '""') + '"'
    source.execute(
        f'CREATE TABLE shop."o\'d""d__ct" ({HEADER}, {column} numeric(38,10), f double precision, b boolean, '
        "raw bytea, at timestamp(6))",
        f"INSERT INTO shop.\"o'd\"\"d__ct\" VALUES ('{sequence(1)}', 'I', '\\x00', NULL, 1, '', "
        "1234567890123456789012345678.0123456789, 0.1, true, '\\x00ff', '9999-12-31 23:59:59.999999')",
        'ALTER TABLE shop."o\'d""d__ct" ADD added date',
        f'INSERT INTO shop."o\'d""d__ct" (header__change_seq, header__change_oper, id, added) '
        f"VALUES ('{sequence(2)}', 'I', 2, '2024-02-29'), (NULL, 'I', 3, NULL)",
    )
    at = ChangeTables("shop_db", {"shop.odd": NamedChangeTable("shop", "o'd\"d__ct")})
    (found,) = at.find(spark, {}).ranges
    lost, first, second = read(spark, at, [found], tmp_path)
    assert json.loads(first.row or "") == {
        "id": "1",
        "name": "",
        HOSTILE_COLUMN: "1234567890123456789012345678.0123456789",
        "f": "0.1",
        "b": "1",
        "raw": "0x00ff",
        "at": "9999-12-31 23:59:59.999999",
        "added": None,
    }
    assert json.loads(second.row or "")["added"] == "2024-02-29"
    assert (lost.code, lost.tbl, lost.key) == ("HEADER_INVALID", "shop.odd", '["3"]')


ODD_TEXTS = [
    "",
    " ",
    "NULL",
    "\\N",
    "\\.",
    '"',
    '""',
    ",",
    "a\nb\r\nc",
    "\t",
    "'",
    "é😀",
    "\x01\x7f",
    "x" * 5_000,
    None,
]
TYPED_COLUMNS = {
    "a smallint": ["-32768", "0", None],
    "b bigint": ["9223372036854775807", "-1"],
    "c numeric(38,10)": ["1234567890123456789012345678.0123456789", "-0.0000000001", "0"],
    "d real": ["0.1", "3.4028235e38", "1e-45", "NaN"],
    "e double precision": ["0.1", "2.2250738585072014e-308", "-Infinity", "1e22"],
    "f boolean": ["true", "false", None],
    "g date": ["0001-01-01", "9999-12-31", "infinity"],
    "h timestamp(6)": ["9999-12-31 23:59:59.999999", "2024-02-29 00:00:00"],
    "i timestamp with time zone": ["2024-06-30 23:59:59.5-12:30", "0001-01-01 00:00:00+00"],
    "j time(6)": ["23:59:59.999999", "00:00:00"],
    "k uuid": ["00000000-0000-0000-0000-00000000aBcD"],
    "l bytea": ["\\x", "\\x00ff22", None],
    "m char(5)": ["ab", "", "  x"],
    "n varchar(9)": ["ab ", None],
    "o json": ['{"a" : "\\u0041,\\n"}'],
    "p jsonb": ['{"b": [1, null], "a": "\\""}'],
    f'"{HOSTILE_COLUMN.replace(chr(34), chr(34) * 2)}" text': ODD_TEXTS,
}


@pytest.mark.parametrize("partition", [None, "o'p,\"\n", ""])
def test_copy_and_jdbc_bring_the_same_texts(spark: Any, source: PostgresServer, partition: str | None) -> None:
    """G-06: every type, NULL told from an empty text, the same rows in the same order; NULL sequences first."""
    source.execute(f"ALTER TABLE shop.items__ct {', '.join(f'ADD {column}' for column in TYPED_COLUMNS)}")
    connection = source.connect()
    with connection.cursor() as cursor:
        for number in range(2 * len(ODD_TEXTS)):
            values = [column[number % len(column)] for column in TYPED_COLUMNS.values()]
            seq = None if number == 7 else sequence(40 - number // 2)
            head = (seq, "UB"[number % 2], None, partition or None, number, ODD_TEXTS[number % len(ODD_TEXTS)])
            marks = ", ".join(["%s"] * (len(head) + len(values)))
            cursor.execute(f"INSERT INTO shop.items__ct VALUES ({marks})", (*head, *values))
    connection.close()
    table = place().open(spark, "shop.items")
    structure = table.structure()
    one = Slice("shop.items", "items", partition, sequence(0), sequence(99))
    query = table.slice_query(structure, one)
    copied = list(rows_of(resolve("shop_db"), query, SourceName("shop", "items__ct")))
    assert {kind for batch in copied for kind in batch.schema.types} == {pa.string()}

    def story(part: int, batches: Iterable[pa.RecordBatch]) -> bytes:
        return pickle.dumps([row for batch in batches for row in batch.to_pylist()])

    (answer,) = table.read_slices(structure, [one], story)
    found = [row for batch in copied for row in batch.to_pylist()]
    assert found == pickle.loads(answer) and len(found) == 2 * len(ODD_TEXTS)
    order = [(row["c0"] or "", row["c1"]) for row in found]
    assert order == sorted(order) and order[0][0] == ""
    assert {row["c5"] for row in found} == {*ODD_TEXTS}


def test_copied_rows_are_held_block_by_block(
    source: PostgresServer, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is flat in the size of a range: blocks are handed on as they come, none much larger than its limit."""
    monkeypatch.setattr(postgres_client, "BLOCK_BYTES", 10_000)
    query = "SELECT i::text AS c0, repeat('x', 99) AS c1 FROM generate_series(1, 5000) i"
    sizes = [batch.num_rows for batch in rows_of(resolve("shop_db"), query, SourceName("s", "t"))]
    assert sum(sizes) == 5000 and max(sizes) < 110


def test_what_copy_may_meet_is_reported(source: PostgresServer, spark: Any) -> None:
    """A refusal names its SQLSTATE; what the reader of the rows raises stays what it is; nothing tells the password."""
    at = SourceName("shop", "gone__ct")
    with pytest.raises(TerminalError, match=r"SERVICE_REFUSED.*42P01.*shop\.gone__ct") as refused:
        list(rows_of(resolve("shop_db"), "SELECT a, b FROM shop.gone__ct", at))
    assert refused.value.__cause__ is refused.value.__context__ is None
    wrong = replace(resolve("shop_db"), port=1)
    with pytest.raises(TransientError, match="UNREACHABLE") as unreachable:
        list(rows_of(wrong, "SELECT 'a', 'b'", at))
    assert source.password not in str(unreachable.value)

    many = "SELECT repeat('x', 1000) FROM generate_series(1, 90000)"
    others = "FROM pg_stat_activity WHERE query LIKE '%90000%' AND pid <> pg_backend_pid()"
    with pytest.raises(TransientError, match="UNREACHABLE"):
        for _ in rows_of(resolve("shop_db"), many, at):
            source.execute(f"SELECT pg_terminate_backend(pid) {others}")
    with closing(rows_of(resolve("shop_db"), many, at)) as rows:
        assert next(rows).num_rows < 90000


def test_bytes_that_are_no_text_are_reported_and_not_repeated(source: PostgresServer, spark: Any) -> None:
    """G-06: a database in SQL_ASCII takes any bytes for text, and refuses to send them as UTF-8."""
    source.execute(
        "DROP DATABASE IF EXISTS unchecked", "CREATE DATABASE unchecked ENCODING 'SQL_ASCII' TEMPLATE template0"
    )
    at = replace(resolve("shop_db"), schema="unchecked")
    with pytest.raises(TerminalError, match=r"SERVICE_REFUSED.*22021.*shop\.items__ct") as damaged:
        list(rows_of(at, "SELECT 'told' || chr(255), 'b'", SourceName("shop", "items__ct")))
    assert "told" not in str(damaged.value) and damaged.value.__context__ is None


@pytest.mark.usefixtures("way")
def test_a_dropped_connection_keeps_nothing_and_is_worth_another_try(
    tmp_path: Path, spark, source: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D14: a transient error in mid-read; the same range read again is whole."""
    source.execute(
        "INSERT INTO shop.items__ct SELECT '2024010112000000' || lpad(i::text, 19, '0'), 'I', NULL, NULL, i, "
        "repeat('x', 1000) FROM generate_series(1, 3000) i"
    )
    (found,) = place().find(spark, {}).ranges
    with Cable(source.port, cut_after=1_000_000) as cable:
        connect(monkeypatch, source, cable.port)
        with pytest.raises(TransientError, match="UNREACHABLE") as failure:
            read(spark, place(), [found], tmp_path / "cut")
    assert source.password not in str(failure.value)
    connect(monkeypatch, source, source.port)
    assert len(read(spark, place(), [found], tmp_path / "whole")) == 3000


@pytest.fixture(params=["copy", "jdbc"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways in which a database is read; the second is that of databases that are no PostgreSQL."""
    monkeypatch.setattr(PostgreSql, "copies", request.param == "copy")


@pytest.mark.usefixtures("way")
def test_what_control_tables_show_of_tables_in_any_spelling(
    spark, source: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T-81: by the table's name or its change table's, in any case; unreadable ones are reported, never an error."""
    source.execute(*control_table_statements("shop"))
    since = datetime(2024, 1, 1, 12, 30)
    for name in ("ITEMS", "items__ct", "other"):
        source.execute(suspended(TableDef("Shop", name, (), ()), "it's broken", since, "shop"))
    source.execute(apply_exception(TableDef("shop", "items", (), ()), "full", since, "shop"))
    at = place(control_schema="shop")
    found = at.report(spark).signals
    assert found.keys() == {("shop.items", "TABLE_SUSPENDED"), ("shop.items", "TASK_ERRORS")}
    assert "2024-01-01 12:30" in found["shop.items", "TABLE_SUSPENDED"]
    assert "1 errors of it" in found["shop.items", "TASK_ERRORS"]
    assert place().report(spark).signals == {}, "nobody named a schema"
    source.execute(
        "DROP ROLE IF EXISTS weak",
        "CREATE ROLE weak LOGIN PASSWORD 'weak'",
        "GRANT USAGE ON SCHEMA shop TO weak",
        "GRANT SELECT ON shop.attrep_apply_exceptions TO weak",
    )
    login = json.loads(os.environ["AIRFLOW_CONN_SHOP_DB"]) | {"login": "weak", "password": "weak"}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_DB", json.dumps(login))
    found = at.report(spark).signals
    assert found.keys() == {("(any table)", "CONTROL_TABLE_UNREAD"), ("shop.items", "TASK_ERRORS")}
    assert "no attrep_suspended_tables in" in found["(any table)", "CONTROL_TABLE_UNREAD"]
