"""A history stored in change tables and read back in any way ends in its own final state (G-09, T-30)."""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.changelog.schema import LogRow
from spark_jobs.sources.contract.decoded import Decoded, MirroredTable, Waiting
from spark_jobs.sources.qlik.change_table.decoder import ChangeTableSettings, QlikChangeTableDecoder
from spark_jobs.sources.qlik.change_table.files import ChangeFiles
from spark_jobs.sources.qlik.change_table.rows import ChangeRow
from spark_jobs.sources.sql_server.types import converter
from tests.contradictions import found_in
from workload_generator.history import SHOP_TABLES, ColumnDef, History, random_history
from workload_generator.qlik_change_tables import HEADERS, ChangeTableOptions, stored_changes
from workload_generator.qlik_file_target import change_files
from workload_generator.transports import write_files

WITHOUT_MASK = ("change_seq", "change_oper")
TABLES = {table.full_name: MirroredTable(table.full_name, table.key) for table in SHOP_TABLES}


def history_of(seed: int) -> History:
    added = {4: ("dbo.customers", ColumnDef("phone", "varchar(30)")), 7: ("dbo.orders", ColumnDef("paid", "bit"))}
    return random_history(seed, 10, add_column_at=added)


def folded(rows: Iterable[LogRow]) -> dict[str, dict[str, dict[str, Any]]]:
    """The smallest interpreter of log rows in the order of their positions.

    The half of a key change that leaves a key removes the row only if that is the one it means (G-03).
    """
    state: dict[str, dict[str, tuple[str, str]]] = defaultdict(dict)
    for row in sorted(rows, key=lambda one: one.pos or ""):
        assert row.kind == "change" and row.tbl is not None and row.key is not None, row
        table = state[row.tbl]
        if row.op in ("I", "U"):
            table[row.key] = (row.cols or "", row.row or "")
        elif row.op == "D" or (row.key in table and is_row(row.before, table[row.key][1])):
            table.pop(row.key, None)
    return {name: {key: typed_row(*image) for key, image in rows.items()} for name, rows in state.items()}


def is_row(before: str | None, row: str) -> bool:
    one, other = json.loads(before or "{}"), json.loads(row)
    return all(one[name] == other[name] for name in one.keys() & other.keys())


def typed_row(cols: str, row: str) -> dict[str, Any]:
    types = {name: sql_type for name, sql_type, _ in json.loads(cols)}
    values = {n: None if text is None else converter(types[n])(text) for n, text in json.loads(row).items()}
    return {name: value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value for name, value in values.items()}


def decoded_in_pieces(decoder: QlikChangeTableDecoder, messages: list[Any], cuts: Iterable[int]) -> list[LogRow]:
    """Everything decoded in the pieces between the cuts; halves of pairs joined; counts add up."""
    borders = sorted({0, len(messages), *(cut % (len(messages) + 1) for cut in cuts)})
    rows: list[LogRow] = []
    for start, end in pairwise(borders):
        decoded = decoder.decode(messages[start:end])
        assert decoded.counts.messages == end - start == sum(decoded.counts[1:])
        assert decoded.counts.rejected == decoded.counts.ignored == 0
        rows += decoded.rows
    changes = [row for row in rows if row.kind == "change"]
    logged = {(row.tbl, (row.pos or "")[:-2]) for row in changes}
    halves: dict[str, list[LogRow]] = defaultdict(list)
    for row in rows:
        if row.kind == "fragment":
            halves[row.fragment_of or ""].append(row)
    for pieces in halves.values():
        joined = decoder.join(pieces)
        if isinstance(joined, Waiting):
            # The pair was complete elsewhere: this half came again, or nobody waited for it.
            assert (pieces[0].tbl, (pieces[0].pos or "")[:-2]) in logged
        else:
            assert isinstance(joined, Decoded)
            changes += joined.rows
    return changes


def assert_is_final(history: History, rows: Iterable[LogRow]) -> None:
    found = folded(rows)
    for name in history.tables:
        mirrored = found.get(name, {})
        columns = [column.name for column in history.tables[name].columns]
        key = history.tables[name].key
        wanted = {json.dumps([str(row[k]) for k in key]): row for row in history.typed_final(name)}
        by_key = {json.dumps([str(row[k]) for k in key]): row for row in mirrored.values()}
        # A column that was added since a row was written is missing in it, and NULL.
        assert {k: {c: row.get(c) for c in columns} for k, row in by_key.items()} == wanted, name


@settings(derandomize=True, deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 10_000),
    file_format=st.sampled_from(["csv", "json", "parquet"]),
    headers=st.sampled_from([HEADERS[:-1], HEADERS[:3], WITHOUT_MASK]),
    partition_minutes=st.sampled_from([None, 1]),
    cuts=st.lists(st.integers(0, 10_000), max_size=8),
    order=st.randoms(use_true_random=False),
)
def test_histories_through_files_end_in_their_final_state(
    seed: int, file_format: Any, headers: tuple[str, ...], partition_minutes: int | None, cuts: list[int], order: Random
) -> None:
    """G-09: cut anywhere, files in any order, some of them twice; T-02: with any header columns; G-190."""
    history = history_of(seed)
    options = ChangeTableOptions(
        headers=headers, binary_mask=file_format == "parquet", partition_minutes=partition_minutes
    )
    files = change_files(
        stored_changes(history.changes, options), options, file_format, rows_per_file=11, compressed=seed % 2 == 0
    )
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), files)
        ranges, waiting, *_ = ChangeFiles(Path(folder)).find(None, {})
        assert not waiting
        again = order.sample(ranges, min(2, len(ranges)))
        order.shuffle(ranges)
        messages = [message for one in [*ranges, *again] for message in ChangeFiles(Path(folder)).read(one)]
    assert all(isinstance(message, ChangeRow) for message in messages), messages[-1]
    # Cut off its image, an update whose mask is none, as that of large objects alone, needs the setting (T-19, T-60).
    stored = None if all(has_mask(message) for message in messages) else True
    decoder = QlikChangeTableDecoder(TABLES, ChangeTableSettings(before_images=stored))
    changes = decoded_in_pieces(decoder, messages, cuts)
    assert_same_content(changes)
    assert_is_final(history, changes)
    assert found_in(changes, begins=True) == []


def has_mask(message: ChangeRow) -> bool:
    """Whether a row has a mask, or needs none."""
    story = dict(zip((column.name for column in message.structure.columns), message.values, strict=True))
    return story["header__change_oper"] != "U" or bool(story.get("header__change_mask"))


def assert_same_content(changes: Iterable[LogRow]) -> None:
    """G-02: what is there twice says the same."""
    seen: dict[tuple[Any, ...], LogRow] = {}
    for row in changes:
        known = seen.setdefault((row.tbl, row.pos, row.key), row)
        assert (known.op, known.row, known.cols) == (row.op, row.row, row.cols)


@settings(derandomize=True, deadline=None, max_examples=15)
@given(seed=st.integers(0, 10_000), size=st.integers(1, 40))
def test_cut_never_parts_neighbouring_halves(seed: int, size: int) -> None:
    """T-11: a before image stays with the update behind it, so nothing has to wait."""
    history = history_of(seed)
    options = ChangeTableOptions()
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder), change_files(stored_changes(history.changes, options), options, rows_per_file=10_000))
        messages = [
            m for one in ChangeFiles(Path(folder)).find(None, {})[0] for m in ChangeFiles(Path(folder)).read(one)
        ]
    decoder = QlikChangeTableDecoder(TABLES)
    chunks = list(decoder.cut(iter(messages), size))
    assert [message for chunk in chunks for message in chunk] == messages
    rows = [row for chunk in chunks for row in decoder.decode(chunk).rows]
    assert {row.kind for row in rows} <= {"change"}
    assert_is_final(history, rows)
