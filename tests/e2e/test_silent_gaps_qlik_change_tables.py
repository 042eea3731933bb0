"""Odd but possible change tables in files, through the command line: equal, or told; none differs in silence."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.e2e.test_bad_input_qlik_change_tables import DATA, HEADERS, KEY_BIT, Values, ct, dfm, lines
from tests.noted_facts import ignored
from tests.pipeline import Pipeline, in_order
from tests.qlik_change_rows import mask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME_BIT = KEY_BIT + 1
_TOLD = {"id": "INT4", "name": "STRING", "price": "NUMERIC"}
Row = dict[str, Any]


class File(NamedTuple):
    """A data file of a table, and what its metadata file says otherwise."""

    rows: Sequence[Values]
    said: Mapping[str, Any] = {}
    folder: str | None = None
    content: bytes | None = None
    records: int | None = None
    name: str = "1"


class Case(NamedTuple):
    """A table of its own: how it ends, as rows or as the code of its stop; *letters* are its dead letters, in order."""

    name: str
    files: Sequence[File]
    ends: Sequence[Row] | str
    letters: Sequence[str] = ()
    settings: Mapping[str, Any] = {}


def row(id_: int | str, name: str | None = "Ada", price: str | None = "1.50", **more: Any) -> Row:
    return {"id": id_, "name": name, "price": None if price is None else Decimal(price), **more}


def with_column(column: tuple[str, str, int], *values: tuple[Values, str | None], at: int = 99) -> File:
    """Rows with one column more, at a place of the change table."""
    columns = [*HEADERS, *DATA]
    columns.insert(at, column)
    rows = []
    for one, value in values:
        cells = [*one]
        cells.insert(at, value)
        rows.append(tuple(cells))
    header = ",".join(f'"{name}"' for name, *_ in columns)
    return File(
        rows, {"columns": columns}, content=header.encode() + b"\n" + b"".join(lines(rows).splitlines(True)[1:])
    )


def bare(*rows: Sequence[str]) -> bytes:
    """A file without quotes and without header line."""
    return "".join(",".join(one) + "\n" for one in rows).encode()


I1, I2 = ct(1, "I", "1"), ct(2, "I", "2")
CASES: Sequence[Case] = [
    # Keys.
    Case("untold", [File([I1, ct(3, "U", "2", "Eve")])], "KEY_UNKNOWN", ["OLD_KEY_MISSING"]),
    Case("empty_mask", [File([I1, ct(3, "U", "2", "Eve", "")])], "KEY_UNKNOWN", ["OLD_KEY_MISSING"]),
    Case("promised", [File([I1, ct(3, "U", "1", "Eve")])], [row(1, "Eve")], settings={"keys_never_change": True}),
    Case("told", [File([I1, ct(3, "U", "1", "Eve", mask(NAME_BIT))])], [row(1, "Eve")]),
    Case("deleted", [File([I1, ct(3, "D", None)])], "KEY_UNKNOWN", ["KEY_INVALID"]),
    Case("truncated", [File([I1, ct(3, "T", "1", operation="TRUNCATE")])], "KEY_UNKNOWN", ["TABLE_EMPTIED"]),
    # Names.
    Case("case_dfm", [File([I1], {"table": "CASE_dfm"})], "CHANGES_MISSING", ["TABLE_NAME_DIFFERS"]),
    Case("case_folder", [File([I1], {"target": "case_folder__CT"}, "shop.case_folder__CT")], [row(1)]),
    Case("foreign_dfm", [File([I1], {"table": "stranger", "target": "foreign_dfm__ct"})], "CHANGES_MISSING",
         ["FILE_DAMAGED"]),
    # Columns.
    Case("prefixed", [with_column(("header__note", "STRING", 9), (I1, "kept"))], [row(1, header__note="kept")]),
    Case("ambiguous", [with_column(("header__timestamp", "STRING", 9), (I1, "lost?"))], "KEY_UNKNOWN",
         ["HEADER_INVALID"]),
    Case("added", [File([I1]), with_column(("more", "INT4", 0), (I2, "7"))._replace(name="2")],
         [row(1, more=None), row(2, more=7)]),
    Case("dropped", [with_column(("more", "INT4", 0), (I1, "7")), File([I2], name="2")],
         [row(1, more=7), row(2, more=None)]),
    Case("retyped", [with_column(("more", "INT4", 0), (I1, "7")),
                     with_column(("more", "STRING", 5), (I2, "x"))._replace(name="2")], "SCHEMA_CHANGED"),
    Case("moved", [with_column(("more", "INT4", 0), (I1, "7")),
                   with_column(("more", "INT4", 0), (I2, "8"), at=KEY_BIT)._replace(name="2")],
         [row(1, more=7), row(2, more=8)]),
    Case("too_precise", [File([I1, ct(2, "I", "2", price="1.555")])], [row(1)], ["VALUE_INVALID"]),
    Case("too_long", [File([I1, ct(2, "I", "2", "x" * 101)])], [row(1)], ["VALUE_INVALID"]),
    Case("just_long_enough", [File([I1, ct(2, "I", "2", "é" * 100)])], [row(1), row(2, "é" * 100)]),
    # Files.
    Case("none_announced", [File([I1], records=0)], "CHANGES_MISSING", ["FILE_DAMAGED"]),
    Case("without_quotes", [File([], {"options": {"quoteChar": "", "escapeChar": ""}}, records=1,
                                 content=bare([*I1[:2], "", "INSERT", "1", "", "1.50"]))], "CHANGES_MISSING",
         ["FORMAT_UNSUPPORTED"]),
    Case("full_load_inside", [File([("1", "Ada", "1.50")], {"columns": DATA},
                                   content=b"id,name,price\n1,Ada,1.50\n")], "KEY_UNKNOWN", ["HEADER_INVALID"]),
    Case("twice", [File([I1, I2]), File([I1, I2], name="2")], [row(1), row(2)]),
    Case("two_dfm_one_name", [File([I1], name="1"), File([I2], name="1", content=json.dumps(dict(zip(
        [n for n, *_ in HEADERS + DATA], I2, strict=True))).encode() + b"\n", folder="JSON")], [row(1), row(2)]),
    # Order and identity.
    Case("late", [File([ct(5, "U", "1", "new", mask(NAME_BIT))]), File([I1], name="2")], [row(1, "new")]),
    Case("conflict", [File([I1, ct(3, "U", "1", "a", mask(NAME_BIT)), ct(3, "U", "1", "b", mask(NAME_BIT))])],
         "IDENTITY_CONFLICT"),
    Case("same_seq", [File([I1, ct(1, "I", "2")])], [row(1), row(2)]),
    Case("bad_mask", [File([I1, ct(2, "I", "2", bits="zz")])], [row(1)], ["MASK_INVALID"]),
    Case("lower_case", [File([I1, ct(2, "u", "2", operation="update")])], [row(1)], ["MESSAGE_INVALID"]),
    Case("blank_keys", [File([(*I1[:4], "7", "a", "1.50"), (*I2[:4], "7", "a ", "1.50"),
                              (*ct(3, "I", "")[:4], "7", "", "1.50"), (*ct(4, "D", "")[:4], "7", "a", None)])],
         [row(7, "a "), row(7, "")], settings={"key": ["name"]}),
]  # fmt: skip


@pytest.fixture(scope="module")
def ticked(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> tuple[Pipeline, int]:
    """All cases as tables of one mirror, after one tick and the service's turn."""
    source = {"format": "qlik-change-table", "transport": "files", "layout": None}
    tables = [{"source": f"shop.{c.name}", "target": f"shop/{c.name}", "key": ["id"], **c.settings} for c in CASES]
    pipeline = Pipeline(tmp_path_factory.mktemp("silent"), spark, tables, source=source)
    for case in CASES:
        for file in case.files:
            said = {"target": f"{case.name}__ct", **file.said}
            is_json = file.folder == "JSON"
            folder = f"shop.{case.name}__ct" if is_json or file.folder is None else file.folder
            content = lines(file.rows) if file.content is None else file.content
            records = len(file.rows) if file.records is None else file.records
            name = f"{file.name}.{'json' if is_json else 'csv'}"
            pipeline.deliver(f"{folder}/{name}", content)
            table = said.pop("table", case.name)
            pipeline.deliver(f"{folder}/{file.name}.dfm", dfm(table, name, records, **said))
    pipeline.deliver("shop.stranger__ct/1.csv", lines([I1, I2]))
    pipeline.deliver("shop.stranger__ct/1.dfm", dfm("stranger", "1.csv", 2))
    code = main(["tick", str(pipeline.file)])
    pipeline.service.poll()
    return pipeline, code


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_odd_change_table_differs_in_silence(case: Case, ticked: tuple[Pipeline, int]) -> None:
    """T-13, T-33, T-41, T-44, T-60, T-61, T-62, G-13: equal, or the table stops, or a dead letter tells its row."""
    pipeline, code = ticked
    assert code == Exit.TABLES_STOPPED
    state = pipeline.reader.tables()[f"shop.{case.name}"]
    told = [x["code"] for x in pipeline.letters() if x["tbl"] == f"shop.{case.name}"]
    if isinstance(case.ends, str):
        assert (state.stop_code, told) == (case.ends, list(case.letters)), state.stop_what
        return
    assert state.stop_code is None, (state.stop_code, state.stop_what)
    found = [dict(one) for one in pipeline.mirrored("shop", case.name)]
    assert in_order(found, ["id", "name"]) == in_order(case.ends, ["id", "name"])
    # What cannot be typed is told when it would be published.
    untyped = [one["code"] for listed in pipeline.reader.rejected([state.id]).values() for one in listed]
    assert [*told, *untyped] == list(case.letters)


def test_tables_that_are_not_mirrored_are_counted_by_name(ticked: tuple[Pipeline, int]) -> None:
    """G-13: so that one which was meant to be mirrored is seen."""
    pipeline, _ = ticked
    (manifest,) = pipeline.reader.manifests().values()
    assert ignored(manifest.facts) == {"shop.stranger": 2}


def test_a_metadata_file_that_is_replaced_after_its_file_was_read_is_noticed_g32(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-32, G-02: what it says of the values counts; touched, or written anew to say the same, it changes nothing."""
    source = {"format": "qlik-change-table", "transport": "files", "layout": None}
    tables = [{"source": f"shop.{name}", "target": f"shop/{name}", "key": ["id"]} for name in ("said", "alike")]
    pipeline = Pipeline(tmp_path, spark, tables, source=source)

    def describe(table: str, null: str, indent: int | None = None) -> None:
        content = dfm(table, "1.csv", 2, options={"nullValue": null})
        pipeline.deliver(f"shop.{table}__ct/1.dfm", json.dumps(json.loads(content), indent=indent).encode())

    for table in ("said", "alike"):
        pipeline.deliver(f"shop.{table}__ct/1.csv", lines([I1, ct(2, "I", "2", "none")]).replace(b'"none"', b"none"))
        describe(table, "none")
    assert main(["tick", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    pipeline.service.poll()
    rows = [row(1), row(2, None)]
    assert in_order([dict(one) for one in pipeline.mirrored("shop", "said")], ["id"]) == rows
    describe("said", "")
    describe("alike", "none", indent=1)
    assert main(["tick", str(pipeline.file)]) == Exit.TABLES_STOPPED
    states = pipeline.reader.tables()
    assert (states["shop.said"].stop_code, states["shop.alike"].stop_code) == ("IDENTITY_CONFLICT", None)
    pipeline.service.poll()
    assert in_order([dict(one) for one in pipeline.mirrored("shop", "alike")], ["id"]) == rows
