"""A worker's reading of messages that come one by one: in blocks and singly it gives the same rows and counts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

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
from spark_jobs.sources.contract import message_blocks
from spark_jobs.sources.contract.decoded import Damage
from spark_jobs.sources.contract.message_blocks import are_text, blocks_of
from spark_jobs.sources.qlik.message.fast_path import FastQlikMessages
from spark_jobs.sources.qlik.message.format import QlikMessageFormat
from spark_jobs.sources.transports import message_files
from spark_jobs.sources.transports.message_files import LineFiles
from tests.qlik_messages import ORDERS, ROW, dt, md


def _compact(body: bytes) -> bytes:
    return json.dumps(json.loads(body), separators=(",", ":")).encode()


def _source(folder: Path) -> int:
    """A file with a full load, changes, metadata before and among them, and what is none of these; its size."""
    load = [_compact(dt("REFRESH", {**ROW, "id": number})) for number in range(30)]
    changes = [_compact(dt("UPDATE", {**ROW, "id": n}, ROW | {"id": n}, number=n)) for n in range(1, 30)]
    second = md(version=2, schema_id="F" * 32)
    later = [_compact(dt("INSERT", {**ROW, "id": n}, schema_id="F" * 32, number=n)) for n in range(30, 60)]
    lines = [md(), *load, *changes, b"{broken", second, *later, _compact(dt("INSERT", None, ROW))]
    (folder / "in.jsonl").write_bytes(b"\n".join(lines))
    return (folder / "in.jsonl").stat().st_size


def _read(folder: Path, end: int, attempt: str) -> tuple[Part, Counter[LogRow]]:
    target = LogTarget(folder / attempt, 1, attempt, 0)
    task = ReadTask((BoundRange("in.jsonl", 0, end),), QlikMessageFormat(), {ORDERS.source: ORDERS}, (), target)
    part = read(LineFiles(folder, "bare"), task)
    rows: Counter[LogRow] = Counter()
    for file in part.written.files:
        table = pq.ParquetFile(folder / attempt / file["path"]).read(columns=list(LogRow._fields))
        rows.update(LogRow(**line) for line in table.to_pylist())
    return part, rows


def test_messages_in_blocks_give_the_same_rows_counts_and_loads_k05_k18(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = _source(tmp_path)
    wanted, wanted_rows = _read(tmp_path, end, "single")
    monkeypatch.setattr(message_files, "_WORTH_BYTES", 0)
    monkeypatch.setattr("spark_jobs.sources.transports.json_lines.BLOCK_BYTES", 3_000)
    monkeypatch.setattr(read_task, "_BYTES_AT_ONCE", 2_000)
    taken = []
    take = FastQlikMessages.take
    monkeypatch.setattr(FastQlikMessages, "take", lambda self, block: taken.append(take(self, block)) or taken[-1])
    found, found_rows = _read(tmp_path, end, "blocks")
    assert found_rows == wanted_rows
    assert Counter(found.counts) == Counter(wanted.counts)
    assert merged([found.facts, found.written.facts]) == merged([wanted.facts, wanted.written.facts])
    assert found.schemas == wanted.schemas
    assert found.written.fragments == wanted.written.fragments
    assert FULL_LOADS.of(found.facts)["dbo.orders"]["in.jsonl"].last_loaded is not None
    assert sum(len(one.taken) for one in taken) > 60 and sum(one.announces for one in taken) >= 2


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
