"""Published samples decode, and real histories fold to their known final state."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from spark_jobs.changelog.schema import LogRow, RawMessage
from spark_jobs.sources.ces.changes import Outcome
from spark_jobs.sources.ces.decoder import CesDecoder, join
from spark_jobs.sources.contract.decoded import Damage, Decoded, MirroredTable
from spark_jobs.sources.sql_server.types import converter
from spark_jobs.sources.transports.capture import list_capture, read_capture
from spark_jobs.sources.transports.json_lines import SUFFIXES, ranges, read_lines
from spark_jobs.sources.transports.source_files import list_source_files

OFFICES = CesDecoder({"dbo.district_offices": MirroredTable("dbo.district_offices", ("office_id",))})


@pytest.mark.parametrize("operation", ["ins", "upd", "del"])
@pytest.mark.parametrize(
    ("edition", "table"),
    [
        ("2025-03", MirroredTable("dbo.Purchases", ("purchase_id",))),
        ("2026-08", MirroredTable("dbo.Employees", ("Id",))),
    ],
)
def test_published_samples_decode(shared_data: Path, edition: str, table: MirroredTable, operation: str) -> None:
    body = (shared_data / "samples" / "ces" / f"msdocs-{edition}-{operation}.json").read_bytes()
    decoded = CesDecoder({table.source: table}).decode([RawMessage("sample", 0, body)])
    (row,) = decoded.rows
    assert (row.kind, row.tbl, row.op) == ("change", table.source, operation[0].upper())
    inner = json.loads(json.loads(body)["data"])
    image, text = ("old", row.before) if operation == "del" else ("current", row.row)
    assert json.loads(text or "") == json.loads(inner["eventrow"][image])
    assert row.key == json.dumps([inner["eventsource"]["pkkey"][0]["value"]])
    for name, sql_type, _ in json.loads(row.cols or ""):
        converter(sql_type)(json.loads(text or "")[name])


def decode_all(messages: Iterable[RawMessage | Damage]) -> tuple[Decoded, list[LogRow]]:
    """Everything decoded and every split event joined; each fragment must find its others."""
    decoded = OFFICES.decode(messages)
    groups: dict[str, list[LogRow]] = defaultdict(list)
    changes = []
    for row in decoded.rows:
        if row.kind == "fragment":
            groups[str(row.fragment_of)].append(row)
        else:
            changes.append(row)
    for pieces in groups.values():
        joined = join(pieces, OFFICES)
        assert isinstance(joined, Outcome), joined
        changes += joined.rows
    return decoded, changes


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


def expected(path: Path) -> dict[str, dict[str, Any]]:
    rows = {}
    for row in pq.read_table(path).to_pylist():
        rows[json.dumps([row["office_id"]], ensure_ascii=False)] = row
    return rows


def assert_equal_cell_by_cell(found: dict[str, dict[str, Any]], wanted: dict[str, dict[str, Any]]) -> None:
    assert found.keys() == wanted.keys()
    for key, row in wanted.items():
        for name, value in row.items():
            cell = found[key].get(name)
            if name == "updated_at":
                cell = cell.replace(tzinfo=None)
            assert cell == value and isinstance(cell, Decimal) == isinstance(value, Decimal), (key, name, cell, value)


def test_a_whole_history_in_capture_files_folds_to_its_final_state(shared_data: Path) -> None:
    root = shared_data / "ces" / "capture-gen-c"
    listed = list_capture(root, {})
    assert len(listed.files) == 18 and not listed.waiting
    decoded, changes = decode_all(message for file in listed.files for message in read_capture(root, *file[:2]))
    assert decoded.counts == (11356, 11356, 0, 0, 0, 0)
    assert_equal_cell_by_cell(folded(changes), expected(shared_data / "district_offices" / "final.parquet"))


@pytest.mark.parametrize(("generation", "messages", "cut_in_two"), [("a", 1629, 126), ("c", 1669, 159)])
def test_a_history_with_split_events_folds_to_its_final_state(
    shared_data: Path, generation: str, messages: int, cut_in_two: int
) -> None:
    root = shared_data / "ces" / f"json-gen-{generation}"
    bound = [r for file in list_source_files(root, SUFFIXES).files for r in ranges(root, file.name, 0, file.size)]
    decoded, changes = decode_all(message for r in bound for message in read_lines(root, *r, "wrapped"))
    assert decoded.counts.messages == messages
    assert decoded.counts.rejected == decoded.counts.ignored == 0
    joined = {row.fragment_of for row in decoded.rows if row.kind == "fragment"}
    assert len(joined) == cut_in_two
    final = shared_data / "district_offices_part" / "final.parquet"
    assert_equal_cell_by_cell(folded(changes), expected(final))
