"""Change tables as files: which files count, what is in them, and how they can be wrong (T-40 to T-44)."""

from __future__ import annotations

import errno
import gzip
import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from open_mirroring.changes.manifest import BoundRange, FileVersion
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.facts.senders import senders_in
from spark_jobs.extract.read_task import Decoding, LogTarget
from spark_jobs.sources.contract.decoded import Damage, MirroredTable, TableDamage
from spark_jobs.sources.contract.source import Found
from spark_jobs.sources.qlik import data_files, delimited
from spark_jobs.sources.qlik.change_table import files
from spark_jobs.sources.qlik.change_table.decoder import QlikChangeTableDecoder
from spark_jobs.sources.qlik.change_table.files import ChangeFiles
from spark_jobs.sources.qlik.change_table.format import ChangeTableFormat
from spark_jobs.sources.qlik.change_table.rows import ChangeRow
from tests.qlik_change_rows import TABLE, decoder, sequence

FOLDER = f"{TABLE}__ct"
COLUMNS = (("header__change_seq", "STRING", 35), ("header__change_oper", "STRING", 1), ("id", "INT4", 10))
COLUMNS += (("name", "STRING", 100), ("price", "NUMERIC", 0), ("note", "CLOB", 0))
HEADER = ",".join(name for name, *_ in COLUMNS)
LINE = f'{sequence(1)},I,1,"a ""b"", c\nd",1.50,'


def dfm(
    name: str = "1.csv",
    records: int = 1,
    columns: Sequence[tuple[str, str, int]] = COLUMNS,
    extension: str = "",
    options: Mapping[str, str] | None = None,
    **data: Any,
) -> bytes:
    described = [
        {"ordinal": at, "name": n, "type": t, "length": size, "precision": 10 if t == "NUMERIC" else 0, "scale": 2}
        for at, (n, t, size) in enumerate(columns, 1)
    ]
    delimited = {"fieldDelimiter": ",", "recordDelimiter": "\n", "nullValue": "", "quoteChar": '"', "escapeChar": '"'}
    schema, table = TABLE.split(".")
    document = {
        "dfmVersion": "1.1",
        "fileInfo": {"name": name, "extension": extension, "content": "changes", "recordCount": records},
        "formatInfo": {"format": "delimited", "options": {**delimited, **(options or {})}},
        "dataInfo": {
            **{"sourceSchema": schema, "sourceTable": table, "targetSchema": schema, "targetTable": f"{table}__ct"},
            **{"tableVersion": 1, "columns": described},
            **data,
        },
    }
    return json.dumps(document).encode()


def put(root: Path, content: bytes, description: bytes | None, name: str = "1.csv", folder: str = FOLDER) -> str:
    path = root / folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    if description is not None:
        (path.parent / f"{name.partition('.')[0]}.dfm").write_bytes(description)
    return f"{folder}/{name}"


def rows_of(root: Path, name: str) -> list[ChangeRow | TableDamage | Damage]:
    size = (root / name).stat().st_size
    return list(ChangeFiles(root).read(BoundRange(name, 0, size)))


def values_of(root: Path, content: bytes, description: bytes, name: str = "1.csv") -> list[tuple[str | None, ...]]:
    found = rows_of(root, put(root, content, description, name))
    assert all(isinstance(one, ChangeRow) for one in found), found
    return [one.values for one in found if isinstance(one, ChangeRow)]


def damage_of(root: Path, content: bytes, description: bytes, name: str = "1.csv") -> tuple[int, TableDamage]:
    *good, last = rows_of(root, put(root, content, description, name))
    assert isinstance(last, TableDamage) and all(isinstance(one, ChangeRow) for one in good)
    return len(good), last


def test_t42_a_file_counts_once_its_metadata_file_is_there_and_complete(tmp_path: Path) -> None:
    content = f"{HEADER}\n{LINE}\n".encode()
    name = put(tmp_path, content, None)
    assert ChangeFiles(tmp_path).find(None, {}) == Found([], [name])
    half = dfm()[:-20]
    put(tmp_path, content, half)
    assert ChangeFiles(tmp_path).find(None, {}) == Found([], [name])
    put(tmp_path, content, dfm())
    bound = BoundRange(name, 0, len(content))
    assert ChangeFiles(tmp_path).find(None, {}) == Found([bound], [])
    assert ChangeFiles(tmp_path).find(None, {name: len(content)}) == Found([], [])


def test_g116_a_file_without_metadata_beside_newer_ones_is_not_awaited_in_silence(tmp_path: Path) -> None:
    """A task writes a metadata file just behind its data file: one that is a minute behind others is late."""
    name, lone = put(tmp_path, GOOD, None), put(tmp_path, GOOD, dfm("2.csv"), "2.csv")
    nothing = put(tmp_path, b"", None, "4.csv")
    (tmp_path / lone).unlink()
    assert ChangeFiles(tmp_path).find(None, {}).overdue == ()
    put(tmp_path, GOOD, dfm("3.csv"), "3.csv")
    assert ChangeFiles(tmp_path).find(None, {}).overdue == ()
    for path in (tmp_path / name, tmp_path / FOLDER / "2.dfm", tmp_path / nothing):
        os.utime(path, (path.stat().st_mtime - 120,) * 2)
    assert ChangeFiles(tmp_path).find(None, {}).overdue == (name, f"{FOLDER}/2.dfm"), "an empty file lacks nothing"


def test_t42_a_file_that_waits_too_long_stops_its_table_and_is_read_once_it_is_complete(tmp_path: Path) -> None:
    name = put(tmp_path, GOOD, None)
    empty = put(tmp_path, b"", dfm("2.csv"), "2.csv")
    nothing = put(tmp_path, b"", None, "3.csv")
    assert ChangeFiles(tmp_path).find(None, {}) == Found([], [name, empty, f"{FOLDER}/2.dfm", nothing])
    for path in tmp_path.rglob("*.*"):
        os.utime(path, (0, 0))
    overdue = [BoundRange(name, 0, 0), BoundRange(empty, 0, 0)]
    assert sorted(ChangeFiles(tmp_path).find(None, {}).ranges) == overdue
    assert ChangeFiles(tmp_path, timeout_hours=1_000_000).find(None, {}).ranges == []
    for bound in overdue:
        (damage,) = ChangeFiles(tmp_path).read(bound)
        assert isinstance(damage, TableDamage) and (damage.table, damage.damage.code) == (TABLE, "FILE_INCOMPLETE")
    story = {one.name: one.end for one in overdue}
    assert ChangeFiles(tmp_path).find(None, story).ranges == [], "it is reported once"
    put(tmp_path, GOOD, dfm())
    assert ChangeFiles(tmp_path).find(None, story).ranges == [BoundRange(name, 0, len(GOOD))]


def test_t40_partitions_full_loads_hidden_and_unfinished_files(tmp_path: Path) -> None:
    """T-40, T-42: partitions lie in sub-folders; a full load is no change. G-62: nor is what is unfinished."""
    content = f"{HEADER}\n{LINE}\n".encode()
    part = put(tmp_path, content, dfm(), folder=f"{FOLDER}/20170313T123000_20170313T170000")
    put(tmp_path, content, dfm("LOAD1.csv"), "LOAD1.csv", folder=TABLE)
    put(tmp_path, content, dfm(), ".1.csv")
    put(tmp_path, content, dfm(), folder=f"_temporary/{FOLDER}")
    put(tmp_path, b"", dfm("2.csv"), "2.csv")
    (tmp_path / FOLDER / "3.dfm").write_bytes(dfm("3.csv"))
    put(tmp_path, content, None, "4.csv.tmp")
    ranges, waiting, *_ = ChangeFiles(tmp_path).find(None, {})
    assert [one.name for one in ranges] == [part]
    # G-62: what somebody is still writing, or hides, is reported of; where nobody finishes it, the table is.
    unfinished = [f"{FOLDER}/.1.csv", f"{FOLDER}/4.csv.tmp"]
    begun = [f"_temporary/{FOLDER}/1.{ending}" for ending in ("csv", "dfm")]
    assert {one for one in waiting if not one.startswith("_temporary")} == {
        *unfinished,
        *(f"{FOLDER}/{name}" for name in ("2.csv", "2.dfm", "3.dfm")),
    }
    assert {*begun} <= {*waiting}
    # The source may be the folder of one change table.
    assert [one.name for one in ChangeFiles(tmp_path / FOLDER).find(None, {})[0]] == [part.partition("/")[2]]
    for name in unfinished:
        os.utime(tmp_path / name, (0, 0))
    forgotten = [one for one in ChangeFiles(tmp_path).find(None, {}).ranges if one.name in unfinished]
    assert [one.name for one in forgotten] == unfinished
    for one in forgotten:
        (damage,) = ChangeFiles(tmp_path).read(one)
        assert isinstance(damage, TableDamage) and damage.damage.code == "FILE_UNKNOWN"
    (tmp_path / unfinished[0]).rename(tmp_path / FOLDER / "1.csv")
    assert f"{FOLDER}/1.csv" in [one.name for one in ChangeFiles(tmp_path).find(None, {}).ranges]


def test_t01_the_suffix_shows_change_tables_from_others(tmp_path: Path) -> None:
    """T-01: one folder for each table; the table is what stands before the suffix, unless its metadata file says it."""
    content = f"{HEADER}\n{LINE}\n".encode()
    described = dfm(sourceSchema="", sourceTable="", targetSchema="", targetTable="")
    name = put(tmp_path, content, described, folder=f"{TABLE}_changes")
    put(tmp_path, content, described)
    assert [one.name for one in ChangeFiles(tmp_path, "_changes").find(None, {})[0]] == [name]
    (row,) = ChangeFiles(tmp_path, "_changes").read(BoundRange(name, 0, len(content)))
    assert isinstance(row, ChangeRow)
    assert row.structure.table == TABLE


def test_t62_suffixes_are_read_in_any_case(tmp_path: Path) -> None:
    """Some targets change the case of what they write; passed over, the table would stay empty without a word."""
    name = put(tmp_path, GOOD, None, "1.CSV", folder=f"{TABLE}__CT")
    (tmp_path / f"{TABLE}__CT" / "1.DFM").write_bytes(dfm("1.csv", targetTable="items__CT"))
    assert ChangeFiles(tmp_path).find(None, {}) == Found([BoundRange(name, 0, len(GOOD))], [])
    (found,) = rows_of(tmp_path, name)
    assert isinstance(found, ChangeRow) and found.structure.table == TABLE


@pytest.mark.parametrize(
    ("folder", "data", "table", "words"),
    [
        # The folder is that of a mirrored table, and the metadata file speaks of one that is not.
        (FOLDER, {"sourceTable": "orders"}, TABLE, "'shop.orders', which is not mirrored"),
        (FOLDER, {"sourceSchema": "dbo", "targetSchema": "", "targetTable": ""}, TABLE, "'dbo.items'"),
        # The metadata file of another mirrored table, which names no target.
        ("shop.other__ct", {"targetSchema": "", "targetTable": ""}, TABLE, "names no target"),
        # No schema anywhere: it may be the mirrored one, or its namesake.
        ("items__ct", {"sourceSchema": "", "targetSchema": "", "targetTable": "items__ct"}, TABLE, "the schema of"),
        ("ITEMS__ct", {"sourceSchema": "", "sourceTable": "", "targetTable": ""}, TABLE, "the schema of"),
    ],
)
def test_t41_a_file_that_may_be_of_a_mirrored_table_is_never_passed_over(
    tmp_path: Path, folder: str, data: dict[str, str], table: str, words: str
) -> None:
    """T-62, T-41: ignored as foreign it would be a silent gap."""
    content = f"{HEADER}\n{LINE}\n".encode()
    name = put(tmp_path, content, dfm(**data), folder=folder)
    bound = BoundRange(name, 0, len(content))
    (damage,) = ChangeFiles(tmp_path, tables=(TABLE, "shop.other")).read(bound)
    assert isinstance(damage, TableDamage)
    assert (damage.damage.code, damage.table) == ("FILE_DAMAGED", table) and words in damage.damage.reason


def test_a_file_of_a_table_that_is_surely_not_mirrored_may_be_damaged(tmp_path: Path) -> None:
    """G-06: who reads a damaged metadata file does not know whose it is."""
    content = f"{HEADER}\n{LINE}\n".encode()
    for description, is_sure in ((dfm(records=7, sourceTable="x", targetTable="x__ct"), True), (b"{}", False)):
        name = put(tmp_path, content, description, folder="shop.x__ct")
        damage = list(ChangeFiles(tmp_path, tables=(TABLE,)).read(BoundRange(name, 0, len(content))))[-1]
        assert isinstance(damage, TableDamage) and (damage.table, damage.is_sure) == ("shop.x", is_sure)


def test_t43_bytes_that_are_called_a_text_are_one(tmp_path: Path) -> None:
    """Some writers of Parquet leave the annotation out: spelled in hexadecimal, another text would be published."""
    (tmp_path / FOLDER).mkdir()
    columns = (*COLUMNS[:2], ("HEADER__CHANGE_MASK", "STRING", 9), ("id", "INT4", 0), ("name", "STRING", 9))
    for name, code in (("é".encode(), None), (b"\xff", "FILE_DAMAGED")):
        arrays = [pa.array([sequence(1)]), pa.array(["I"]), pa.array([b"\x00\x01"]), pa.array([1]), pa.array([name])]
        table = pa.table(arrays, names=[column for column, *_ in columns])
        pq.write_table(table, tmp_path / FOLDER / "1.parquet")
        (tmp_path / FOLDER / "1.dfm").write_bytes(dfm("1.parquet", columns=columns))
        (found,) = rows_of(tmp_path, f"{FOLDER}/1.parquet")
        if code is None:
            assert isinstance(found, ChangeRow) and found.structure.binary_mask
            assert found.values == (sequence(1), "I", "0x0001", "1", "é")
        else:
            assert isinstance(found, TableDamage) and found.damage.code == code


def test_t92_a_file_without_a_byte_is_complete_where_it_is_said_to_have_no_row(tmp_path: Path) -> None:
    put(tmp_path, b"", dfm(records=0))
    assert ChangeFiles(tmp_path, timeout_hours=0).find(None, {}) == Found([], [])
    put(tmp_path, b"", dfm("2.csv"), "2.csv")
    found = ChangeFiles(tmp_path, timeout_hours=0).find(None, {})
    assert [one.name for one in found.ranges] == [f"{FOLDER}/2.csv"]
    assert found.waiting == [f"{FOLDER}/2.csv", f"{FOLDER}/2.dfm"]


def test_t41_a_clock_in_another_zone_than_utc_is_refused(tmp_path: Path) -> None:
    """A DATETIME has no zone, so which clock the source shows is not known."""
    columns = [*COLUMNS[:5], ("note", "DATETIME", 0)]
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    for zone, wanted in (("UTC", "2024-01-01 00:00:00.000000"), ("Europe/Berlin", "FILE_DAMAGED")):
        values = [sequence(1), "I", "1", "a", "1.50"]
        arrays = [*(pa.array([value]) for value in values), pa.array([moment], pa.timestamp("us", zone))]
        (tmp_path / FOLDER).mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_arrays(arrays, [n for n, *_ in columns]), tmp_path / FOLDER / "1.parquet")
        (tmp_path / FOLDER / "1.dfm").write_bytes(dfm("1.parquet", columns=columns))
        (found,) = rows_of(tmp_path, f"{FOLDER}/1.parquet")
        story = found.values[-1] if isinstance(found, ChangeRow) else found.damage.code  # type: ignore[union-attr]
        assert story == wanted


def test_a_file_that_grows_is_read_again_and_one_that_shrinks_is_refused(tmp_path: Path) -> None:
    name = put(tmp_path, b"x" * 10, dfm())
    assert ChangeFiles(tmp_path).find(None, {name: 4})[0] == [BoundRange(name, 0, 10)]
    with pytest.raises(TerminalError, match="SOURCE_REWRITTEN"):
        ChangeFiles(tmp_path).find(None, {name: 11})
    (last,) = ChangeFiles(tmp_path).read(BoundRange(name, 0, 11))
    assert isinstance(last, TableDamage) and last.damage.code == "FILE_DAMAGED"
    (tmp_path / name).unlink()
    with pytest.raises(TerminalError, match="SOURCE_REWRITTEN"):
        list(ChangeFiles(tmp_path).read(BoundRange(name, 0, 10)))


def test_csv_is_read_as_its_metadata_file_says(tmp_path: Path) -> None:
    """T-41: delimiter, quote, escape, NULL; with and without a header line; the line ends of Windows."""
    options = {"fieldDelimiter": "|", "nullValue": "NULL", "escapeChar": "\\", "recordDelimiter": "\r\n"}
    text = f'{sequence(1)}|I|1|"a \\"b|\\\\"|NULL|"NULL"\r\n'
    wanted = (sequence(1), "I", "1", 'a "b|\\', None, "NULL")
    assert values_of(tmp_path, text.encode(), dfm(options=options)) == [wanted]
    bare = f"{sequence(1)},I,1,a'b,,\n"
    no_quotes = dfm(options={"quoteChar": "", "escapeChar": ""})
    given, damage = damage_of(tmp_path, bare.encode(), no_quotes)
    assert (given, damage.damage.code) == (0, "FORMAT_UNSUPPORTED"), "without quotes an empty text is written alike"
    given, damage = damage_of(tmp_path, bare.encode(), dfm())
    assert (given, damage.damage.code) == (0, "FORMAT_UNSUPPORTED"), "nor are there quotes if they are only announced"
    assert values_of(tmp_path, f"{sequence(1)},I,1,,,\n".encode(), dfm()) == [(sequence(1), "I", "1", None, None, None)]
    own_null = dfm(options={"quoteChar": "", "escapeChar": "", "nullValue": "~"})
    assert values_of(tmp_path, bare.replace("b,,", "b,~,").encode(), own_null) == [
        (sequence(1), "I", "1", "a'b", None, "")
    ]
    assert values_of(tmp_path, f"{HEADER}\n".encode(), dfm(records=0)) == []
    for content in (f"{HEADER}\n{LINE}\n", f"{LINE}\n"):
        given, damage = damage_of(tmp_path, content.encode(), dfm(records=0))
        assert (given, damage.damage.code) == (1, "FILE_DAMAGED"), "no row is passed over, whatever is announced"


def test_json_lines_keep_the_digits_of_numbers(tmp_path: Path) -> None:
    record = {name: None for name, *_ in COLUMNS} | {"header__change_seq": sequence(1), "header__change_oper": "I"}
    line = json.dumps(record | {"id": 1, "note": ""})[:-1].replace('"price": null', '"price": 12345678.10')
    assert values_of(tmp_path, f"{line}}}\n".encode(), dfm("1.json"), "1.json") == [
        (sequence(1), "I", "1", None, "12345678.10", "")
    ]


def test_parquet_values_become_their_exact_texts(tmp_path: Path) -> None:
    """T-43: nothing is rounded on the way to text; T-24: a mask in bytes is reported from one in text."""
    typed: dict[str, tuple[str, pa.DataType, Any, str]] = {
        "header__change_mask": ("BYTES", pa.binary(), b"\x00\x01", "0x0001"),
        "id": ("INT8", pa.int64(), -(2**63), str(-(2**63))),
        "price": ("NUMERIC", pa.decimal128(18, 15), Decimal("0.000000000000001"), "0.000000000000001"),
        "f": ("REAL8", pa.float64(), 0.1 + 0.2, "0.30000000000000004"),
        "r": ("REAL4", pa.float32(), 0.1, "0.1"),
        "b": ("BOOLEAN", pa.bool_(), True, "1"),
        "d": ("DATE", pa.date32(), date(1, 1, 1), "0001-01-01"),
        "at": (
            "DATETIME",
            pa.timestamp("us"),
            datetime(9999, 12, 31, 23, 59, 59, 999999),
            "9999-12-31 23:59:59.999999",
        ),
        "ns": ("DATETIME", pa.timestamp("ns", "UTC"), 1_700_000_000_123_456_700, "2023-11-14 22:13:20.1234567"),
        "t": ("TIME", pa.time64("us"), time(1, 2, 3, 4), "01:02:03.000004"),
        "raw": ("BLOB", pa.large_binary(), b"\xff", "0xff"),
        "text": ("WSTRING", pa.dictionary(pa.int32(), pa.string()), "ü", "ü"),
    }
    schema = pa.schema(
        [("header__change_seq", pa.string()), ("header__change_oper", pa.string())]
        + [(name, kind) for name, (_, kind, _, _) in typed.items()]
    )
    arrays = [pa.array([sequence(1)]), pa.array(["I"])]
    arrays += [pa.array([value], kind) for _, kind, value, _ in typed.values()]
    (tmp_path / FOLDER).mkdir()
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), tmp_path / FOLDER / "1.parquet")
    columns = [*COLUMNS[:2], *((name, kind, 0) for name, (kind, *_) in typed.items())]
    (tmp_path / FOLDER / "1.dfm").write_bytes(dfm("1.parquet", columns=columns))
    (found,) = rows_of(tmp_path, f"{FOLDER}/1.parquet")
    assert isinstance(found, ChangeRow) and found.structure.binary_mask
    assert found.values == (sequence(1), "I", *(text for *_, text in typed.values()))


GOOD = f"{HEADER}\n{LINE}\n".encode()


@pytest.mark.parametrize(
    ("content", "description", "rows", "code", "story"),
    [
        (GOOD, b"{}", 0, "FILE_DAMAGED", "fileInfo"),
        (GOOD, dfm(columns=[*COLUMNS, COLUMNS[2]]), 0, "FILE_DAMAGED", "twice"),
        (GOOD, dfm("other.csv"), 0, "FILE_DAMAGED", "'other.csv'"),
        (GOOD, dfm(targetTable="elsewhere__ct"), 0, "FILE_DAMAGED", "elsewhere__ct"),
        (GOOD, dfm(columns=[*COLUMNS[:5], ("later", "INT4", 0)]), 0, "FILE_DAMAGED", "later"),
        (GOOD, dfm(records=2), 1, "FILE_DAMAGED", "announces 2 rows, the file has 1"),
        (GOOD + GOOD[len(HEADER) + 1 :], dfm(), 2, "FILE_DAMAGED", "announces 1 rows, the file has 2"),
        (GOOD, dfm().replace(b'"recordCount"', b'"errorCount": 1, "recordCount"'), 1, "ROWS_MISSING", "1 records"),
        (GOOD.replace(b"1.50", b'1"50'), dfm(), 0, "FILE_DAMAGED", "quote at byte"),
        (GOOD + b'x,I,2,"cut', dfm(records=2), 0, "FILE_DAMAGED", "not closed"),
        (GOOD + b"x,I\n", dfm(records=2), 0, "FILE_DAMAGED", "columns"),
        (GOOD.replace(b"c\nd", b"\xff"), dfm(), 0, "FORMAT_UNSUPPORTED", "looks like Windows-1252"),
        (GOOD, dfm(options={"recordDelimiter": "#"}), 0, "FORMAT_UNSUPPORTED", "'#'"),
        (GOOD, dfm(options={"fieldDelimiter": "||"}), 0, "FORMAT_UNSUPPORTED", "'||'"),
        (GOOD, dfm(options={"escapeChar": "\\", "nullValue": "\\N"}), 0, "FORMAT_UNSUPPORTED", "NULL is written"),
        (GOOD, dfm(options={"nullValue": '"NULL"'}), 0, "FORMAT_UNSUPPORTED", "NULL is written"),
        (GOOD + b'x,U,2,"a\r\n",1.00,b\r\n', dfm(records=2), 0, "FORMAT_UNSUPPORTED", "carriage return"),
        (
            b"x,U,2,a,1.00,b\r\nx,U,2,a,1.00,b\n",
            dfm(records=2, options={"quoteChar": "", "escapeChar": "", "nullValue": "~"}),
            0,
            "FORMAT_UNSUPPORTED",
            "carriage return",
        ),
    ],
)
def test_a_file_that_is_not_what_its_metadata_file_says_stops_its_table(
    tmp_path: Path, content: bytes, description: bytes, rows: int, code: str, story: str
) -> None:
    """T-41, T-42: never half read in silence: code, reason, coordinates, bytes; another table's file is read."""
    read, last = damage_of(tmp_path, content, description)
    assert read == rows and last.table == TABLE
    assert (last.damage.code, last.damage.origin, last.damage.place) == (code, f"{FOLDER}/1.csv", rows)
    assert story in last.damage.reason
    assert last.damage.raw == content
    letter = decoder().decode([last]).rows[0]
    assert (letter.kind, letter.code, letter.tbl, letter.key) == ("rejected", code, TABLE, None)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("1.csv.gz", gzip.compress(GOOD, mtime=0)[:-9]),
        ("1.csv.gz", b"no gzip at all"),
        ("1.csv", b""),
        ("1.parquet", b"PAR1 nothing PAR1"),
        ("1.json", b'{"id": 1'),
        ("1.json", b"[1]"),
    ],
)
def test_damaged_bytes_stop_the_table(tmp_path: Path, name: str, content: bytes) -> None:
    _, last = damage_of(tmp_path, content, dfm(name), name)
    assert last.damage.code in ("FILE_DAMAGED", "FILE_INCOMPLETE")
    assert last.damage.origin == f"{FOLDER}/{name}"


def test_a_disk_that_fails_is_worth_another_try(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No dead letter for bytes that may come next time."""
    name = put(tmp_path, GOOD, dfm())

    def fails(*_: object) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(data_files, "read_delimited", fails)
    with pytest.raises(TransientError, match=r"UNREACHABLE.*Input/output error"):
        rows_of(tmp_path, name)


def test_memory_stays_flat_because_files_are_read_in_blocks(tmp_path: Path) -> None:
    """A file far larger than a block comes in many batches, its quotes proven across their borders."""
    line = f'{sequence(1)},I,1,"' + "x" * 5000 + '""",1.50,\n'
    content = (HEADER + "\n" + line * 2500).encode()
    found = values_of(tmp_path, content, dfm(records=2500))
    assert len(found) == 2500 and {values[3] for values in found} == {"x" * 5000 + '"'}


def test_the_published_sample_of_a_file_target_decodes(shared_data: Path) -> None:
    """T-02: three header columns; T-42: `content` says data; a metadata file that was copied is found out."""
    root = shared_data / "samples" / "qlik-file-target"
    # It stores neither masks nor before images: nothing tells a change of the key (T-60).
    table = MirroredTable("EDW.SAMPLE", ("SAMPLE_ID",), keys_never_change=True)
    ranges, waiting, *_ = ChangeFiles(root).find(None, {})
    assert len(ranges) == 2 and not waiting
    first, second = (list(ChangeFiles(root).read(one)) for one in ranges)
    decoded = QlikChangeTableDecoder({"EDW.SAMPLE": table}).decode(first)
    assert [(row.op, row.key) for row in decoded.rows] == [("I", '["4"]'), ("U", '["2"]')]
    image = json.loads(decoded.rows[0].row or "")
    assert image["SAMPLE_NAME"] == "Sample 4 🔥🔥🔥🔥" and image["EDW_INSERTED_DTM"] == "2021-12-01 11:20:30.4444444"
    (damage,) = second
    assert isinstance(damage, TableDamage) and damage.damage.code == "FILE_DAMAGED"
    assert "20211201-112233444.csv" in damage.damage.reason


def test_a_file_with_an_ending_that_says_nothing_stops_its_table_t40(tmp_path: Path) -> None:
    """It may hold changes; a file outside the folders of change tables does not."""
    for name in (f"{FOLDER}/1.txt", "elsewhere/readme.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(GOOD)
    ranges, waiting, *_ = ChangeFiles(tmp_path).find(None, {})
    assert (ranges, waiting) == ([BoundRange(f"{FOLDER}/1.txt", 0, len(GOOD))], [])
    (damage,) = ChangeFiles(tmp_path, tables=(TABLE,)).read(ranges[0])
    assert isinstance(damage, TableDamage) and (damage.table, damage.damage.code) == (TABLE, "FILE_UNKNOWN")
    assert ChangeFiles(tmp_path).find(None, {f"{FOLDER}/1.txt": len(GOOD)}) == Found([], []), "it is reported once"


def test_a_file_in_blocks_becomes_the_same_rows_and_the_same_damage_t11(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T-11, T-42: blocks divide no pair; rows before the damage count, and the damage stops the table as ever."""
    monkeypatch.setattr(delimited, "BLOCK", 700)
    lines = [f'{sequence(at)},I,{at},"n{at}",1.50,' for at in range(1, 30)]
    lines += [f'{sequence(at)},{op},{at - 40},"{op}",1.50,' for at in range(41, 60) for op in "BU"]
    lines[20] = f'{sequence(21)},I,,"no key",1.50,'
    name = put(tmp_path, "\n".join([HEADER, *lines, ""]).encode(), dfm(records=99))
    bound = BoundRange(name, 0, (tmp_path / name).stat().st_size)
    logged = []
    for number, worth in enumerate((bound.end + 1, 0)):
        monkeypatch.setattr(files, "_WORTH_BYTES", worth)
        target = LogTarget(tmp_path, 1, f"attempt{number}", 0)
        decoding = Decoding(ChangeTableFormat(), {TABLE: MirroredTable(TABLE, ("id",))}, (), target)
        place = ChangeFiles(tmp_path, tables=(TABLE,))
        assert (place.blocks(bound) is None) == (number == 0)
        decoding.take_range(place, bound)
        part = decoding.finish()
        rows = pa.concat_tables([pq.read_table(tmp_path / file["path"]) for file in part.written.files]).to_pylist()
        logged.append((part.counts, sorted(map(repr, rows))))
    assert logged[0] == logged[1]
    assert (logged[0][0]["rejected"], "FILE_DAMAGED" in str(logged[0][1])) == (2, True)


@pytest.mark.parametrize(("records", "table", "is_refused"), [(1, "items", True), (0, "items", False), (1, "x", False)])
def test_a_full_load_that_nothing_reads_stops_its_table_t96(
    tmp_path: Path, records: int, table: str, is_refused: bool
) -> None:
    """One without rows, or of another table, concerns nobody; nor does one of a table with an initial load."""
    put(tmp_path, GOOD, dfm())
    put(tmp_path, GOOD, dfm("LOAD1.csv", records, sourceTable=table), "LOAD1.csv", folder=TABLE)
    refused = ChangeFiles(tmp_path, tables=(TABLE,), unloaded=(TABLE,)).find(None, {}).refused
    assert [error.code for error in refused.values()] == ["LOAD_UNREAD"] * is_refused
    assert ChangeFiles(tmp_path, tables=(TABLE,)).find(None, {}).refused == {}


@pytest.mark.parametrize("worth", [0, 2**30], ids=["as columns", "row by row"])
def test_the_task_that_wrote_a_file_is_reported_t95(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worth: int
) -> None:
    monkeypatch.setattr(files, "_WORTH_BYTES", worth)
    decoding = Decoding(
        ChangeTableFormat(), {TABLE: MirroredTable(TABLE, ("id",))}, (), LogTarget(tmp_path, 1, "attempt", 0)
    )
    for number, task in enumerate(("one", " two ", "", None)):
        description = {**json.loads(dfm(f"{number}.csv")), "taskInfo": {"name": task, "operation": "x"}}
        name = put(tmp_path, GOOD, json.dumps(description).encode(), f"{number}.csv")
        decoding.take_range(ChangeFiles(tmp_path, tables=(TABLE,)), BoundRange(name, 0, len(GOOD)))
    assert senders_in(decoding.finish().facts) == {(TABLE, "one"), (TABLE, "two")}


def test_a_metadata_file_of_another_content_has_its_file_read_again_g32(tmp_path: Path) -> None:
    """Only one with another version is looked into; what an older release noted is completed without a question."""
    name = put(tmp_path, b"x", dfm())
    described = tmp_path / FOLDER / "1.dfm"
    bound: dict[str, int] = {}
    seen: dict[str, FileVersion] = {}

    def looked(content: bytes | None = None) -> tuple[list[BoundRange], bool]:
        if content is not None:
            described.write_bytes(content)
            os.utime(described, ns=(len(bound), described.stat().st_mtime_ns + 1))
        found = ChangeFiles(tmp_path).find(None, bound, lambda _: seen)
        bound.update({one.name: one.end for one in found.ranges})
        seen.update(found.versions)
        return found.ranges, bool(found.versions)

    again = [BoundRange(name, 0, 1)]
    assert looked() == (again, True)
    assert looked() == ([], False)
    assert looked(dfm()) == ([], True), "it was touched"
    assert looked() == ([], False)
    assert looked(b"{") == ([], False), "it waits until the metadata file is whole"
    assert looked(dfm(records=2)) == (again, True)
    assert looked() == ([], False)
    seen[name] = seen[name]._replace(version=seen[name].version.partition("|")[0])
    assert looked(dfm()) == ([], True), "nobody knows what stood there"
    assert looked(dfm(records=2)) == (again, True)
    described.unlink()
    assert looked() == ([], False), "what was read may go"
