"""A worker's reading: blocks of bare lines and single messages give the same log rows and the same counts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from open_mirroring.changes.manifest import BoundRange
from open_mirroring.facts.kind import merged
from spark_jobs.changelog.schema import LogRow
from spark_jobs.extract.part import Part
from spark_jobs.extract.read_task import LogTarget, ReadTask, read
from spark_jobs.sources.ces.fast_path import FastCes
from spark_jobs.sources.ces.format import CesFormat
from spark_jobs.sources.contract.decoded import MirroredTable
from spark_jobs.sources.transports import json_lines, message_files
from spark_jobs.sources.transports.message_files import LineFiles
from tests.ces_messages import ROW, event, split

TABLES = {name: MirroredTable(name, ("id",)) for name in ("dbo.orders", "dbo.items")}


def _source(folder: Path) -> int:
    """A file with every kind of message; its size."""
    lines = []
    for number in range(60):
        row = {**ROW, "id": str(number), "name": f'say "{number}" a/b'}
        text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
        table = ("orders", "items", "foreign")[number % 3]
        body = event(("INS", "UPD")[number % 2], text, tbl=table, pkkey={"id": str(number)}, sequence=number + 1)
        whole = json.loads(body)
        whole["data"] = json.dumps(json.loads(whole["data"]), ensure_ascii=False, separators=(",", ":"))
        lines.append(json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode())
    lines[7:7] = [b"", b"{broken", *split(lines[3], [300]), lines[5].replace(b"INS", b"XXX").replace(b"UPD", b"XXX")]
    (folder / "in.jsonl").write_bytes(b"\n".join(lines))
    return (folder / "in.jsonl").stat().st_size


def _read(folder: Path, end: int, attempt: str) -> tuple[Part, Counter[LogRow]]:
    bound = (BoundRange("in.jsonl", 0, end),)
    task = ReadTask(bound, CesFormat(), TABLES, (), LogTarget(folder / attempt, 1, attempt, 0))
    part = read(LineFiles(folder, "bare"), task)
    rows: Counter[LogRow] = Counter()
    for file in part.written.files:
        table = pq.ParquetFile(folder / attempt / file["path"]).read(columns=list(LogRow._fields))
        rows.update(LogRow(**line) for line in table.to_pylist())
    return part, rows


@pytest.mark.parametrize("cut", [0, 1500])
def test_blocks_and_single_messages_give_the_same_rows_and_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    """Also where the file lost bytes after it was bound: what is missing is one dead letter, and nothing is lost."""
    end = _source(tmp_path)
    if cut:
        path = tmp_path / "in.jsonl"
        path.write_bytes(path.read_bytes()[:-cut])
    wanted, wanted_rows = _read(tmp_path, end, "single")
    monkeypatch.setattr(message_files, "_WORTH_BYTES", 0)
    monkeypatch.setattr(json_lines, "BLOCK_BYTES", 20_000)
    taken = []
    take = FastCes.take
    monkeypatch.setattr(FastCes, "take", lambda self, block: taken.append(take(self, block)) or taken[-1])
    found, found_rows = _read(tmp_path, end, "blocks")
    assert found_rows == wanted_rows
    assert Counter(found.counts) == Counter(wanted.counts)
    assert merged([found.facts, found.written.facts]) == merged([wanted.facts, wanted.written.facts])
    assert {i: pieces[:2] for i, pieces in found.written.fragments.items()} == {
        i: pieces[:2] for i, pieces in wanted.written.fragments.items()
    }
    assert len(taken) > 1 and sum(len(one.taken) for one in taken) > 30
    assert found.counts["ignored"] and found.counts["rejected"] and found.counts["fragments"]


def test_blocks_begin_behind_a_byte_order_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _source(tmp_path)
    path = tmp_path / "in.jsonl"
    path.write_bytes("\ufeff".encode() + path.read_bytes())
    wanted = _read(tmp_path, path.stat().st_size, "single")
    monkeypatch.setattr(message_files, "_WORTH_BYTES", 0)
    found = _read(tmp_path, path.stat().st_size, "blocks")
    assert (found[1], found[0].counts) == (wanted[1], wanted[0].counts)
    assert min(row.place for row in found[1]) == 0, "the first line is a change"
