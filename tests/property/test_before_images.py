"""No sound history contradicts itself, however it was sent; one of which a change is missing does (G-190).

Those of change tables are looked at where they are read, in ``test_qlik_change_tables.py``.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.changelog.schema import INSERT, UPDATE, LogRow, RawMessage
from spark_jobs.sources.ces.decoder import CesDecoder
from spark_jobs.sources.contract.decoded import MirroredTable
from spark_jobs.sources.qlik.message.decoder import QlikMessageDecoder, QlikMessageSettings
from tests.contradictions import found_in
from workload_generator.ces import CesOptions
from workload_generator.ces import render as render_events
from workload_generator.delivery import Delivery
from workload_generator.history import SHOP_TABLES, ColumnDef, History, random_history
from workload_generator.qlik_messages import QlikMessageOptions
from workload_generator.qlik_messages import render as render_messages

TABLES = {table.full_name: MirroredTable(table.full_name, table.key) for table in SHOP_TABLES}
ADDED = {5: ("dbo.customers", ColumnDef("phone", "varchar(30)"))}


def history_of(seed: int, rows: int = 0) -> History:
    return random_history(seed, 12, rows=rows, add_column_at=ADDED)


def of_events(history: History, **options: Any) -> list[LogRow]:
    sent = render_events(history.changes, CesOptions(**options), Delivery(disorder=30, duplicates=0.2))
    messages = [RawMessage(f"t/{one.partition}", at, one.body) for at, one in enumerate(sent)]
    return CesDecoder(TABLES).decode(messages).rows


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.booleans())
def test_change_events(seed: int, include_all_columns: bool) -> None:
    """G-190."""
    assert found_in(of_events(history_of(seed), include_all_columns=include_all_columns), begins=True) == []


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.integers(0, 10**6), st.sampled_from(["json", "avro"]), st.sampled_from([0.0, 0.3]))
def test_messages(seed: int, encoding: Any, replays: float) -> None:
    """G-190. The rows before the first transaction come as a full load."""
    options = QlikMessageOptions(encoding=encoding, replays=replays)
    sent = render_messages(history_of(seed, rows=3), options, Delivery(scheme="key", duplicates=0.2))
    messages = [RawMessage(f"t/{one.partition}", at, one.body, one.key) for at, one in enumerate(sent)]
    schemas = QlikMessageDecoder(TABLES, [], QlikMessageSettings()).decode(messages).schemas
    rows = QlikMessageDecoder(TABLES, schemas, QlikMessageSettings()).decode(messages).rows
    assert found_in(rows, begins=False) == []


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(0, 10**6))
def test_a_missing_change_is_found(seed: int) -> None:
    """G-190. Of three changes of a key the one in the middle, and the insert before an update."""
    of_key: dict[tuple[str | None, str | None], dict[str, LogRow]] = defaultdict(dict)
    for row in of_events(history_of(seed)):
        of_key[row.tbl, row.key][row.pos or ""] = row
    for known in of_key.values():
        changes = [known[pos] for pos in sorted(known)]
        for one, other in pairwise(changes):
            if one.op not in (INSERT, UPDATE) or other.had is None:
                continue
            assert len(found_in([other], begins=True)) == 1
            for earlier in changes[: changes.index(one)]:
                if earlier.row is not None and earlier.cols == other.cols and one.row != earlier.row:
                    assert len(found_in([earlier, other], begins=False)) == int(earlier.whole or False)
