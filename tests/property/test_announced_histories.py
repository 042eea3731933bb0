"""Random histories in every wire form: what is begun by them is compared with them, and nothing differs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from open_mirroring.config import load_mirror
from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.e2e.test_histories import TABLES, history
from workload_generator.ces import CesOptions, render
from workload_generator.delivery import Delivery
from workload_generator.qlik_change_tables import ChangeTableOptions, stored_changes
from workload_generator.qlik_file_target import change_files
from workload_generator.qlik_messages import QlikMessageOptions
from workload_generator.qlik_messages import render as render_qlik
from workload_generator.transports import capture_files, json_lines

KEYS = {str(table["source"]): tuple(table["key"]) for table in TABLES}
CES: list[dict[str, Any]] = [
    {"generation": "a"},
    {"generation": "b", "segment_base": 1},
    {"generation": "c", "max_data_bytes": 1_700},
    {"generation": "b", "encoding": "avro"},
    {"generation": "c", "encoding": "avro"},
    {"include_old_values": False},
    {"include_all_columns": False},
]


def compared(home: Path, files: Iterable[tuple[str, bytes]], source: str, capsys: Any) -> tuple[dict[str, Any], str]:
    """The keys by table of a file that is begun by these files, and what differs from them then."""
    for name, content in files:
        (home / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        (home / "source" / name).write_bytes(content)
    file = home / "mirrors" / "shop.yaml"
    assert main(["init", str(file), "--source", f"{source}, path: source"]) == Exit.DONE
    capsys.readouterr()
    assert main(["check", str(file), "--sample"]) == Exit.DONE
    differs = [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning")]
    return {table.source: table.key for table in load_mirror(file).tables}, "\n".join(differs)


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPEN_MIRRORING_HOME", raising=False)


@pytest.mark.parametrize("options", CES, ids=str)
@pytest.mark.parametrize("transport", ["files", "capture"])
def test_change_events(options: dict[str, Any], transport: str, tmp_path: Path, capsys: Any) -> None:
    """G-50, G-51, C-44, C-45, C-71: every generation, split or not, and how the stream is set up."""
    messages = render(history(7).changes, CesOptions(**options), Delivery(partitions=3, disorder=40, seed=7))
    lines = [("a.jsonl", json_lines(messages, layout="wrapped"))]
    files = lines if transport == "files" else list(capture_files(messages))
    keys, differs = compared(tmp_path, files, f"format: sqlserver-ces, transport: {transport}", capsys)
    assert keys == KEYS
    assert ("@include_old_values = 0" in differs) == (not options.get("include_old_values", True))
    assert ("@include_all_columns = 0" in differs) == (not options.get("include_all_columns", True))
    assert differs.count("\n") < len(KEYS)


@pytest.mark.parametrize("encoding", ["json", "avro"])
def test_messages(encoding: Any, tmp_path: Path, capsys: Any) -> None:
    """G-50, G-51, K-12: metadata among the changes."""
    messages = render_qlik(history(8), QlikMessageOptions(encoding=encoding), Delivery(partitions=3, seed=8))
    files = [("a.jsonl", json_lines(messages, layout="wrapped"))]
    assert compared(tmp_path, files, "format: qlik-message, transport: files", capsys) == (KEYS, "")


@pytest.mark.parametrize("file_format", ["csv", "json", "parquet"])
def test_change_tables(file_format: Any, tmp_path: Path, capsys: Any) -> None:
    """G-50, G-51, T-41: by the metadata files alone."""
    options = ChangeTableOptions(binary_mask=file_format == "parquet")
    files = change_files(stored_changes(history(9).changes, options), options, file_format, rows_per_file=60)
    assert compared(tmp_path, files, "format: qlik-change-table, transport: files", capsys) == (KEYS, "")
