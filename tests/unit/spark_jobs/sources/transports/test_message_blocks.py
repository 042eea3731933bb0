"""A worker's reading: blocks and single messages give the same log rows, counts and facts, whatever the format."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
import pytest

from open_mirroring.changes.manifest import BoundRange
from open_mirroring.facts.full_loads import FULL_LOADS
from open_mirroring.facts.kind import merged
from spark_jobs.changelog.schema import LogRow, RawMessage
from spark_jobs.extract import read_task
from spark_jobs.extract.part import Part
from spark_jobs.extract.read_task import LogTarget, ReadTask, read
from spark_jobs.sources.ces.fast_path import FastCes
from spark_jobs.sources.ces.format import CesFormat
from spark_jobs.sources.contract import message_blocks
from spark_jobs.sources.contract.decoded import Damage, MirroredTable
from spark_jobs.sources.contract.message_blocks import are_text, blocks_of
from spark_jobs.sources.qlik.message.fast_path import FastQlikMessages
from spark_jobs.sources.qlik.message.format import QlikMessageFormat
from spark_jobs.sources.transports import json_lines, message_files
from spark_jobs.sources.transports.message_files import LineFiles
from tests import ces_messages as ces
from tests import qlik_messages as qlik
from tests.qlik_messages import dt, md

TABLES = {name: MirroredTable(name, ("id",)) for name in ("dbo.orders", "dbo.items")}


def _compact(body: bytes) -> bytes:
    return json.dumps(json.loads(body), ensure_ascii=False, separators=(",", ":")).encode()


def _events() -> list[bytes]:
    """Every kind of change event."""
    lines = []
    for number in range(60):
        row = {**ces.ROW, "id": str(number), "name": f'say "{number}" a/b'}
        text = json.dumps(row, ensure_ascii=False, separators=(",", ":"))
        table = ("orders", "items", "foreign")[number % 3]
        body = ces.event(("INS", "UPD")[number % 2], text, tbl=table, pkkey={"id": str(number)}, sequence=number + 1)
        whole = json.loads(body)
        whole["data"] = _compact(whole["data"].encode()).decode()
        lines.append(json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode())
    odd = lines[5].replace(b"INS", b"XXX").replace(b"UPD", b"XXX")
    lines[7:7] = [b"", b"{broken", *ces.split(lines[3], [300]), odd]
    return lines


def _messages() -> list[bytes]:
    """A full load, changes, metadata before and among them, and what is none of these."""
    row = qlik.ROW
    load = [_compact(dt("REFRESH", {**row, "id": number})) for number in range(30)]
    changes = [_compact(dt("UPDATE", {**row, "id": n}, row | {"id": n}, number=n)) for n in range(1, 30)]
    second = md(version=2, schema_id="F" * 32)
    later = [_compact(dt("INSERT", {**row, "id": n}, schema_id="F" * 32, number=n)) for n in range(30, 60)]
    return [md(), *load, *changes, b"{broken", second, *later, _compact(dt("INSERT", None, row))]


class Kind(NamedTuple):
    lines: Callable[[], list[bytes]]
    format: Any
    tables: dict[str, MirroredTable]
    fast: Any
    block: int
    taken: int


KINDS = {
    "events": Kind(_events, CesFormat(), TABLES, FastCes, 20_000, 30),
    "messages": Kind(_messages, QlikMessageFormat(), {"dbo.orders": qlik.ORDERS}, FastQlikMessages, 3_000, 60),
}


def _read(folder: Path, end: int, attempt: str, kind: Kind) -> tuple[Part, Counter[LogRow]]:
    target = LogTarget(folder / attempt, 1, attempt, 0)
    task = ReadTask((BoundRange("in.jsonl", 0, end),), kind.format, kind.tables, (), target)
    part = read(LineFiles(folder, "bare"), task)
    rows: Counter[LogRow] = Counter()
    for file in part.written.files:
        table = pq.ParquetFile(folder / attempt / file["path"]).read(columns=list(LogRow._fields))
        rows.update(LogRow(**line) for line in table.to_pylist())
    return part, rows


@pytest.mark.parametrize(
    ("name", "cut", "mark"), [("events", 0, ""), ("events", 1500, ""), ("events", 0, "\ufeff"), ("messages", 0, "")]
)
def test_blocks_and_single_messages_give_the_same_rows_counts_and_loads_k05_k18(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, cut: int, mark: str
) -> None:
    """Also behind a byte order mark, and where the file lost bytes after it was bound, which is one dead letter."""
    kind = KINDS[name]
    content = mark.encode() + b"\n".join(kind.lines())
    (tmp_path / "in.jsonl").write_bytes(content[: len(content) - cut])
    wanted, wanted_rows = _read(tmp_path, len(content), "single", kind)
    monkeypatch.setattr(message_files, "_WORTH_BYTES", 0)
    monkeypatch.setattr(json_lines, "BLOCK_BYTES", kind.block)
    monkeypatch.setattr(read_task, "_BYTES_AT_ONCE", 2_000)
    taken = []
    take = kind.fast.take
    monkeypatch.setattr(kind.fast, "take", lambda self, block: taken.append(take(self, block)) or taken[-1])
    found, found_rows = _read(tmp_path, len(content), "blocks", kind)
    assert found_rows == wanted_rows
    assert Counter(found.counts) == Counter(wanted.counts)
    assert merged([found.facts, found.written.facts]) == merged([wanted.facts, wanted.written.facts])
    assert found.schemas == wanted.schemas
    pieces = [{one: found[:2] for one, found in part.written.fragments.items()} for part in (found, wanted)]
    assert pieces[0] == pieces[1]
    assert len(taken) > 1 and sum(len(one.taken) for one in taken) > kind.taken
    if name == "events":
        assert min(row.place for row in found_rows) == 0, "the first line is a change"
        assert found.counts["ignored"] and found.counts["rejected"] and found.counts["fragments"]
    else:
        assert FULL_LOADS.of(found.facts)["dbo.orders"]["in.jsonl"].last_loaded is not None
        assert sum(one.announces for one in taken) >= 2


def test_blocks_hold_every_message_once_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those without a body, those longer than a block, and those of another origin."""
    monkeypatch.setattr(message_blocks, "BLOCK_BYTES", 10)
    bodies = [b"", None, b"abc", b"x" * 30, b"\n", b"end", b"\xff"]
    sent: list[RawMessage | Damage] = [RawMessage("t/0", place, body) for place, body in enumerate(bodies)]
    sent += [Damage("t/0", 9, "CODE", "why", b"raw"), RawMessage("t/1", 0, b"other")]
    blocks = list(blocks_of(sent))
    assert [m for block in blocks for m in block.messages(np.arange(len(block.starts)))] == sent
    assert len(blocks) == 3 and all(len({m.origin for m in block.each}) == 1 for block in blocks)
    for block in blocks:
        spots = zip(block.starts.tolist(), block.ends.tolist(), strict=True)
        cut = [block.content[start:end] for start, end in spots]
        assert cut == [(m.body or b"") if isinstance(m, RawMessage) else b"" for m in block.each]
        assert block.places.tolist() == [m.place for m in block.each]
        assert are_text(block).tolist() == [b"\xff" not in body for body in cut]
