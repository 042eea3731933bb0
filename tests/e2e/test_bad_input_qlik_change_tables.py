"""Bad rows and files of Qlik change tables beside good ones: a dead letter, a wait, or the stop of their own table.

Every case is asserted by code, coordinates, raw bytes and way out. Another table of the same batch ends exactly equal,
what only came late heals without loss, and the counts add up (G-06, I1).
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from open_mirroring.codes import next_step_of
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.decisions import resume_table
from open_mirroring.operate.exit_codes import Exit
from open_mirroring.reconciliation.losses import look
from spark_jobs.cli.command_line import main
from tests.bad_input import listed_next_steps, settled, stopped, stops
from tests.pipeline import Pipeline, in_order
from tests.qlik_change_rows import mask, sequence

HEADERS = [("header__change_seq", "STRING", 35), ("header__change_oper", "STRING", 1)]
HEADERS += [("header__change_mask", "STRING", 256), ("header__operation", "STRING", 12)]
DATA = [("id", "INT4", 10), ("name", "STRING", 100), ("price", "NUMERIC", 0)]
KEY_BIT = len(HEADERS)
Values = tuple[str | None, ...]


def ct(
    number: int | str, oper: str, id_: str | None, name: str = "Ada", bits: str | None = None, **said: str
) -> Values:
    """One row of a change table."""
    spelled = {"I": "INSERT", "U": "UPDATE", "D": "DELETE", "B": "BEFOREIMAGE"}.get(oper, oper)
    at = sequence(number) if isinstance(number, int) else number
    return (at, oper, bits, said.get("operation", spelled), id_, name, said.get("price", "1.50"))


def ct_landed(key: int, name: str | None = "Ada") -> dict[str, Any]:
    return {"id": key, "name": name, "price": Decimal("1.50")}


def lines(rows: Sequence[Values]) -> bytes:
    """A data file: NULL is an empty field without quotes."""
    texts = [[name for name, *_ in HEADERS + DATA], *rows]
    quoted = [",".join("" if v is None else '"' + v.replace('"', '""') + '"' for v in one) for one in texts]
    return "".join(f"{line}\n" for line in quoted).encode()


def dfm(table: str, name: str, records: int, **replaced: Any) -> bytes:
    """The metadata file of a data file, any part of it replaced."""
    described = [
        {"ordinal": at, "name": n, "type": t, "length": size, "precision": 10 if t == "NUMERIC" else 0, "scale": 2}
        for at, (n, t, size) in enumerate(replaced.get("columns", HEADERS + DATA), 1)
    ]
    options = {"fieldDelimiter": ",", "recordDelimiter": "\n", "nullValue": "", "quoteChar": '"', "escapeChar": '"'}
    target = replaced.get("target", f"{table}__ct")
    document = {
        "fileInfo": {"name": name, "extension": "", "content": "changes", "recordCount": records},
        "formatInfo": {"format": "delimited", "options": options | replaced.get("options", {})},
        "dataInfo": {"sourceSchema": "shop", "sourceTable": table, "targetSchema": "shop", "targetTable": target,
                     "tableVersion": 1, "columns": described},
    }  # fmt: skip
    return json.dumps(document).encode()


def put(pipeline: Pipeline, table: str, name: str, *rows: Values) -> str:
    """A data file with its metadata file; the data file's name at the source."""
    pipeline.deliver(f"shop.{table}__ct/{name}.csv", lines(rows))
    pipeline.deliver(f"shop.{table}__ct/{name}.dfm", dfm(table, f"{name}.csv", len(rows)))
    return f"shop.{table}__ct/{name}.csv"


class BadRow(NamedTuple):
    """A row of `shop.items` that becomes a dead letter, its key known, its table not stopped."""

    name: str
    row: Values
    code: str
    words: str


ROWS = [
    BadRow("unknown operation", ct(20, "X", "9", operation="X"), "MESSAGE_INVALID", "'X'"),
    BadRow("operation said twice", ct(21, "U", "9", operation="DELETE"), "ROW_INVALID", "'DELETE'"),
    BadRow("mask longer than the table", ct(22, "U", "9", bits=mask(24)), "MASK_INVALID", ""),
    BadRow("mask that is none", ct(23, "U", "9", bits="0G"), "MASK_INVALID", "hexadecimal"),
    BadRow("no sequence", ct("", "U", "9"), "HEADER_INVALID", "35 digits"),
    BadRow("sequence of another form", ct("20240101", "U", "9"), "HEADER_INVALID", "35 digits"),
]


class Contradicted(NamedTuple):
    """A data file that is not what the metadata file beside it says; *place* is the row at which it is reported."""

    table: str
    description: bytes
    code: str
    words: str
    place: int = 0


GOOD = [ct(1, "I", "1"), ct(2, "I", "2")]
CONTRADICTED = [
    Contradicted("other_columns", dfm("other_columns", "1.csv", 2, columns=HEADERS + DATA[:2]), "FILE_DAMAGED",
                 "price"),
    Contradicted("more_rows", dfm("more_rows", "1.csv", 3), "FILE_DAMAGED", "announces 3 rows", 2),
    Contradicted("strange", dfm("strange", "1.csv", 2, options={"fieldDelimiter": "||"}), "FORMAT_UNSUPPORTED", "||"),
]  # fmt: skip
HALVES = ("update_late", "before_late", "update_lost", "before_lost", "moved")
FILE_TABLES = ("clean", "items", "nulled", "damaged", "partitioned", *HALVES, *(one.table for one in CONTRADICTED))


@pytest.fixture(scope="module")
def filed(tmp_path_factory: pytest.TempPathFactory, spark: Any) -> tuple[Pipeline, Mapping[str, int], int]:
    """The first batch of all change tables, and the number of messages that it had."""
    source = {"format": "qlik-change-table", "transport": "files", "layout": None}
    tables = [{"source": f"shop.{name}", "target": f"shop/{name}", "key": ["id"]} for name in FILE_TABLES]
    pipeline = Pipeline(tmp_path_factory.mktemp("files"), spark, tables, source=source)
    clean = [ct(at, "I" if at == 1 else "U", "1", f"n{at}", mask(KEY_BIT + 1)) for at in range(1, 10)]
    items = [ct(1, "I", "9"), *(bad.row for bad in ROWS), ct(30, "I", "10", "old"), ct(31, "I", "10", price="cheap")]
    put(pipeline, "clean", "1", *clean)
    put(pipeline, "items", "1", *items)
    put(pipeline, "nulled", "1", ct(1, "I", None))
    moved = [ct(1, "I", "1"), ct(2, "B", "1"), ct(2, "U", "2", bits=mask(24))]
    put(pipeline, "moved", "1", *moved)
    for late in ("update_late", "before_lost"):
        put(pipeline, late, "1", ct(1, "I", "1"), ct(2, "B", "1"))
    for late in ("before_late", "update_lost"):
        put(pipeline, late, "1", ct(1, "I", "1"), ct(2, "U", "2", "Eve", mask(KEY_BIT, KEY_BIT + 1)))
    for one in CONTRADICTED:
        pipeline.deliver(f"shop.{one.table}__ct/1.csv", lines(GOOD))
        pipeline.deliver(f"shop.{one.table}__ct/1.dfm", one.description)
    pipeline.deliver("shop.damaged__ct/1.csv.gz", gzip.compress(lines(GOOD))[:-12])
    pipeline.deliver("shop.damaged__ct/1.dfm", dfm("damaged", "1.csv.gz", 2))
    put(pipeline, "partitioned", "20240101T1200_20240101T1210/1", ct(5, "I", "1", "five"))
    pipeline.deliver("shop.clean__ct/2.csv", lines([ct(40, "D", "1")]))
    pipeline.deliver("shop.clean__ct/3.dfm", dfm("clean", "3.csv", 1))
    extracted, _ = pipeline.tick()
    assert extracted.waiting_files == ["shop.clean__ct/2.csv", "shop.clean__ct/3.dfm"]
    good_rows = sum(one.place for one in CONTRADICTED)
    halves, damaged, partitioned, nulled = 8, 1, 1, 1
    messages = len(clean) + len(items) + nulled + len(moved) + halves + good_rows + len(CONTRADICTED) + damaged
    return pipeline, extracted.counts, messages + partitioned


Filed = tuple[Pipeline, Mapping[str, int], int]


@pytest.mark.parametrize("bad", ROWS, ids=lambda bad: bad.name)
def test_an_unreadable_row_of_a_change_table_is_one_dead_letter(bad: BadRow, filed: Filed) -> None:
    """G-06, T-10, T-12, T-15, T-20: code, coordinates, reason, the row as it came, and a way out."""
    pipeline, _, _ = filed
    at = ("shop.items__ct/1.csv", 1 + ROWS.index(bad))
    (found,) = (x for x in pipeline.letters() if (x["origin"], x["place"]) == at)
    assert (found["code"], found["tbl"], found["key"]) == (bad.code, "shop.items", '["9"]')
    assert bad.words in found["reason"] and json.loads(found["raw"])[-1] == list(bad.row)
    assert listed_next_steps(pipeline)[at] == next_step_of(bad.code)


@pytest.mark.parametrize("one", CONTRADICTED, ids=lambda one: one.table)
def test_a_metadata_file_that_contradicts_its_data_file_stops_its_table(one: Contradicted, filed: Filed) -> None:
    """T-41, T-42: what of the file is missing is not known; its bytes and the row are reported."""
    pipeline, _, _ = filed
    origin = f"shop.{one.table}__ct/1.csv"
    (found,) = (x for x in pipeline.letters() if x["origin"] == origin)
    assert (found["code"], found["tbl"], found["key"]) == (one.code, f"shop.{one.table}", None)
    assert (found["place"], found["raw"]) == (one.place, lines(GOOD)) and one.words in found["reason"]
    assert listed_next_steps(pipeline)[origin, one.place] == next_step_of(one.code)
    stopped(pipeline, f"shop.{one.table}", "CHANGES_MISSING", one.code, f"{origin}:{one.place}")


def test_a_file_that_is_cut_stops_its_table(filed: Filed) -> None:
    pipeline, _, _ = filed
    (found,) = (x for x in pipeline.letters() if x["tbl"] == "shop.damaged")
    expected = ("FILE_DAMAGED", "shop.damaged__ct/1.csv.gz", gzip.compress(lines(GOOD))[:-12])
    assert (found["code"], found["origin"]) == expected[:2] and len(found["raw"]) == len(expected[2])
    stopped(pipeline, "shop.damaged", "CHANGES_MISSING", "FILE_DAMAGED", "shop.damaged__ct/1.csv.gz")


def test_a_row_that_may_be_any_row_stops_its_table(filed: Filed) -> None:
    """G-02, G-03: a key that is NULL, and an unreadable update that moved its key, leave a row out of date."""
    pipeline, _, _ = filed
    stopped(pipeline, "shop.nulled", "KEY_UNKNOWN", "KEY_", "shop.nulled__ct/1.csv:0")
    stopped(pipeline, "shop.moved", "KEY_UNKNOWN", "MASK_INVALID", "shop.moved__ct/1.csv:2")


def test_other_change_tables_of_the_batch_are_exactly_equal(filed: Filed) -> None:
    """I1, G-06: order is kept around bad rows, and only what must stop is stopped."""
    pipeline, counts, messages = filed
    settled(pipeline, counts, messages)
    assert pipeline.mirrored("shop", "clean") == [ct_landed(1, "n9")]
    items = in_order(pipeline.mirrored("shop", "items"), ["id"])
    assert items == in_order([ct_landed(9), ct_landed(10, "old")], ["id"])
    assert stops(pipeline) == {"shop.nulled", "shop.moved", "shop.damaged", *(f"shop.{x.table}" for x in CONTRADICTED)}
    assert pipeline.reader.mirror().unnamed_rejects == 0
    reader = pipeline.reader
    (untyped,) = reader.rejected([reader.tables()["shop.items"].id]).popitem()[1]
    place = ("VALUE_INVALID", "shop.items__ct/1.csv", len(ROWS) + 2, '["10"]')
    assert tuple(untyped[name] for name in ("code", "origin", "place", "key")) == place


def test_late_halves_heal_lost_ones_stop_and_files_delivered_again_are_read(filed: Filed) -> None:
    """T-11, T-34, T-40, G-03: B without U and U without B wait for each other; the way out of a bad file works."""
    pipeline, _, _ = filed
    for half in ("update_late", "before_late"):
        assert pipeline.mirrored("shop", half) == [ct_landed(1)], "what came before the open half is there"
    assert pipeline.open_fragments == 4
    put(pipeline, "update_late", "2", ct(2, "U", "2", "Eve", mask(KEY_BIT, KEY_BIT + 1)), ct(3, "I", "3"))
    put(pipeline, "before_late", "2", ct(2, "B", "1"), ct(3, "I", "3"))
    put(pipeline, "clean", "2", ct(40, "I", "2"))
    put(pipeline, "clean", "3", ct(39, "I", "4"))
    # A file in the folder of a partition that was closed and read long ago, with a row older than what was read.
    folder = "20240101T1200_20240101T1210"
    put(pipeline, "partitioned", f"{folder}/2", ct(4, "I", "1", "four"), ct(6, "I", "2"))
    again = [put(pipeline, one.table, "again", *GOOD) for one in CONTRADICTED]
    put(pipeline, "damaged", "again", *GOOD)
    extracted, _ = pipeline.tick()
    assert (extracted.waiting_files, extracted.counts["rejected"], len(again)) == ([], 0, len(CONTRADICTED))
    for half in ("update_late", "before_late"):
        rows = in_order(pipeline.mirrored("shop", half), ["id"])
        assert rows == in_order([ct_landed(2, "Eve"), ct_landed(3)], ["id"]), "the old key left"
    assert in_order(pipeline.mirrored("shop", "partitioned"), ["id"]) == [ct_landed(1, "five"), ct_landed(2)]

    pipeline.make_overdue()
    put(pipeline, "clean", "4", ct(50, "D", "1"))
    for source in ("damaged", *(one.table for one in CONTRADICTED)):
        resume_table(pipeline.ledger, "test", f"shop.{source}", Reason("operator", "delivered again"))
    extracted, _ = pipeline.tick()
    for source in ("damaged", *(one.table for one in CONTRADICTED)):
        found = in_order(pipeline.mirrored("shop", source), ["id"])
        assert found == in_order([ct_landed(1), ct_landed(2)], ["id"]), source
    assert in_order(pipeline.mirrored("shop", "clean"), ["id"]) == [ct_landed(2), ct_landed(4)]
    assert extracted.counts["expired"] == 2
    for table, code, row_ in (
        ("update_lost", "ROWS_MISSING", ct(2, "U", "2", "Eve", mask(KEY_BIT, KEY_BIT + 1))),
        ("before_lost", "ROWS_MISSING", ct(2, "B", "1")),
    ):
        (found,) = (x for x in pipeline.letters() if x["tbl"] == f"shop.{table}")
        assert (found["code"], found["key"], found["origin"], found["place"]) == (
            code, None, f"shop.{table}__ct/1.csv", 1,
        )  # fmt: skip
        assert json.loads(found["raw"])[-1] == list(row_)
        assert listed_next_steps(pipeline)[found["origin"], 1] == next_step_of(code)
        state = pipeline.reader.tables()[f"shop.{table}"]
        assert state.stop_code == "KEY_UNKNOWN" and code in (state.stop_what or "")
        assert pipeline.mirrored("shop", table) == [ct_landed(1)], "nothing was published after it"
    assert stops(pipeline) == {"shop.nulled", "shop.moved", "shop.update_lost", "shop.before_lost"}


def test_a_file_whose_metadata_file_comes_too_late_stops_its_table_and_is_read_then(tmp_path: Path, spark: Any) -> None:
    """T-42: nothing of it is lost, though other tables went on; its dead letter is settled by reading it."""
    source = {"format": "qlik-change-table", "transport": "files", "layout": None}
    tables = [{"source": f"shop.{name}", "target": f"shop/{name}", "key": ["id"]} for name in ("clean", "late")]
    pipeline = Pipeline(tmp_path, spark, tables, source=source)
    put(pipeline, "clean", "1", ct(1, "I", "1"))
    pipeline.deliver("shop.late__ct/1.csv", lines(GOOD))
    pipeline.tick()
    assert stops(pipeline) == set()
    os.utime(pipeline.source / "shop.late__ct/1.csv", (0, 0))
    put(pipeline, "clean", "2", ct(2, "I", "2"))
    pipeline.tick()
    stopped(pipeline, "shop.late", "CHANGES_MISSING", "FILE_INCOMPLETE", "shop.late__ct/1.csv:0")
    assert pipeline.tick()[0].batch is None, "it is reported once"
    put(pipeline, "late", "1", *GOOD)
    pipeline.tick()
    resume_table(pipeline.ledger, "test", "shop.late", Reason("operator", "its metadata file was copied"))
    pipeline.tick()
    assert in_order(pipeline.mirrored("shop", "late"), ["id"]) == in_order([ct_landed(1), ct_landed(2)], ["id"])
    assert look(pipeline.mirror, pipeline.ledger).lost == {} and stops(pipeline) == set()


@pytest.mark.parametrize("same_batch", [True, False])
def test_a_late_before_image_with_an_unreadable_key_stops_its_table_alone(
    same_batch: bool, tmp_path: Path, spark: Any
) -> None:
    """T-11, T-19, G-06: its UPDATE was logged without it, and no one knows which key that left."""
    source = {"format": "qlik-change-table", "transport": "files", "layout": None}
    tables = [{"source": f"shop.{name}", "target": f"shop/{name}", "key": ["id"]} for name in ("clean", "items")]
    pipeline = Pipeline(tmp_path, spark, tables, source=source)
    put(pipeline, "items", "1", ct(1, "I", "1"), ct(2, "U", "1", "Eve", mask(KEY_BIT + 1)))
    if not same_batch:
        assert main(["tick", str(pipeline.file)]) == Exit.DONE
    put(pipeline, "items", "2", ct(2, "B", "one"), ct(3, "I", "3"))
    put(pipeline, "clean", "1", ct(1, "I", "1"))
    assert main(["tick", str(pipeline.file)]) == Exit.TABLES_STOPPED
    pipeline.service.poll()
    assert pipeline.mirrored("shop", "clean") == [ct_landed(1)] and stops(pipeline) == {"shop.items"}
    (letter,) = pipeline.letters()
    assert (letter["code"], letter["tbl"], letter["key"]) == ("KEY_INVALID", "shop.items", None)
    assert (letter["origin"], letter["place"]) == ("shop.items__ct/2.csv", 0)
    assert json.loads(letter["raw"])[-1] == list(ct(2, "B", "one"))
    assert pipeline.open_fragments == 0
    assert main(["reconcile", str(pipeline.file)]) == Exit.TABLES_STOPPED, "every piece is counted once"


def test_a_metadata_file_that_is_replaced_after_its_file_was_read_is_noticed_g32(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-32, G-02: what it says of the values counts; touched, or written anew to say the same, it changes nothing."""
    source = {"format": "qlik-change-table", "transport": "files", "layout": None}
    tables = [{"source": f"shop.{name}", "target": f"shop/{name}", "key": ["id"]} for name in ("said", "alike")]
    pipeline = Pipeline(tmp_path, spark, tables, source=source)

    def describe(table: str, null: str, indent: int | None = None) -> None:
        content = dfm(table, "1.csv", 2, options={"nullValue": null})
        pipeline.deliver(f"shop.{table}__ct/1.dfm", json.dumps(json.loads(content), indent=indent).encode())

    for table in ("said", "alike"):
        pipeline.deliver(
            f"shop.{table}__ct/1.csv", lines([ct(1, "I", "1"), ct(2, "I", "2", "none")]).replace(b'"none"', b"none")
        )
        describe(table, "none")
    assert main(["tick", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    pipeline.service.poll()
    rows = [ct_landed(1), ct_landed(2, None)]
    assert in_order([dict(one) for one in pipeline.mirrored("shop", "said")], ["id"]) == rows
    describe("said", "")
    describe("alike", "none", indent=1)
    assert main(["tick", str(pipeline.file)]) == Exit.TABLES_STOPPED
    states = pipeline.reader.tables()
    assert (states["shop.said"].stop_code, states["shop.alike"].stop_code) == ("IDENTITY_CONFLICT", None)
    pipeline.service.poll()
    assert in_order([dict(one) for one in pipeline.mirrored("shop", "alike")], ["id"]) == rows
