"""Tables without key that begin with a load: no row twice, and none lost, wherever a run dies (G-127)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.ces_messages import event, lsn
from tests.pipeline import ROOT, Pipeline
from tests.postgres import PostgresServer
from tests.spark.test_initial_load_jdbc import connect

COLS = (("id", "int"), ("name", "nvarchar(50)"))
OLD = [(1, "Ada"), (1, "Ada"), (2, "Bob"), (3, "Cleo"), (None, None)]
WATCHED: dict[str, Any] = {"landing_zone": {"store": "local", "path": "zone", "tables": "tables"}}


class Log:
    """A mirror of one table without key, whose old rows come from an export."""

    def __init__(self, folder: Path, spark: Any, **load: Any) -> None:
        self.export = folder / "export"
        self.exported(OLD)
        table = {"source": "dbo.log", "target": "dbo/log", "key": []}
        given = {"format": "parquet", "path": str(self.export), **load}
        settings: dict[str, Any] = {"publish": {"max_rows_per_file": 2}, **WATCHED}
        tables = [{**table, "initial_load": given}]
        self.pipeline = Pipeline(folder, spark, tables, source={"layout": "bare"}, **settings)

    def exported(self, rows: list[tuple[Any, Any]]) -> None:
        self.export.mkdir(parents=True, exist_ok=True)
        columns = {"id": pa.array([one[0] for one in rows], pa.int32()), "name": [one[1] for one in rows]}
        pq.write_table(pa.table(columns), self.export / "1.parquet")

    def send(self, name: str, *rows: tuple[int, int, str]) -> None:
        """Inserts, each with the number of its commit."""
        events = [
            event("INS", {"id": str(key), "name": text}, cols=COLS, commit=commit, sequence=at, tbl="log")
            for at, (commit, key, text) in enumerate(rows, 1)
        ]
        self.pipeline.deliver(name, b"".join(one + b"\n" for one in events))

    def command(self, *words: str) -> int:
        code = main([words[0], str(self.pipeline.file), *words[1:]])
        self.pipeline.service.poll()
        return code

    def rows(self) -> Counter[tuple[Any, Any]]:
        return Counter((row["id"], row["name"]) for row in self.pipeline.mirrored("dbo", "log"))

    def declare(self, **load: Any) -> None:
        document = yaml.safe_load(self.pipeline.file.read_text())
        document["tables"][0]["initial_load"] |= load
        self.pipeline.file.write_text(yaml.safe_dump(document))


STREAM = ((10, 3, "Cleo"), (20, 4, "Dan"), (20, 4, "Dan"), (30, 5, "Eve"))
BEHIND = [(4, "Dan"), (4, "Dan"), (5, "Eve")]


def test_a_position_that_is_exact_splits_the_stream_wherever_a_run_dies_g127(tmp_path: Path, spark: Any) -> None:
    log = Log(tmp_path, spark, stream_from=lsn(20), handover="exact")
    log.send("1.jsonl", *STREAM)
    log.pipeline.extract()
    for fault in ("publish.staged", "publish.sealed", "publish.renamed"):
        log.pipeline.killed("initial_load", fault)
        log.pipeline.service.poll()
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "spark_jobs.initial_load", str(log.pipeline.file)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(2)
    ]
    assert [one.wait(300) for one in running] == [0, 0]
    log.pipeline.service.poll()
    assert log.command("initial-load") == Exit.DONE and log.rows() == Counter(OLD)
    log.pipeline.killed("publish_changes", "publish.renamed")
    assert log.command("tick") == Exit.DONE and log.rows() == Counter(OLD + BEHIND)
    # Delivered again, and late below the position: both change nothing.
    log.send("2.jsonl", *STREAM)
    log.send("3.jsonl", (15, 2, "Bob"), (40, 1, "Ada"))
    assert log.command("tick") == Exit.DONE and log.rows() == Counter([*OLD, *BEHIND, (1, "Ada")])
    # Made anew from the same export, it is the same table.
    reload = ("reload-table", "--table", "dbo.log", "--reason", "r", "--approved-by", "Ada", "--request", "r1")
    for _ in range(4):
        code = log.command(*reload, "--wait", "0")
    assert code == log.command("tick") == Exit.DONE and log.rows() == Counter([*OLD, *BEHIND, (1, "Ada")])


def test_nothing_changed_between_export_and_stream_until_the_stream_has_begun_g127(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Log(tmp_path, spark, stream_from="beginning", handover="quiesced")
    log.send("1.jsonl", *STREAM)
    assert log.command("initial-load") == Exit.DONE and log.command("tick") == Exit.DONE
    story = Counter((key, text) for _, key, text in STREAM)
    assert log.rows() == Counter(OLD) + story
    # A load that is made anew may hold what the stream told: it is refused before anything is deleted.
    reload = ("reload-table", "--table", "dbo.log", "--reason", "r", "--approved-by", "Ada", "--request", "r1")
    assert log.command(*reload) == Exit.TERMINAL and "STREAM_FROM_INVALID" in capsys.readouterr().err
    assert log.command("tick") == Exit.DONE and log.rows() == Counter(OLD) + story
    log.exported([*OLD, *((key, text) for _, key, text in STREAM if key == 3)])
    log.declare(stream_from=lsn(20), handover="exact")
    for _ in range(4):
        code = log.command(*reload, "--wait", "0")
    assert code == log.command("tick") == Exit.DONE and log.rows() == Counter(OLD) + story


def test_a_database_at_rest_is_loaded_until_the_stream_begins_g127(
    tmp_path: Path, spark: Any, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """G-127: in chunks; a change that is logged before the load is complete, over a dead run too, may be in it."""
    connect(monkeypatch, postgres, postgres.port)
    values = ", ".join(f"({'NULL' if i is None else i}, {'NULL' if n is None else repr(n)})" for i, n in OLD)
    postgres.execute(
        "DROP TABLE IF EXISTS log", "CREATE TABLE log (id int, name varchar(50))", f"INSERT INTO log VALUES {values}"
    )
    load = {"format": "jdbc", "connection": "shop_db", "table": "public.log", "split_column": "id", "chunks": 2}
    log = Log(tmp_path, spark, stream_from="beginning", handover="quiesced")
    document = yaml.safe_load(log.pipeline.file.read_text())
    document["tables"][0]["initial_load"] = load
    log.pipeline.file.write_text(yaml.safe_dump(document))
    assert log.command("check") != Exit.DONE and "`handover: quiesced`" in "".join(capsys.readouterr())
    log.declare(handover="exact")
    assert log.command("check") != Exit.DONE and "no position" in "".join(capsys.readouterr())
    log.declare(handover="quiesced")
    assert log.command("initial-load") == Exit.DONE and log.rows() == Counter(OLD)
    log.send("1.jsonl", *STREAM)
    story = Counter((key, text) for _, key, text in STREAM)
    assert log.command("tick") == Exit.DONE and log.rows() == Counter(OLD) + story
    reload = ("reload-table", "--table", "dbo.log", "--reason", "r", "--approved-by", "Ada", "--request", "r1")
    assert log.command(*reload) == Exit.TERMINAL and "STREAM_FROM_INVALID" in capsys.readouterr().err

    other = Log(tmp_path / "other", spark, stream_from="beginning", handover="quiesced")
    other.pipeline.file.write_text(log.pipeline.file.read_text())
    other.pipeline.killed("initial_load", "publish.intended")
    other.send("1.jsonl", *STREAM)
    other.pipeline.extract()
    assert other.command("initial-load") == Exit.TABLES_STOPPED and "STREAM_FROM_INVALID" in capsys.readouterr().out
    assert not other.pipeline.numbers("dbo/log"), "chunks that are read now may hold what the stream tells"
    begun = Log(tmp_path / "begun", spark, stream_from="beginning", handover="quiesced")
    begun.pipeline.file.write_text(log.pipeline.file.read_text())
    begun.send("1.jsonl", *STREAM)
    begun.pipeline.extract()
    assert begun.command("initial-load") == Exit.TABLES_STOPPED and "STREAM_FROM_INVALID" in capsys.readouterr().out
