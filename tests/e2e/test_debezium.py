"""Debezium's change events, the worked example of docs/how-to/add-a-source.md: command line, log, emulator."""

from __future__ import annotations

import shutil
import subprocess
import sys
from datetime import datetime
from importlib.metadata import distributions, entry_points
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from open_mirroring.config import json_schema, load_mirror
from open_mirroring.operate.exit_codes import Exit
from open_mirroring_debezium import DebeziumFormat
from spark_jobs.changelog.schema import RawMessage
from spark_jobs.cli.command_line import main
from spark_jobs.sources.contract.decoded import MirroredTable
from spark_jobs.sources.registry import source_of
from tests.debezium import EXAMPLE, event
from tests.pipeline import Pipeline


def test_events_end_equal_and_what_is_odd_is_reported(tmp_path: Any, spark: Any) -> None:
    """G-01, G-03, G-06: snapshot, update, delete, change of key, order by commit, an unknown table, a broken line."""
    table = {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"]}
    pipeline = Pipeline(tmp_path / "m", spark, [table], source={"format": "debezium-json", "layout": "bare"})
    lines = [event("u", [1, "Ada", 0], [1, "Eve", 1_500_000], 9), event("r", None, [1, "Ada", 0], 8, change_lsn=None)]
    lines += [event("c", None, [2, None, 0], 10), event("d", [2, None, 0], None, 12), b"null\n", b'{"payload": {"\n']
    lines += [event("c", None, [3, "Bob", None], 13), event("d", [3, "Bob", None], None, 14), b"null\n"]
    lines += [event("c", None, [4, "Bob", None], 14, event_serial_no=2), event("c", None, [1, "", 0], 9, table="other")]
    lines += [event("u", [4, "Bob", None], [5, "Bob", None], 15)]
    pipeline.deliver("a.jsonl", b"".join(lines))
    assert main(["tick", str(pipeline.file)]) == Exit.DONE_WITH_LOSSES
    pipeline.service.poll()
    rows = sorted(tuple(row[name] for name in ("id", "name", "at")) for row in pipeline.mirrored("dbo", "orders"))
    assert rows == [(1, "Eve", datetime(1970, 1, 1, 0, 0, 1, 500_000)), (5, "Bob", None)]
    assert [(one["code"], one["tbl"]) for one in pipeline.letters()] == [("MESSAGE_INVALID", None)]


REFUSED = [
    (event("c", None, [1, 1], 9, "id d"), "ROW_INVALID", "decimal.handling.mode=string"),
    (event("c", None, ["1"], 9, "id"), "VALUE_INVALID", "no int32"),
    (event("u", None, [1], 9, "id"), "OLD_KEY_MISSING", "before"),
    (event("t", None, [1], 9, "id"), "MESSAGE_INVALID", "'t'"),
    (event("c", None, [1], 9, "id", connector="postgresql", lsn=5), "MESSAGE_INVALID", "sqlserver"),
]


@pytest.mark.parametrize(("line", "code", "words"), REFUSED)
def test_what_is_not_proved_is_a_dead_letter(line: bytes, code: str, words: str) -> None:
    decoder = DebeziumFormat().decoder({"dbo.orders": MirroredTable("dbo.orders", ("id",))})
    (row,) = decoder.decode([RawMessage("f", 0, line)]).rows
    assert (row.tbl, row.code, words in (row.reason or "")) == ("dbo.orders", code, True)


def test_the_built_package_registers_the_format(tmp_path: Path) -> None:
    """By its own build: what is made here of its metadata for all other tests is what an installation has."""
    package, built = tmp_path / "package", tmp_path / "built"
    shutil.copytree(EXAMPLE, package)
    built.mkdir()
    program = "import sys; from setuptools import build_meta; build_meta.prepare_metadata_for_build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", program, str(built)], cwd=package, check=True, capture_output=True)
    found = next(iter(distributions(path=[str(built)])))
    (point,) = found.entry_points
    (here,) = entry_points(group="open_mirroring.formats")
    assert (point.name, point.value, point.group) == (here.name, here.value, here.group)
    assert here.load() is DebeziumFormat and found.name == here.dist.name


def test_its_mirror_file_is_sound_and_one_of_an_unknown_format_is_refused(tmp_path: Path, capsys: Any) -> None:
    mirror = load_mirror(EXAMPLE / "mirror.yaml")
    assert isinstance(source_of(mirror).format, DebeziumFormat)
    jsonschema.validate(yaml.safe_load((EXAMPLE / "mirror.yaml").read_text("utf-8")), json_schema())
    other = tmp_path / "other.yaml"
    other.write_text((EXAMPLE / "mirror.yaml").read_text("utf-8").replace("debezium-json", "debezium-avro"))
    assert main(["check", str(other)]) == Exit.USAGE
    said = capsys.readouterr().err
    assert "CONFIG_INVALID: source.format: the value is none of: sqlserver-ces, qlik-change-table" in said, said
    other.write_text((EXAMPLE / "mirror.yaml").read_text("utf-8").replace("transport: files", "transport: jdbc"))
    assert main(["check", str(other)]) == Exit.USAGE
    assert "debezium-json does not come over jdbc" in capsys.readouterr().err
