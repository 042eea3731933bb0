"""Delimited text: the service reads every field that has the text of NULL as NULL, in quotes or not (F-22)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.ces_messages import event
from tests.field.trial import Trial

COLS = (("id", "nvarchar(20)"), ("s", "nvarchar(60)"), ("b", "varbinary(8)"))


def made(folder: Path, rows: list[dict[str, Any]], **text: Any) -> Trial:
    """A mirror of one table of text, with these rows inserted."""
    (folder / "events").mkdir()
    table = {"source": "dbo.t", "target": "dbo/t", "key": ["id"]}
    table["delimited_text"] = {"columns": {"id": "string", "s": "string", "b": "binary"}, **text}
    document = {
        "mirror": "words",
        "source": {"format": "sqlserver-ces", "transport": "files", "layout": "bare", "path": "events"},
        "landing_zone": {"store": "local", "path": "zone", "tables": "tables"},
        "ledger": "sqlite:///ledger.db",
        "change_log": "change_log",
        "tables": [table],
    }
    (folder / "mirror.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    deliver(folder, "1.jsonl", [change("INS", row, None, 10 + at) for at, row in enumerate(rows)])
    return Trial(folder)


def change(operation: str, current: dict[str, Any], old: dict[str, Any] | None, commit: int) -> bytes:
    return event(operation, current, old, commit=commit, cols=COLS, tbl="t")


def deliver(folder: Path, name: str, events: list[bytes]) -> None:
    (folder / "events" / name).write_bytes(b"".join(one + b"\n" for one in events))


def row(key: str, text: str | None, data: str | None = "0x00") -> dict[str, Any]:
    return {"id": key, "s": text, "b": data}


def test_every_text_of_the_field_is_reported_from_null(shared_data: Path, tmp_path: Path) -> None:
    """Backslashes, line ends, the usual words for NULL, and the empty text, next to a NULL."""
    trial = Trial.of("M_text", shared_data, tmp_path)
    assert trial.run("tick").code == 0
    trial.apply()
    texts = json.loads((shared_data / "field" / "M_text" / "vals.json").read_text(encoding="utf-8"))
    found = {row["id"]: row["s"] for row in trial.rows("dbo/txt")}
    assert found == {**dict(enumerate(texts, 1)), 99: None}


def test_empty_texts_bytes_and_keys_are_no_null(tmp_path: Path) -> None:
    rows = [row("", "null"), row("N/A", ""), row("null", "NULL", "0x"), row("x", None, None)]
    trial = made(tmp_path, rows)
    assert trial.run("tick").code == 0
    trial.apply()
    found = {one["id"]: (one["s"], one["b"]) for one in trial.rows("dbo/t")}
    assert found == {"": ("null", b"\0"), "N/A": ("", b"\0"), "null": ("NULL", b""), "x": (None, None)}


@pytest.mark.parametrize(
    ("null", "bad"),
    [
        pytest.param("__null__", row("1", "__null__"), id="default"),
        pytest.param("", row("1", ""), id="empty"),
        pytest.param("N/A", row("N/A", "x"), id="key"),
        pytest.param("null", row("1", "x", "0x9EE965"), id="bytes whose Base64 is the text"),
    ],
)
def test_a_value_that_is_the_text_of_null_is_a_dead_letter(tmp_path: Path, null: str, bad: dict[str, Any]) -> None:
    """It never lands as NULL: the row waits, the run names column and value, and other rows land."""
    trial = made(tmp_path, [bad, row("2", "fine")], null_value=null)
    ended = trial.run("tick")
    assert ended.code != 0
    trial.apply()
    assert [(one["id"], one["s"]) for one in trial.rows("dbo/t")] == [("2", "fine")]
    said = trial.run("dead-letters").text
    assert "stands for NULL" in said and "null_value" in said


def test_an_update_to_the_text_of_null_leaves_the_row_as_it_was(tmp_path: Path) -> None:
    trial = made(tmp_path, [row("1", "old")])
    assert trial.run("tick").code == 0
    deliver(tmp_path, "2.jsonl", [change("UPD", row("1", "__null__"), row("1", "old"), 30)])
    assert trial.run("tick").code != 0
    trial.apply()
    assert [(one["id"], one["s"]) for one in trial.rows("dbo/t")] == [("1", "old")]
    deliver(tmp_path, "3.jsonl", [change("UPD", row("1", "new"), row("1", "__null__"), 31)])
    trial.run("tick")
    trial.apply()
    assert [(one["id"], one["s"]) for one in trial.rows("dbo/t")] == [("1", "new")]


@pytest.mark.parametrize("null", ["0", "12", "true", "a,b", 'a"b', "a b", "NaN", "2026-01-01", "a\n"])
def test_a_text_of_null_that_other_values_have_is_refused(tmp_path: Path, null: str) -> None:
    ended = made(tmp_path, [row("1", "x")], null_value=null).run("check")
    assert ended.code != 0 and "cannot stand for NULL" in ended.text
