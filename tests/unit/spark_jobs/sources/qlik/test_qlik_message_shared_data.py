"""A real history as Qlik messages folds to its known final state, wherever its messages are cut into batches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spark_jobs.changelog.schema import LogRow, RawMessage
from spark_jobs.sources.contract.decoded import Damage, Decoded, MirroredTable, SourceSchema
from spark_jobs.sources.qlik.message.decoder import QlikMessageDecoder
from spark_jobs.sources.sql_server.types import converter
from spark_jobs.sources.transports.json_lines import ranges, read_lines

OFFICES = {"dbo.district_offices": MirroredTable("dbo.district_offices", ("office_id",))}


def messages(shared_data: Path, encoding: str) -> list[RawMessage | Damage]:
    root, name = shared_data / "qlik-kafka", f"{encoding}.jsonl.gz"
    return [m for r in ranges(root, name, 0, (root / name).stat().st_size) for m in read_lines(root, *r, "wrapped")]


def in_batches(sent: Sequence[RawMessage | Damage], cuts: Iterable[int]) -> list[LogRow]:
    """Decode in batches, each knowing what the ones before announced; what waits is joined as soon as it can be."""
    schemas: list[SourceSchema] = []
    waiting: dict[str, list[LogRow]] = {}
    changes: list[LogRow] = []
    bounds = [0, *sorted(cuts), len(sent)]
    for start, end in pairwise(bounds):
        decoded = QlikMessageDecoder(OFFICES, schemas).decode(sent[start:end])
        assert decoded.counts.rejected == decoded.counts.ignored == 0
        schemas += decoded.schemas
        for row in decoded.rows:
            if row.kind == "fragment":
                waiting.setdefault(str(row.fragment_of), []).append(row)
            else:
                changes.append(row)
        for identity in list(waiting):
            joined = QlikMessageDecoder(OFFICES, schemas).join(waiting[identity])
            if isinstance(joined, Decoded):
                assert joined.counts.changes == len(waiting.pop(identity))
                changes += joined.rows
    assert not waiting
    return changes


def folded(changes: Iterable[LogRow]) -> dict[str, dict[str, Any]]:
    """The smallest interpreter: of each key the newest change; absent columns are NULL."""
    newest: dict[str, LogRow] = {}
    for row in changes:
        assert row.kind == "change" and row.key is not None and row.pos is not None
        known = newest.get(row.key)
        if known is None or (known.pos or "") < row.pos:
            newest[row.key] = row
    rows = {}
    for key, row in newest.items():
        if row.op in ("I", "U"):
            types = {name: sql_type for name, sql_type, _ in json.loads(row.cols or "")}
            values = json.loads(row.row or "")
            rows[key] = {n: None if v is None else converter(types[n])(v) for n, v in values.items()}
    return rows


def assert_final(changes: Iterable[LogRow], shared_data: Path) -> None:
    wanted = {}
    for row in pq.read_table(shared_data / "district_offices_part" / "final.parquet").to_pylist():
        wanted[json.dumps([row["office_id"]], ensure_ascii=False)] = row
    found = folded(changes)
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        for name, value in row.items():
            cell = found[key].get(name)
            cell = cell.replace(tzinfo=None) if name == "updated_at" else cell
            assert cell == value and isinstance(cell, Decimal) == isinstance(value, Decimal), (key, name, cell, value)


@pytest.mark.parametrize(("encoding", "sent"), [("json", 1708), ("avro", 1612)])
def test_a_history_of_messages_folds_to_its_final_state_k02_k03_k40(
    shared_data: Path, encoding: str, sent: int
) -> None:
    read = messages(shared_data, encoding)
    decoded = QlikMessageDecoder(OFFICES).decode(read)
    assert decoded.counts == (sent, sent - 3, 0, 3, 0, 0)
    assert [(schema.table, schema.version) for schema in decoded.schemas] == [
        ("dbo.district_offices", version) for version in (1, 2, 3)
    ]
    assert all(row.whole for row in decoded.rows)
    assert sum((row.pos or "").startswith("0" * 16) for row in decoded.rows) == 187, "REFRESH rows (K-18)"
    assert_final(decoded.rows, shared_data)


@pytest.mark.parametrize("encoding", ["json", "avro"])
@pytest.mark.parametrize("cuts", [[1], [0, 2, 3, 700], range(7, 1600, 97), [1600]], ids=["1", "few", "many", "late"])
def test_where_batches_are_cut_changes_nothing_g09(shared_data: Path, encoding: str, cuts: Iterable[int]) -> None:
    read = messages(shared_data, encoding)
    whole = QlikMessageDecoder(OFFICES).decode(read).rows
    changes = in_batches(read, cuts)
    assert sorted(changes) == sorted(whole)
    assert_final(changes, shared_data)


@pytest.mark.parametrize("encoding", ["json", "avro"])
def test_metadata_that_comes_last_loses_nothing_k05(shared_data: Path, encoding: str) -> None:
    read = messages(shared_data, encoding)
    is_metadata = [
        b'"MD"' in (m.raw or b"") if isinstance(m, Damage) else b"tableStructure" in (m.body or b"") for m in read
    ]
    late = [m for m, yes in zip(read, is_metadata, strict=True) if not yes]
    late += [m for m, yes in zip(read, is_metadata, strict=True) if yes]
    assert_final(in_batches(late, [500, 1000, len(late) - 2]), shared_data)
