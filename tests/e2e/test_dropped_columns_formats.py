"""The same drop, and the same possible rename, in every format and over every transport (G-60).

One story: rows, the drop of a column, rows without it, and a late row from before, which has it. Every source tells it
in its own way; every table ends the same, or asks the same question.
"""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from uuid import uuid4

import pytest

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.ces_messages import avro_event, event
from tests.debezium import event as debezium_event
from tests.e2e.test_bad_input_qlik_change_tables import HEADERS, dfm
from tests.pipeline import Pipeline, in_order
from tests.postgres import PostgresServer
from tests.qlik_change_rows import mask, sequence
from tests.qlik_messages import avro_dt, avro_md, avro_schema, dt, md
from tests.spark.test_initial_load_jdbc import connect

FULL, SHORT, RENAMED = ("id", "name", "city", "price"), ("id", "name", "city"), ("id", "name", "city", "cost")
SHOUTED = ("id", "name", "city", "PRICE")
VERSIONS = {FULL: 1, SHORT: 2, RENAMED: 2, SHOUTED: 2}
VALUES = {"city": "Linz", "price": "1.50", "cost": "2.50"}


class Change(NamedTuple):
    """An insert, or an update of the name, at a place, when the table had these columns."""

    operation: str
    id: int
    at: int
    columns: Sequence[str]
    name: str = "Ada"
    old: str = "Ada"

    def row(self, name: str | None = None) -> dict[str, str]:
        given = {"id": str(self.id), "name": name or self.name, **VALUES}
        return {column: given[column.lower()] for column in self.columns}


class Source(ABC):
    """A mirror of one table that is reported the story in one format."""

    settings: ClassVar[Mapping[str, Any]]
    source = "dbo.orders"
    renames = True

    def __init__(self, folder: Path, spark: Any, **setting: Any) -> None:
        schema, table = self.source.split(".")
        described = {"source": self.source, "target": f"{schema}/{table}", "key": ["id"], **setting}
        self.pipeline = Pipeline(folder, spark, [described], source=self.settings)
        self.files = 0
        self._offsets = count()

    @abstractmethod
    def send(self, changes: Sequence[Change]) -> None:
        """Let the source tell these changes, which have one list of columns."""

    def tick(self, *changes: Change) -> int:
        if changes:
            self.files += 1
            self.send(changes)
        code = main(["tick", str(self.pipeline.file)])
        self.pipeline.service.poll()
        return code

    def decide(self, *words: str) -> int:
        named = ["--table", self.source, "--why", "looked at the source"]
        return main(["accept-schema", str(self.pipeline.file), *named, *words])

    @property
    def rows(self) -> list[dict[str, Any]]:
        found = in_order(self.pipeline.mirrored(*self.source.split(".")), ["id"])
        return [{name: None if value is None else str(value) for name, value in row.items()} for row in found]

    @property
    def stop(self) -> str | None:
        return self.pipeline.reader.tables()[self.source].stop_code

    @property
    def gone(self) -> list[str]:
        state = self.pipeline.reader.tables()[self.source]
        return [one.column for one in self.pipeline.reader.gone_columns([state]).get(state.id, [])]


SQL = {"id": "int", "name": "nvarchar(50)", "city": "nvarchar(50)", "price": "decimal(8,2)", "cost": "decimal(8,2)"}


class CesLines(Source):
    settings: ClassVar = {"layout": "bare"}
    renames = False

    def message(self, one: Change) -> bytes:
        old = one.row(one.old) if one.operation == "UPD" else None
        cols = [(name, SQL[name.lower()]) for name in one.columns]
        return event(one.operation, one.row(), old, cols=cols, commit=one.at)

    def send(self, changes: Sequence[Change]) -> None:
        self.pipeline.deliver(f"{self.files}.jsonl", b"".join(self.message(one) + b"\n" for one in changes))


class CesAvroLines(CesLines):
    settings: ClassVar = {"layout": "wrapped"}

    def message(self, one: Change) -> bytes:
        old = one.row(one.old) if one.operation == "UPD" else None
        cols = [(name, SQL[name.lower()]) for name in one.columns]
        body = base64.b64encode(avro_event(one.operation, one.row(), old, cols=cols, commit=one.at)).decode()
        line = {"topic": "t", "partition": 0, "offset": next(self._offsets), "encoding": "base64", "value": body}
        return json.dumps(line).encode()


class Debezium(Source):
    settings: ClassVar = {"format": "debezium-json", "layout": "bare"}

    def send(self, changes: Sequence[Change]) -> None:
        lines = []
        for one in changes:
            kind = {"INS": "c", "UPD": "u"}[one.operation]
            images = [list({**one.row(name), "id": one.id}.values()) for name in (one.old, None)]
            before = images[0] if kind == "u" else None
            lines.append(debezium_event(kind, before, images[1], one.at, " ".join(one.columns)))
        self.pipeline.deliver(f"{self.files}.jsonl", b"".join(lines))


CT_TYPES = {"id": ("INT4", 10), "name": ("STRING", 100), "city": ("STRING", 100), "price": ("STRING", 20)}
CT_TYPES["cost"] = CT_TYPES["price"]


class ChangeTableFiles(Source):
    settings: ClassVar = {"format": "qlik-change-table", "transport": "files", "layout": None}
    source = "shop.items"

    def send(self, changes: Sequence[Change]) -> None:
        columns = [*HEADERS, *((name, *CT_TYPES[name.lower()]) for name in changes[0].columns)]
        rows: list[list[str]] = []
        for one in changes:
            oper = {"INS": "I", "UPD": "U"}[one.operation]
            bits = mask(len(HEADERS) + 1) if oper == "U" else ""
            spelled = {"I": "INSERT", "U": "UPDATE"}[oper]
            rows.append([sequence(one.at), oper, bits, spelled, *one.row().values()])
        lines = [[name for name, *_ in columns], *rows]
        text = "".join(",".join(f'"{cell}"' if cell else "" for cell in line) + "\n" for line in lines)
        self.pipeline.deliver(f"shop.items__ct/{self.files}.csv", text.encode())
        described = dfm("items", f"{self.files}.csv", len(rows), columns=columns)
        self.pipeline.deliver(f"shop.items__ct/{self.files}.dfm", described)


MD_TYPES = {"id": ("INT4", 10, 0, 0, 1), "name": ("WSTRING", 100, 0, 0, 0), "city": ("WSTRING", 100, 0, 0, 0)}
MD_TYPES["price"] = MD_TYPES["cost"] = ("NUMERIC", 0, 8, 2, 0)


class QlikMessages(Source):
    settings: ClassVar = {"format": "qlik-message"}
    encoding = "utf8"

    def message(self, one: Change) -> tuple[bytes, bytes]:
        """The description of the structure, and the change."""
        named = uuid4().hex.upper()
        version = VERSIONS[tuple(one.columns)]
        before = {**one.row(one.old), "id": one.id} if one.operation == "UPD" else None
        story = {**one.row(), "id": one.id}
        operation = {"INS": "INSERT", "UPD": "UPDATE"}[one.operation]
        columns = [(name, *MD_TYPES[name.lower()]) for name in one.columns]
        return (
            md(columns, schema_id=named, version=version),
            dt(operation, story, before, schema_id=named, number=one.at, transactionEventCounter=1),
        )

    def send(self, changes: Sequence[Change]) -> None:
        lines = []
        for one in changes:
            for body in self.message(one):
                value = body.decode() if self.encoding == "utf8" else base64.b64encode(body).decode()
                line = {"topic": "t", "partition": 0, "encoding": self.encoding, "value": value}
                lines.append(json.dumps({**line, "offset": next(self._offsets)}))
        self.pipeline.deliver(f"{self.files}.jsonl", ("\n".join(lines) + "\n").encode())


class QlikAvroMessages(QlikMessages):
    encoding = "base64"

    def message(self, one: Change) -> tuple[bytes, bytes]:
        named = uuid4().hex.upper()
        version = VERSIONS[tuple(one.columns)]
        schema = avro_schema({name: "int" if name == "id" else "string" for name in one.columns})
        before = {**one.row(one.old), "id": one.id} if one.operation == "UPD" else None
        story = {**one.row(), "id": one.id}
        operation = {"INS": "INSERT", "UPD": "UPDATE"}[one.operation]
        columns = [(name, *MD_TYPES[name.lower()]) for name in one.columns]
        said = {"schema": schema, "schema_id": named}
        return (
            avro_md(schema, columns, schema_id=named, version=version),
            avro_dt(operation, story, before, number=one.at, **said),
        )


FORMATS = [CesLines, Debezium, ChangeTableFiles, QlikMessages]
SOURCES = [*FORMATS, CesAvroLines, QlikAvroMessages]


def expected(*rows: tuple[int, str, str | None], **more: str | None) -> list[dict[str, Any]]:
    return in_order([{"id": str(i), "name": n, "city": "Linz", "price": p, **more} for i, n, p in rows], ["id"])


FIRST = [Change("INS", 1, 1, FULL), Change("INS", 2, 2, FULL), Change("INS", 3, 3, FULL)]


@pytest.mark.parametrize("kind", SOURCES)
def test_a_drop_goes_on_and_late_rows_have_the_column_f84_t33_k11(
    kind: type[Source], tmp_path: Path, spark: Any
) -> None:
    """F-84, C-75, T-33, K-11."""
    story = kind(tmp_path, spark)
    assert story.tick(*FIRST) == Exit.DONE
    assert story.tick(Change("INS", 4, 10, SHORT), Change("UPD", 2, 11, SHORT, "Eve")) == Exit.DONE
    assert story.gone == ["price"]
    assert story.rows == expected((1, "Ada", "1.50"), (2, "Eve", None), (3, "Ada", "1.50"), (4, "Ada", None))
    assert story.tick(Change("UPD", 3, 5, FULL, "Late"), Change("INS", 5, 6, FULL)) == Exit.DONE
    assert story.rows[2:] == expected((3, "Late", "1.50"), (4, "Ada", None), (5, "Ada", "1.50"))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_rename_is_asked_for_where_the_source_can_rename_f88_c74(
    kind: type[Source], tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """F-88, C-74: both answers, and that a lifted stop is none."""
    story = kind(tmp_path, spark)
    story.tick(*FIRST)
    after = [Change("INS", 4, 10, RENAMED), Change("UPD", 2, 11, RENAMED, "Eve")]
    if story.renames:
        assert story.tick(*after) == Exit.TABLES_STOPPED
        assert story.stop == "RENAME_POSSIBLE"
        resume = ["resume", str(story.pipeline.file), "--table", story.source, "--why", "x"]
        assert main(resume) == Exit.TERMINAL
        assert "COMMAND_REFUSED" in capsys.readouterr().err
        assert story.decide("--renamed", "price=cost") == Exit.TABLES_STOPPED
        assert story.tick() == Exit.TABLES_STOPPED
        assert story.stop == "COLUMN_RENAMED"
        assert story.decide("--dropped", "price") == Exit.DONE
        after = []
    assert story.tick(*after) == Exit.DONE
    assert story.gone == ["price"]
    old, new = expected((1, "Ada", "1.50"), (3, "Ada", "1.50"), cost=None), [(2, "Eve", None), (4, "Ada", None)]
    assert story.rows == in_order([*old, *expected(*new, cost="2.50")], ["id"])
    assert story.tick(Change("INS", 6, 20, RENAMED)) == Exit.DONE, "it is asked once"


@pytest.mark.parametrize("kind", [ChangeTableFiles, QlikMessages, Debezium])
def test_what_comes_before_the_question_is_published_and_the_rest_after_the_answer_g61(
    kind: type[Source], tmp_path: Path, spark: Any
) -> None:
    """G-61, I1: all in the first run; nothing is lost or published twice."""
    story = kind(tmp_path, spark)
    story.files = 1
    story.send([Change("INS", 4, 10, RENAMED), Change("UPD", 2, 11, RENAMED, "Eve")])
    assert story.tick(*FIRST, Change("UPD", 1, 9, FULL, "Kim")) == Exit.TABLES_STOPPED
    assert story.stop == "RENAME_POSSIBLE"
    assert story.rows == expected((1, "Kim", "1.50"), (2, "Ada", "1.50"), (3, "Ada", "1.50"))
    assert story.decide("--dropped", "price") == Exit.DONE
    assert story.tick(Change("UPD", 3, 8, FULL, "Late")) == Exit.DONE
    old, new = expected((1, "Kim", "1.50"), (3, "Late", "1.50"), cost=None), [(2, "Eve", None), (4, "Ada", None)]
    assert story.rows == in_order([*old, *expected(*new, cost="2.50")], ["id"])
    assert main(["reconcile", str(story.pipeline.file)]) == Exit.DONE


@pytest.mark.parametrize("kind", [CesLines, ChangeTableFiles, QlikMessages])
def test_a_listed_column_in_another_case_is_the_same_one_g67(kind: type[Source], tmp_path: Path, spark: Any) -> None:
    """G-12, G-67: left out for its case, its later values would be NULL without a word."""
    story = kind(tmp_path, spark, columns=["id", "name", "price"])
    assert story.tick(*FIRST) == Exit.DONE
    assert story.tick(Change("INS", 4, 10, SHOUTED), Change("UPD", 2, 11, SHOUTED, "Eve")) == Exit.TABLES_STOPPED
    assert story.stop == "COLUMN_RENAMED"
    assert [row["price"] for row in story.rows] == ["1.50"] * 3
    other = kind(tmp_path / "other", spark, columns=["id", "PRICE"])
    assert other.tick(*FIRST) == Exit.DONE
    assert other.rows == [{"id": str(at), "price": "1.50"} for at in (1, 2, 3)]


@pytest.mark.parametrize("kind", FORMATS)
def test_a_listed_column_that_goes_may_have_a_name_now_that_is_not_listed_g60(
    kind: type[Source], tmp_path: Path, spark: Any
) -> None:
    story = kind(tmp_path, spark, columns=["id", "name", "price"])
    assert story.tick(*FIRST) == Exit.DONE
    after = [Change("INS", 4, 10, RENAMED), Change("UPD", 2, 11, RENAMED, "Eve")]
    if story.renames:
        assert story.tick(*after) == Exit.TABLES_STOPPED
        assert story.stop == "RENAME_POSSIBLE"
        assert [row["name"] for row in story.rows] == ["Ada"] * 3
        assert story.decide("--dropped", "price") == Exit.DONE
        after = []
    assert story.tick(*after) == Exit.DONE
    assert [(row["name"], row["price"]) for row in story.rows] == [
        ("Ada", "1.50"), ("Eve", None), ("Ada", "1.50"), ("Ada", None)
    ]  # fmt: skip


@pytest.mark.parametrize("kind", FORMATS)
def test_a_listed_name_that_no_row_has_is_reported_g67(
    kind: type[Source], tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    story = kind(tmp_path, spark, columns=["id", "name", "prise"])
    assert story.tick(*FIRST) == Exit.DONE
    note = "NOT_SEEN: `columns` lists 'prise', and no row has such a column"
    assert note in capsys.readouterr().out
    main(["status", str(story.pipeline.file)])
    assert "NOT_SEEN" in capsys.readouterr().out
    story.pipeline.file.write_text(story.pipeline.file.read_text().replace("prise", "price"))
    assert story.tick(Change("INS", 4, 10, FULL)) == Exit.DONE
    assert [row["price"] for row in story.rows] == [None] * 3 + ["1.50"]
    out = capsys.readouterr().out
    assert "NOT_SEEN" not in out and "column 'price' unverified" in out


@pytest.mark.parametrize("kind", SOURCES)
def test_what_is_excluded_does_not_even_reach_the_log_g12(kind: type[Source], tmp_path: Path, spark: Any) -> None:
    """G-12: whichever way the source spells it; a column that is added is taken."""
    story = kind(tmp_path, spark, columns={"exclude": ["NAME", "pri*"]})
    assert story.tick(*FIRST) == Exit.DONE
    assert story.rows == [{"id": str(at), "city": "Linz"} for at in (1, 2, 3)]
    assert story.tick(Change("INS", 4, 10, RENAMED), Change("UPD", 2, 11, RENAMED, "Eve")) == Exit.DONE
    assert [(row["city"], row["cost"]) for row in story.rows] == [
        ("Linz", None), ("Linz", "2.50"), ("Linz", None), ("Linz", "2.50")
    ]  # fmt: skip
    text = "".join(str(row) for row in story.pipeline.logged())
    assert "Ada" not in text and "1.50" not in text


def test_a_drop_and_an_addition_in_two_steps_are_no_rename_f88(tmp_path: Path, spark: Any) -> None:
    story = ChangeTableFiles(tmp_path, spark)
    story.tick(*FIRST)
    story.tick(Change("INS", 4, 10, SHORT))
    assert story.tick(Change("INS", 5, 11, RENAMED)) == Exit.DONE
    assert [row["cost"] for row in story.rows] == [None] * 4 + ["2.50"]


def test_change_tables_in_a_database_spell_old_rows_by_the_columns_of_now_t33(
    tmp_path: Path, spark: Any, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T-18, T-33: what is read again, or comes late, lacks the column, and is no proof that it was gone by then."""
    connect(monkeypatch, postgres, postgres.port)
    columns = (
        "header__change_seq varchar(35), header__change_oper varchar(1), header__change_mask bytea, id int, name text"
    )
    postgres.execute(
        "DROP SCHEMA IF EXISTS shop CASCADE", "CREATE SCHEMA shop",
        f"CREATE TABLE shop.items__ct ({columns}, city text, price text)",
    )  # fmt: skip

    class Database(Source):
        settings: ClassVar = {"format": "qlik-change-table", "transport": "jdbc", "connection": "shop_db", "path": "",
                    "layout": None}  # fmt: skip
        source = "shop.items"

        def send(self, changes: Sequence[Change]) -> None:
            for one in changes:
                oper = {"INS": "I", "UPD": "U"}[one.operation]
                cells = [sequence(one.at), oper, *one.row().values()]
                names = ["header__change_seq", "header__change_oper", *one.columns]
                bits = [] if oper == "I" else [r"'\x10'"]
                named = [*names, *(["header__change_mask"] if bits else [])]
                values = [*("'" + cell + "'" for cell in cells), *bits]
                postgres.execute(f"INSERT INTO shop.items__ct ({', '.join(named)}) VALUES ({', '.join(values)})")

    story = Database(tmp_path, spark)
    assert story.tick(*FIRST, Change("INS", 4, 8, FULL)) == Exit.DONE
    postgres.execute("ALTER TABLE shop.items__ct DROP COLUMN price")
    # Nothing but rows that were read before, and a late one, which committed while the column was there.
    assert story.tick(Change("UPD", 3, 5, SHORT, "Late")) == Exit.DONE
    assert story.tick(Change("INS", 5, 10, SHORT), Change("UPD", 2, 11, SHORT, "Eve")) == Exit.DONE
    assert story.gone == ["price"]
    assert [(row["name"], row["price"]) for row in story.rows] == [
        ("Ada", "1.50"), ("Eve", None), ("Late", None), ("Ada", "1.50"), ("Ada", None)
    ]  # fmt: skip
    postgres.execute("ALTER TABLE shop.items__ct ADD COLUMN more text")
    assert story.tick(Change("INS", 6, 12, SHORT)) == Exit.DONE
    postgres.execute("ALTER TABLE shop.items__ct DROP COLUMN more, ADD COLUMN price text")
    assert story.tick(Change("INS", 7, 13, FULL)) == Exit.TABLES_STOPPED
    assert story.stop == "SCHEMA_CHANGED"
