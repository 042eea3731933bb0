"""Columns that land as salted hashes (G-121): changes, loads, another salt, lost ledgers."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.e2e.test_dropped_columns_formats import FIRST, FULL, SHORT, CesLines, Change, QlikMessages, Source
from tests.e2e.test_first_day import declare, declare_mirror
from tests.e2e.test_lost_ledger import forget, said
from tests.e2e.test_rebuild_ledger import APPLY
from tests.pipeline import Pipeline

SALT, OTHER = "a salt that nobody guesses", "another salt of as many signs"
COLS = (("id", "int"), ("name", "nvarchar(9)"), ("born", "datetime2(3)"))


def salted(monkeypatch: pytest.MonkeyPatch, salt: str = SALT) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_SALT", json.dumps({"conn_type": "generic", "password": salt}))


def hashed(text: str | None, salt: str = SALT) -> str | None:
    return None if text is None else sha256((salt + text).encode()).hexdigest()


def nowhere_in_clear(pipeline: Pipeline, *texts: str) -> None:
    """Neither salt nor values stand in the landing zone, the ledger or the target."""
    for path in (*pipeline.zone.rglob("*"), *pipeline.target.rglob("*"), *pipeline.folder.glob("ledger.db*")):
        content = path.read_bytes() if path.is_file() else b""
        assert not [text for text in texts if text.encode() in content], path


@pytest.mark.parametrize("kind", [CesLines, pytest.param(QlikMessages, marks=pytest.mark.long)])
def test_values_land_as_hashes_and_another_salt_stops_the_table_g121(
    kind: type[Source],
    tmp_path: Path,
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """G-121, G-129, G-80: one hash for one text, a renamed column too; no salt in ledger, files, log or messages."""
    salted(monkeypatch)
    story = kind(tmp_path, spark, hash=["NAME", "pri*"], columns={"rename": {"name": "who"}})
    declare_mirror(
        story, hash={"salt": "shop_salt"}, landing_zone={"store": "local", "path": "zone", "tables": "tables"}
    )
    assert story.tick(*FIRST) == Exit.DONE, capsys.readouterr().out
    assert story.tick(Change("UPD", 2, 11, FULL, "Evelyn")) == Exit.DONE
    rows = [(row["who"], row["price"], row["city"]) for row in story.rows]
    eve, price = hashed("Evelyn"), hashed("1.50")
    assert rows == [(hashed("Ada"), price, "Linz"), (eve, price, "Linz"), (hashed("Ada"), price, "Linz")]
    nowhere_in_clear(story.pipeline, SALT, "Evelyn")

    salted(monkeypatch, OTHER)
    assert story.tick(Change("UPD", 3, 12, FULL, "Kim")) == Exit.TABLES_STOPPED
    assert story.stop == "TABLE_REDECLARED"
    assert [row["who"] for row in story.rows] == [hashed("Ada"), eve, hashed("Ada")]
    salted(monkeypatch)
    assert main(["resume", str(story.pipeline.file), "--table", story.source, "--why", "mended"]) == Exit.DONE
    assert story.tick() == Exit.DONE, capsys.readouterr().out
    assert [row["who"] for row in story.rows] == [hashed("Ada"), eve, hashed("Kim")]

    forget(story.pipeline)
    code, text = said(capsys, story.pipeline, "rebuild-ledger", *APPLY)
    assert code == Exit.DONE, text
    salted(monkeypatch, OTHER)
    assert story.tick(Change("UPD", 1, 13, FULL, "Zoe")) == Exit.TABLES_STOPPED, "the files tell which salt they have"
    assert story.stop == "TABLE_REDECLARED"
    reset = ["--reason", "another salt", "--approved-by", "Ada", "--table", story.source]
    reload = ["reload-table", str(story.pipeline.file), *reset, "--wait", "0"]
    for _ in range(6):
        if main(reload) == Exit.DONE:
            break
        story.tick()
    assert [row["who"] for row in story.rows] == [hashed(name, OTHER) for name in ("Zoe", "Evelyn", "Kim")]
    assert main(["reconcile", str(story.pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    declare(story, hash=["price"])
    assert story.tick() == Exit.ON_HOLD, "no change came, and the table is not what the mirror file says (G-129)"
    assert "`hash` lands 'name' in clear, which is published as a hash" in caplog.text
    story.tick(Change("UPD", 1, 14, FULL, "Moe"))
    for _ in range(4):
        story.tick()
    assert [row["who"] for row in story.rows] == ["Moe", "Evelyn", "Kim"]
    assert SALT not in caplog.text + "".join(capsys.readouterr()) and OTHER not in caplog.text


def test_a_load_that_has_begun_goes_on_with_its_salt_alone_g121(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-121, G-122: by two salts one text would have two hashes in one table, and nothing would tell it afterwards."""
    salted(monkeypatch)
    (tmp_path / "shop").mkdir()
    pq.write_table(pa.table({"id": pa.array([1], pa.int32()), "name": ["Ada"]}), tmp_path / "shop" / "export.parquet")
    load = {
        "format": "parquet",
        "path": "export.parquet",
        "stream_from": "beginning",
        "types": {"id": "int", "name": "varchar(9)"},
    }
    table = {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"], "hash": ["name"], "initial_load": load}
    pipeline = Pipeline(tmp_path / "shop", spark, [table], source={"layout": "bare"}, hash={"salt": "shop_salt"})
    text = pipeline.file.read_text()
    pipeline.file.write_text(text.replace("- name", "- nmae"))
    assert main(["initial-load", str(pipeline.file)]) == Exit.TABLES_STOPPED
    assert "HASH_UNMATCHED" in capsys.readouterr().out and not pipeline.numbers("dbo/orders")
    pipeline.file.write_text(text)
    pipeline.killed("initial_load", "publish.intended")
    salted(monkeypatch, OTHER)
    assert main(["initial-load", str(pipeline.file)]) == Exit.TABLES_STOPPED
    assert "TABLE_REDECLARED" in capsys.readouterr().out and not pipeline.numbers("dbo/orders")
    salted(monkeypatch)
    assert main(["initial-load", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    pipeline.service.poll()
    assert [row["name"] for row in pipeline.mirrored("dbo", "orders")] == [hashed("Ada")]


def test_a_load_through_the_log_takes_the_salt_with_which_it_is_published_g121(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-121: the log has the values themselves, so that another salt in between does no harm."""
    salted(monkeypatch)
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "export.csv").write_text("id,name,born\n1,Ada,\n")
    load = {"format": "csv", "path": "export.csv", "stream_from": "beginning", "types": dict(COLS)}
    table = {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"], "hash": ["name"], "initial_load": load}
    tables = [{**table, "complete_rows": True}]
    pipeline = Pipeline(tmp_path / "shop", spark, tables, source={"layout": "bare"}, hash={"salt": "shop_salt"})
    pipeline.killed("initial_load", "extract.sealed")
    salted(monkeypatch, OTHER)
    assert main(["initial-load", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    assert main(["tick", str(pipeline.file)]) == Exit.DONE, capsys.readouterr().out
    pipeline.service.poll()
    assert [row["name"] for row in pipeline.mirrored("dbo", "orders")] == [hashed("Ada", OTHER)]


@pytest.mark.parametrize("kind", [CesLines, pytest.param(QlikMessages, marks=pytest.mark.long)])
def test_a_misspelt_name_stops_the_table_before_a_value_lands_in_clear_g122(
    kind: type[Source], tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """G-122: before the first file, and when it is added later; but no pattern, and no column that is gone."""
    salted(monkeypatch)
    story = kind(tmp_path, spark, hash=["nmae"])
    declare_mirror(story, hash={"salt": "shop_salt", "columns": ["PRICE", "mail"]})
    assert story.tick(*FIRST) == Exit.TABLES_STOPPED
    assert (story.stop, story.pipeline.numbers(story.source.replace(".", "/"))) == ("HASH_UNMATCHED", [])
    main(["status", str(story.pipeline.file)])
    assert "`hash` names 'nmae', and no column of the table has this name" in capsys.readouterr().out
    declare(story, hash=["NAME", "ssn*"])
    resume = ["resume", str(story.pipeline.file), "--table", story.source, "--why", "mended"]
    assert main(resume) == Exit.DONE
    assert story.tick() == Exit.DONE_WITH_LOSSES, "`mail` of the mirror's `hash` is a column of no table"
    assert "HASH_UNMATCHED: `hash` names 'mail', and no column of any table" in capsys.readouterr().out
    story.pipeline.file.write_text(story.pipeline.file.read_text().replace("- mail", "- '*mail'"))
    assert story.tick(Change("INS", 4, 10, SHORT)) == Exit.DONE, "the price is gone, and was hashed"
    assert {row["name"] for row in story.rows} == {hashed("Ada")}
    assert [row["price"] for row in story.rows] == [*[hashed("1.50")] * 3, None]
    declare(story, hash=["NAME", "town"])
    assert story.tick(Change("INS", 5, 20, SHORT)) == Exit.TABLES_STOPPED
    assert story.stop == "HASH_UNMATCHED"
    declare(story, hash=["NAME"])
    assert main(resume) == Exit.DONE
    assert story.tick() == Exit.DONE, capsys.readouterr().out
    assert len(story.rows) == 5
