"""Columns that were dropped or replaced while no row came: nothing is asked, and nothing differs (G-60).

The histories are as the sources send them: a full load or an export, announced structures, then the first change.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.ces_messages import event
from tests.e2e.test_bad_input_qlik_change_tables import dfm
from tests.e2e.test_dropped_columns_formats import MD_TYPES, Change, ChangeTableFiles, Debezium, Source
from tests.pipeline import Pipeline, in_order
from tests.postgres import PostgresServer
from tests.qlik_change_rows import sequence
from tests.qlik_messages import avro_dt, avro_md, avro_schema, dt, md
from tests.spark.test_initial_load_jdbc import connect

ADDED = ("id", "name", "city", "cost")
Column = tuple[str, str, int]


class FullLoad(ChangeTableFiles):
    """A Qlik file target with a full load of two rows."""

    def __init__(self, folder: Path, columns: Sequence[Column], **setting: Any) -> None:
        load = {"format": "qlik-full-load", "path": "source/shop.items", "stream_from": "beginning"}
        super().__init__(folder, None, initial_load=load, **setting)
        names = [name for name, *_ in columns]
        rows = [[str(number), *(str(number) for _ in names[1:])] for number in (1, 2)]
        text = "".join(",".join(f'"{cell}"' for cell in line) + "\n" for line in [names, *rows])
        self.pipeline.deliver("shop.items/LOAD00000001.csv", text.encode())
        described = dfm("items", "LOAD00000001.csv", len(rows), columns=columns, target="items")
        self.pipeline.deliver("shop.items/LOAD00000001.dfm", described)
        assert main(["initial-load", str(self.pipeline.file)]) == Exit.DONE


WIDE: list[Column] = [("id", "INT4", 10), *((name, "STRING", 100) for name in ("name", "city", "a", "b", "c", "price"))]


def test_columns_dropped_between_full_load_and_first_change_are_gone(tmp_path: Path, capsys: Any) -> None:
    story = FullLoad(tmp_path, WIDE)
    assert story.tick(Change("UPD", 1, 5, ("id", "name", "city"), "Eve")) == Exit.DONE, capsys.readouterr().out
    assert sorted(story.gone) == ["a", "b", "c", "price"]
    assert [(row["name"], row["city"], row["a"], row["price"]) for row in story.rows] == [
        ("Eve", "Linz", None, None), ("2", "2", "2", "2")
    ]  # fmt: skip


@pytest.mark.parametrize("place", ["same", "other", "other type"])
def test_a_column_replaced_between_full_load_and_first_change_is_asked_for_at_its_place_only(
    place: str, tmp_path: Path, capsys: Any
) -> None:
    columns: list[Column] = [("id", "INT4", 10), *((n, "STRING", 100) for n in ("name", "city"))]
    price: Column = ("price", "INT4" if place == "other type" else "STRING", 100)
    columns.insert(2 if place == "other" else 3, price)
    story = FullLoad(tmp_path, columns)
    ends = story.tick(Change("UPD", 1, 5, ADDED, "Eve"))
    if place == "same":
        assert ends == Exit.TABLES_STOPPED
        assert "rows lack 'price' and have 'cost'" in capsys.readouterr().out
        assert story.decide("--dropped", "price") == Exit.DONE
        assert story.tick() == Exit.DONE, capsys.readouterr().out
    else:
        assert ends == Exit.DONE, capsys.readouterr().out
    assert [(row["name"], row["price"], row["cost"]) for row in story.rows] == [
        ("Eve", None, "2.50"), ("2", "2", None)
    ]  # fmt: skip


class Version(NamedTuple):
    """A structure as a metadata message announces it: the ordinal of each column; a number is a type of its own."""

    number: int
    columns: Mapping[str, int]
    types: Mapping[str, str] = MappingProxyType({})

    @property
    def id(self) -> str:
        return f"{self.number:032X}"

    def parts(self) -> dict[str, Any]:
        described = {}
        for name, ordinal in self.columns.items():
            kind, length, precision, scale, key = MD_TYPES.get(name, MD_TYPES["price"])
            described[name] = {"ordinal": ordinal, "type": self.types.get(name, kind), "length": length}
            described[name] |= {"precision": precision, "scale": scale, "primaryKeyPosition": key}
        lineage = {"server": "S", "task": "t", "schema": "dbo", "table": "orders", "tableVersion": self.number}
        return {
            "schema_id": self.id,
            "tableStructure": {"tableColumns": described},
            "lineage": {**lineage, "timestamp": f"2026-08-07T16:{self.number:02d}:10.123"},
        }


class JsonHistory:
    """Messages of one table, as they are reported, in one file a call."""

    def __init__(self, folder: Path, **setting: Any) -> None:
        described = {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"], **setting}
        self.pipeline = Pipeline(folder, None, [described], source={"format": "qlik-message"})  # type: ignore[arg-type]
        self._lines, self._number = list[str](), 0

    def announce(self, *versions: Version) -> None:
        for one in versions:
            self._put(self._metadata(one))

    def insert(self, version: Version, id_: int, **values: str) -> None:
        self._number += 1
        row = {name: {"id": id_}.get(name, values.get(name, "1.50")) for name in version.columns}
        self._put(self._data(version, row))

    def _metadata(self, version: Version) -> bytes:
        return md(**version.parts())

    def _data(self, version: Version, row: Mapping[str, Any]) -> bytes:
        return dt("INSERT", row, schema_id=version.id, number=self._number, transactionEventCounter=1)

    def _put(self, body: bytes) -> None:
        line = {"topic": "t", "partition": 0, "encoding": "base64", "offset": len(self._lines)}
        self._lines.append(json.dumps({**line, "value": base64.b64encode(body).decode()}))
        self.pipeline.deliver("all.jsonl", ("\n".join(self._lines) + "\n").encode())

    def tick(self) -> int:
        code = main(["tick", str(self.pipeline.file)])
        self.pipeline.service.poll()
        return code

    def rows(self, *names: str) -> list[tuple[str | None, ...]]:
        found = in_order(self.pipeline.mirrored("dbo", "orders"), ["id"])
        return [tuple(None if row[n] is None else str(row[n]) for n in names) for row in found]


class AvroHistory(JsonHistory):
    """The same in Avro, with writer schemas."""

    def _schema(self, version: Version) -> dict[str, Any]:
        return avro_schema({name: "int" if name == "id" else "string" for name in version.columns})

    def _metadata(self, version: Version) -> bytes:
        return avro_md(self._schema(version), **version.parts())

    def _data(self, version: Version, row: Mapping[str, Any]) -> bytes:
        schema = self._schema(version)
        said = {"schema": schema, "schema_id": version.id, "number": self._number}
        return avro_dt("INSERT", row, transactionEventCounter=1, **said)


V1 = Version(1, {"id": 1, "name": 2, "price": 3, "city": 4})
WITHOUT = Version(2, {"id": 1, "name": 2, "city": 3})
MOVED = Version(3, {"id": 1, "name": 2, "city": 3, "cost": 4})
AT_ITS_PLACE = Version(3, {"id": 1, "name": 2, "cost": 3, "city": 4})
REPLACED = [
    pytest.param([WITHOUT, MOVED], id="a version without either"),
    pytest.param([WITHOUT, AT_ITS_PLACE], id="a version without either, then at the same ordinal"),
    pytest.param([MOVED], id="another ordinal"),
    pytest.param([Version(3, {"id": 1, "name": 2, "city": 4, "cost": 5})], id="ordinals with a gap"),
    pytest.param([AT_ITS_PLACE._replace(types={"cost": "WSTRING"})], id="another type"),
    pytest.param([Version(2, {**V1.columns, "cost": 5}), MOVED], id="a version with both"),
]


LISTED = {"columns": ["id", "name", "price"]}


@pytest.mark.parametrize("versions", REPLACED)
@pytest.mark.parametrize(
    ("kind", "setting"),
    [(JsonHistory, {}), (JsonHistory, LISTED), (AvroHistory, {})],
    ids=["json", "json, listed columns", "avro"],
)
def test_a_column_that_announced_structures_show_replaced_is_not_asked_for(
    setting: dict[str, Any], kind: type[JsonHistory], versions: list[Version], tmp_path: Path, capsys: Any
) -> None:
    """No row came between: without the structures it may have been renamed."""
    story = kind(tmp_path, **setting)
    story.announce(V1)
    story.insert(V1, 1)
    assert story.tick() == Exit.DONE
    story.announce(*versions)
    story.insert(versions[-1], 2, cost="2.50")
    assert story.tick() == Exit.DONE, capsys.readouterr().out
    assert story.rows("id", "price") == [("1", "1.50"), ("2", None)]
    assert setting or story.rows("cost") == [(None,), ("2.50",)]


@pytest.mark.parametrize("answer", ["ask", "dropped", "reload"])
@pytest.mark.parametrize("kind", [JsonHistory, AvroHistory])
def test_a_column_that_may_have_been_renamed_is_asked_for_as_the_mirror_file_says(
    answer: str, kind: type[JsonHistory], tmp_path: Path, capsys: Any
) -> None:
    """Same ordinal, same type, in one version; `reload` has no database to load from here."""
    story = kind(tmp_path, on_possible_rename=answer)
    story.announce(V1)
    story.insert(V1, 1)
    assert story.tick() == Exit.DONE
    story.announce(AT_ITS_PLACE)
    story.insert(AT_ITS_PLACE, 2, cost="2.50")
    ends = story.tick()
    out = capsys.readouterr().out
    assert ends == (Exit.DONE if answer == "dropped" else Exit.TABLES_STOPPED), out
    assert ("RENAME_POSSIBLE" in out) is (answer != "dropped")
    if answer == "dropped":
        assert story.rows("id", "price", "cost") == [("1", "1.50", None), ("2", None, "2.50")]


def test_columns_that_may_have_been_renamed_are_one_question_with_one_answer(tmp_path: Path, capsys: Any) -> None:
    old, new = (
        Version(n, {"id": 1, **{f"{letter}{at}": at + 2 for at in range(3)}}) for n, letter in ((1, "a"), (2, "b"))
    )
    story = JsonHistory(tmp_path)
    story.announce(old)
    story.insert(old, 1)
    story.announce(new)
    story.insert(new, 2)
    assert story.tick() == Exit.TABLES_STOPPED
    assert "rows lack 'a0', 'a1', 'a2' and have 'b0', 'b1', 'b2'" in capsys.readouterr().out
    said = ["accept-schema", str(story.pipeline.file), "--table", "dbo.orders", "--why", "x", "--dropped"]
    assert main([*said, "a0", "a1", "nothing"]) == Exit.TERMINAL
    assert "ARGUMENT_INVALID" in capsys.readouterr().err
    assert main([*said, "a0", "a1", "a2"]) == Exit.DONE
    assert story.tick() == Exit.DONE, capsys.readouterr().out
    assert story.rows("id", "a1", "b1") == [("1", "1.50", None), ("2", None, "1.50")]
    capsys.readouterr()
    main(["status", str(story.pipeline.file)])
    out = capsys.readouterr().out
    assert "columns 'a0', 'a1', 'a2' gone since" in out and out.count("gone since") == 1
    assert "columns 'b0', 'b1', 'b2' unverified since" in out and out.count("unverified since") == 1


LOADED = {"id": [1, 2], "name": ["Ada", "Bo"], "price": [15, 15], "a": [1.5, 2.5]}


@pytest.mark.parametrize(
    "cols",
    [
        pytest.param([("id", "int"), ("name", "nvarchar(9)")], id="dropped"),
        pytest.param([("id", "int"), ("name", "nvarchar(9)"), ("cost", "int")], id="replaced"),
    ],
)
def test_loaded_columns_that_change_events_would_carry_are_gone(
    cols: list[tuple[str, str]], tmp_path: Path, capsys: Any
) -> None:
    """C-77: no number is of a type that is left out, and a source that streams renames nothing (C-74)."""
    load = {"format": "parquet", "path": "export.parquet", "stream_from": "beginning"}
    table = {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"], "initial_load": load}
    pipeline = Pipeline(tmp_path / "m", None, [table], source={"layout": "bare"})  # type: ignore[arg-type]
    kinds = [("id", pa.int32()), ("name", pa.string()), ("price", pa.int32()), ("a", pa.float64())]
    pq.write_table(pa.table(LOADED, pa.schema(kinds)), tmp_path / "m" / "export.parquet")
    assert main(["initial-load", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().err
    row = {"id": "1", "name": "Eve", "cost": "7"}
    new = {name: row[name] for name, _ in cols}
    story = [
        event("INS", {**new, "id": "3"}, cols=cols, commit=9),
        event("UPD", new, {**new, "name": "Ada"}, cols=cols),
    ]
    pipeline.deliver("a.jsonl", b"".join(one + b"\n" for one in story))
    assert main(["tick", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    pipeline.service.poll()
    assert "columns 'a', 'price' gone since" in capsys.readouterr().out
    rows = in_order(pipeline.mirrored("dbo", "orders"), ["id"])
    assert [(one["name"], one["price"], one["a"], one.get("cost")) for one in rows] == [
        ("Eve", None, None, 7 if len(cols) > 2 else None), ("Bo", 15, 2.5, None),
        ("Eve", None, None, 7 if len(cols) > 2 else None),
    ]  # fmt: skip


def test_columns_dropped_before_the_first_change_of_a_change_table_in_a_database(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """T-30, T-33: the first rows come from the table that the task keeps there; a rename in place is loaded again."""
    connect(monkeypatch, postgres, postgres.port)
    columns = "id int, name text, a text, price text, b text"
    headers = "header__change_seq varchar(35), header__change_oper varchar(1), header__change_mask bytea"
    postgres.execute(
        "DROP SCHEMA IF EXISTS shop CASCADE", "CREATE SCHEMA shop", f"CREATE TABLE shop.items ({columns})",
        f"CREATE TABLE shop.items__ct ({headers}, {columns})",
        "INSERT INTO shop.items VALUES (1, 'Ada', 'x', '1', 'y'), (2, 'Bo', 'x', '1', 'y')",
    )  # fmt: skip
    load = {"format": "jdbc", "connection": "shop_db", "table": "shop.items"}
    table = {"source": "shop.items", "target": "shop/items", "key": ["id"], "initial_load": load}
    source = {"format": "qlik-change-table", "transport": "jdbc", "connection": "shop_db", "path": "", "layout": None}
    pipeline = Pipeline(
        tmp_path / "m",
        None,  # type: ignore[arg-type]
        [{**table, "on_possible_rename": "reload"}],
        source=source,
        landing_zone={"store": "local", "path": "zone", "tables": "tables"},
    )
    assert main(["initial-load", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().err

    def change(done: str, *statements: str) -> int:
        postgres.execute(*(f"ALTER TABLE shop.{name} {done}" for name in ("items", "items__ct") if done), *statements)
        code = main(["tick", str(pipeline.file)])
        pipeline.service.poll()
        return code

    values = f"'{sequence(10)}', 'I', NULL, 3, 'Eve', '1'"
    done = "DROP COLUMN a, DROP COLUMN b, ADD COLUMN c int"
    assert change(done, f"INSERT INTO shop.items__ct VALUES ({values})") == Exit.DONE, capsys.readouterr().out
    rows = in_order(pipeline.mirrored("shop", "items"), ["id"])
    assert [(row["name"], row["a"], row["b"]) for row in rows] == [
        ("Ada", "x", "y"), ("Bo", "x", "y"), ("Eve", None, None)
    ]  # fmt: skip

    values = f"'{sequence(20)}', 'I', NULL, 4, 'Kim', '2'"
    insert = [f"INSERT INTO shop.items__ct VALUES ({values})"]
    insert += [f"INSERT INTO shop.items VALUES ({values.split('NULL, ')[1]})", "DELETE FROM shop.items WHERE id = 3"]
    codes = [change("RENAME COLUMN price TO cost", *insert), *(change("") for _ in range(4))]
    assert codes[-1] == Exit.DONE, capsys.readouterr().out
    rows = in_order(pipeline.mirrored("shop", "items"), ["id"])
    assert [(row["name"], row["cost"], "price" in row) for row in rows if row["id"] != 3] == [
        ("Ada", "1", False), ("Bo", "1", False), ("Kim", "2", False)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("versions", "stop"),
    [
        pytest.param([V1, WITHOUT], None, id="announced once"),
        pytest.param([WITHOUT], "COLUMN_NOT_STREAMED", id="never announced"),
        pytest.param([V1, AT_ITS_PLACE], "RENAME_POSSIBLE", id="may be renamed"),
        pytest.param([V1, WITHOUT, MOVED], None, id="replaced"),
    ],
)
def test_what_became_of_a_column_of_an_export_is_reported_by_announced_structures(
    versions: list[Version], stop: str | None, tmp_path: Path, capsys: Any
) -> None:
    """A task may leave a column out of its changes that an export has: then changed rows would lose it."""
    load = {"format": "parquet", "path": "export.parquet", "stream_from": "beginning"}
    story = JsonHistory(tmp_path / "m", initial_load=load)
    export = {"id": pa.array([1, 2], pa.int32()), "name": ["1.50", "n"], "price": ["1", "1"], "city": ["c", "c"]}
    pq.write_table(pa.table(export), tmp_path / "m" / "export.parquet")
    assert main(["initial-load", str(story.pipeline.file)]) == Exit.DONE, capsys.readouterr().err
    story.announce(*versions)
    story.insert(versions[-1], 3)
    ends = story.tick()
    assert ends == (Exit.TABLES_STOPPED if stop else Exit.DONE), capsys.readouterr().out
    assert story.pipeline.reader.tables()["dbo.orders"].stop_code == stop
    assert stop or story.rows("id", "price") == [("1", "1"), ("2", "1"), ("3", None)]


@pytest.mark.parametrize("kind", [Debezium, ChangeTableFiles])
@pytest.mark.parametrize("listed", [False, True], ids=["all", "listed"])
def test_a_column_that_comes_at_another_place_is_another_one(
    listed: bool, kind: type[Source], tmp_path: Path, capsys: Any
) -> None:
    """No rows between, no announcement: the places in the table say it, also where `columns` lists both."""
    names = ("id", "price", "name", "city", "cost")
    story = kind(tmp_path, None, **({"columns": {"include": list(names)}} if listed else {}))
    assert story.tick(Change("INS", 1, 1, ("id", "price", "name", "city"))) == Exit.DONE
    ends = story.tick(Change("INS", 2, 5, ("id", "name", "city", "cost")))
    if listed:
        assert ends == Exit.TABLES_STOPPED and story.stop == "RENAME_POSSIBLE", "it may have a name that is not listed"
        assert story.decide("--dropped", "price") == Exit.DONE
        ends = story.tick()
    assert ends == Exit.DONE, capsys.readouterr().out
    assert [(row["price"], row["cost"]) for row in story.rows] == [("1.50", None), (None, "2.50")]
