"""Change events of which nothing tells what a table lacks: by the command line, it ends stopped, unverified or healed.

Single odd events are in tests/odd.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import msgspec
import pytest

from open_mirroring.ledger.columns import verify_columns
from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from spark_jobs.extract import batch_writing
from spark_jobs.sources.ces import avro as ces_avro
from spark_jobs.sources.ces import envelope as ces_envelope
from tests.ces_messages import avro, envelope, event, payload, split
from tests.e2e.test_bad_input import wrapped
from tests.pipeline import Pipeline, in_order

MORE = [("id", "int"), ("name", "nvarchar(50)"), ("price", "decimal(8,2)"), ("extra", "int")]


def row(key: int, name: str | None = "Ada", price: str | None = "1.50", **more: Any) -> dict[str, Any]:
    return {"id": str(key), "name": name, "price": price, **more}


def ins(key: int, commit: int, **parts: Any) -> bytes:
    values = parts.pop("values", {})
    return event("INS", {**row(key), **values}, commit=commit, pkkey={"id": str(key)}, **parts)


def upd(current: Mapping[str, Any], old: Any, commit: int, key: object = 1, **parts: Any) -> bytes:
    return event("UPD", current, old, commit=commit, **{"pkkey": {"id": str(key)}, **parts})


def values(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows as the target would have them."""
    kinds = {"id": int, "price": Decimal}
    return in_order(
        [{n: None if v is None else kinds.get(n, lambda t: t)(v) for n, v in one.items()} for one in rows], ["id"]
    )


def test_what_a_newer_decoder_reads_heals_its_table(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """C-11, C-95: the table waits stopped, and a replay after the update brings its change to its place."""
    tables = [{"source": f"dbo.{name}", "target": f"dbo/{name}", "key": ["id"]} for name in ("orders", "Cased")]
    pipeline = Pipeline(tmp_path / "newer", spark, tables)
    newer = ins(2, 2, replaced={"type": "com.microsoft.SQL.CES.DML.V2"})
    newest = upd(row(1, "Eve"), row(1), 9)
    pipeline.deliver("a.jsonl", wrapped([ins(1, 1), newer, newest, ins(1, 1, tbl="Cased")]))
    assert main(["tick", str(pipeline.file)]) == Exit.TABLES_STOPPED
    assert "MESSAGE_INVALID" in capsys.readouterr().out
    assert pipeline.reader.tables()["dbo.orders"].stop_code == "CHANGES_MISSING"
    pipeline.service.poll()
    assert pipeline.mirrored("dbo", "Cased") == values([row(1)]), "the other table goes on"
    read = ces_envelope._event
    monkeypatch.setattr(
        ces_envelope,
        "_event",
        lambda envelope, is_avro: read(msgspec.structs.replace(envelope, type=ces_envelope.EVENT_TYPE), is_avro),
    )
    # Workers are processes of their own, and would not have the newer decoder.
    monkeypatch.setattr(
        batch_writing, "run_job", lambda _spark, _name, work, tasks, _size: [work(task) for task in tasks]
    )
    assert main(["replay-dead-letters", str(pipeline.file)]) == Exit.DONE
    assert pipeline.reader.tables()["dbo.orders"].stop_code == "CHANGES_RECOVERED"
    assert main(["resume", str(pipeline.file), "--table", "dbo.orders", "--why", "updated"]) == Exit.DONE
    assert main(["tick", str(pipeline.file)]) == Exit.DONE
    pipeline.service.poll()
    assert in_order(pipeline.mirrored("dbo", "orders"), ["id"]) == values([row(1, "Eve"), row(2)])


@pytest.mark.parametrize("is_split", [False, True])
def test_a_second_database_stops_the_table_once_c12(is_split: bool, tmp_path: Path, spark: Any) -> None:
    """Two tables of one name would become one; whoever lifts the stop says that they are one."""
    tables = [{"source": f"dbo.{name}", "target": f"dbo/{name}", "key": ["id"]} for name in ("orders", "cars")]
    pipeline = Pipeline(tmp_path / "two", spark, tables)

    def tick(name: str, *bodies: bytes) -> int:
        pipeline.deliver(name, wrapped(bodies))
        code = main(["tick", str(pipeline.file)])
        pipeline.service.poll()
        return code

    assert tick("a.jsonl", ins(1, 1), ins(2, 2, db="SHOP"), ins(1, 3, tbl="cars")) == Exit.DONE
    other = ins(3, 4, db="other")
    assert tick("b.jsonl", *(split(other, [200]) if is_split else [other])) == Exit.TABLES_STOPPED
    stopped = pipeline.reader.tables()
    assert stopped["dbo.orders"].stop_code == "SENDER_OTHER" and stopped["dbo.cars"].stop_code is None
    assert in_order(pipeline.mirrored("dbo", "orders"), ["id"]) == values([row(1), row(2)])
    assert main(["resume", str(pipeline.file), "--table", "dbo.orders", "--why", "renamed"]) == Exit.DONE
    assert tick("c.jsonl", ins(4, 5, db="other")) == Exit.DONE
    assert in_order(pipeline.mirrored("dbo", "orders"), ["id"]) == values([row(key) for key in (1, 2, 3, 4)])


def loaded_table(folder: Path, name: str, types: Mapping[str, str], **settings: Any) -> dict[str, Any]:
    """A table with an export of one row, every text of it `1` but for the key."""
    folder.mkdir(exist_ok=True)
    content = ",".join(types) + "\n" + ",".join("1" for _ in types) + "\n"
    (folder / f"{name}.csv").write_text(content, encoding="utf-8")
    load = {"format": "csv", "path": str(folder / f"{name}.csv"), "stream_from": "beginning", "types": dict(types)}
    return {"source": f"dbo.{name}", "target": f"dbo/{name}", "key": ["id"], "initial_load": load, **settings}


def test_a_load_of_a_column_that_is_never_streamed_is_refused_at_once(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """C-77: by `check`, which is reported the types, and by `initial-load` before it reads."""
    types = {"id": "int", "doc": "XML"}
    tables = [
        loaded_table(tmp_path / "x", "orders", types),
        loaded_table(tmp_path / "x", "chosen", {**types, "name": "text"}, columns=["id"]),
    ]
    pipeline = Pipeline(tmp_path / "loads", spark, tables)
    assert main(["check", str(pipeline.file)]) == Exit.USAGE
    said = capsys.readouterr()
    assert "COLUMN_NOT_STREAMED" in said.out + said.err and "list `columns` without them" in said.out + said.err
    assert main(["initial-load", str(pipeline.file)]) == Exit.TABLES_STOPPED
    said = capsys.readouterr()
    assert "COLUMN_NOT_STREAMED" in said.out + said.err
    assert {s: state.start.load_state for s, state in pipeline.reader.tables().items()} == {
        "dbo.orders": "pending",
        "dbo.chosen": "loaded",
    }


def test_a_column_that_came_behind_rows_is_unverified_until_somebody_compared_it(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-07: ADD … NOT NULL DEFAULT gives rows a value that no change tells."""
    names = {"later": {}, "at_once": {}, "stops": {"require_reload_on_add": True}, "same": {}}
    tables = [{"source": f"dbo.{n}", "target": f"dbo/{n}", "key": ["id"], **s} for n, s in names.items()]
    tables.append(
        loaded_table(tmp_path / "x", "loaded", {"id": "int", "name": "nvarchar(50)", "price": "decimal(8,2)"})
    )
    pipeline = Pipeline(tmp_path / "added", spark, tables)
    assert main(["initial-load", str(pipeline.file)]) == Exit.DONE
    wide = {"cols": MORE, "values": {"extra": "5"}}
    first = [ins(1, 1, tbl=name) for name in names]
    pipeline.deliver("a.jsonl", wrapped([*first, ins(2, 2, tbl="at_once", **wide)]))
    assert main(["tick", str(pipeline.file)]) == Exit.DONE
    bodies = [ins(3, 3, tbl=tbl, **wide) for tbl in ("later", "stops", "loaded")]
    pipeline.deliver("b.jsonl", wrapped([*bodies, ins(3, 3, tbl="same")]))
    capsys.readouterr()
    assert main(["tick", str(pipeline.file)]) == Exit.TABLES_STOPPED
    assert "Note: dbo.later: column 'extra' unverified since LSN" in capsys.readouterr().out, "the run says so"
    main(["status", str(pipeline.file), "--json"])
    status = {table["source"]: table for table in json.loads(capsys.readouterr().out)["tables"]}
    at = {2: "0000002C000000020001:00000000000000000001:1", 3: "0000002C000000030001:00000000000000000001:1"}
    assert {name: table["unverified_columns"] for name, table in status.items()} == {
        "dbo.later": [["extra", at[3]]],
        "dbo.at_once": [["extra", at[2]]],
        "dbo.loaded": [["extra", at[3]]],
        "dbo.stops": [],
        "dbo.same": [],
    }
    assert "column 'extra' unverified since LSN 0000002C:00000003:0001" in " ".join(status["dbo.later"]["notes"])
    assert status["dbo.stops"]["code"] == "COLUMN_ADDED"
    main(["status", str(pipeline.file)])
    assert "column 'extra' unverified since LSN" in capsys.readouterr().out
    later = pipeline.reader.tables()["dbo.later"]
    assert verify_columns(pipeline.ledger, later.id, pipeline.reader.unverified_columns([later])[later.id]) == 1
    pipeline.deliver("c.jsonl", wrapped([ins(4, 4, tbl="later", **wide)]))
    text = pipeline.file.read_text(encoding="utf-8").replace("require_reload_on_add: true", "full_rows: null")
    pipeline.file.write_text(text, encoding="utf-8")
    assert main(["resume", str(pipeline.file), "--table", "dbo.stops", "--why", "came without default"]) == Exit.DONE
    assert main(["tick", str(pipeline.file)]) == Exit.DONE
    capsys.readouterr()
    main(["status", str(pipeline.file), "--json"])
    status = {table["source"]: table for table in json.loads(capsys.readouterr().out)["tables"]}
    assert status["dbo.later"]["unverified_columns"] == [], "what is verified stays so"
    assert status["dbo.stops"]["unverified_columns"] == [["extra", at[3]]]


def test_binary_values_are_read_as_the_mirror_file_says(tmp_path: Path, spark: Any) -> None:
    """C-84, C-63: base64, as keys too, in JSON, and in an Avro container file."""
    tables = [{"source": "dbo.orders", "target": "dbo/orders", "key": ["id"]}]
    pipeline = Pipeline(tmp_path / "binary", spark, tables, source={"binary": "base64"})
    cols = [("id", "binary(2)"), ("data", "varbinary(max)")]
    one, two, changed = {"id": "q80=", "data": "3q2+7w=="}, {"id": "AAA=", "data": None}, {"id": "q80=", "data": "AA=="}
    data = avro(ces_avro.DATA_WITH_FINALEVENT, payload(two, cols=cols, commit=2, pkkey={"id": "AAA="}))
    stream = io.BytesIO()
    fastavro.writer(stream, ces_avro.CHANGE_EVENT, [envelope("INS", data, commit=2)])
    bodies = [
        event("INS", one, cols=cols, commit=1, pkkey={"id": "q80="}),
        stream.getvalue(),
        event("UPD", changed, {}, cols=cols, commit=3, pkkey={"id": "q80="}),
    ]
    pipeline.deliver("a.jsonl", wrapped(bodies))
    assert main(["check", str(pipeline.file)]) == Exit.DONE
    assert main(["tick", str(pipeline.file)]) == Exit.DONE
    pipeline.service.poll()
    rows = sorted(pipeline.mirrored("dbo", "orders"), key=lambda one: bytes(one["id"]))
    assert rows == [{"id": b"\0\0", "data": None}, {"id": b"\xab\xcd", "data": b"\0"}]
