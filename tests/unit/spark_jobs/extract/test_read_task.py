"""What a reading task tells the driver of its rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest

from open_mirroring.changes.manifest import BoundRange, Manifest
from open_mirroring.facts.full_loads import FULL_LOADS
from open_mirroring.facts.read_places import SHOWN, UNCOUNTED
from open_mirroring.facts.unreadable import KEYLESS, READING_STOPS, WITHOUT_TABLE
from spark_jobs.changelog.schema import CHANGE, LOAD_MAJOR, REJECTED, LogRow
from spark_jobs.changelog.writing import log_table
from spark_jobs.extract import read_task
from spark_jobs.extract.part import Part, merge
from spark_jobs.extract.read_task import LogTarget, RowSummary
from spark_jobs.sources.ces.format import CesFormat
from spark_jobs.sources.contract.decoded import MirroredTable
from spark_jobs.sources.qlik.change_table.format import ChangeTableFormat
from spark_jobs.sources.qlik.message.format import QlikMessageFormat
from spark_jobs.sources.qlik.positions import qlik_position
from spark_jobs.sources.transports import message_files
from spark_jobs.sources.transports.message_files import LineFiles
from tests.ces_messages import event
from tests.noted_facts import facts_about

TABLES = {"dbo.a": MirroredTable("dbo.a", ("id",)), "dbo.log": MirroredTable("dbo.log", ())}
LOADED, CHANGED = f"{LOAD_MAJOR}:0:1", f"{'1' * 35}:0:1"


def row(kind: str, place: int, pos: str, table: str | None = "dbo.a", origin: str = "t/0", **more: str) -> LogRow:
    return LogRow(kind, origin, place, table, pos=pos, **more)  # type: ignore[arg-type]


def test_the_last_row_of_a_load_and_the_first_change_are_reported_for_each_partition_k18() -> None:
    summary = RowSummary(TABLES, QlikMessageFormat())
    summary.take([row(CHANGE, 3, LOADED), row(CHANGE, 9, CHANGED), row(CHANGE, 7, LOADED, origin="t/1")])
    summary.take([row(CHANGE, 5, LOADED), row(CHANGE, 8, CHANGED), row(CHANGE, 1, CHANGED, "dbo.log")])
    assert FULL_LOADS.of(summary.facts) == {"dbo.a": {"t/0": (5, 8), "t/1": (7, None)}, "dbo.log": {"t/0": (None, 1)}}


def test_a_source_without_loads_of_its_own_shows_none() -> None:
    summary = RowSummary(TABLES, CesFormat())
    summary.take([row(CHANGE, 3, LOADED)])
    assert FULL_LOADS.of(summary.facts) == {}


def test_dead_letters_that_hide_a_table_or_its_key_are_reported() -> None:
    """A dead letter without table concerns the mirror, one without key its table; a table without key has none."""
    summary = RowSummary(TABLES, CesFormat())
    at = {"code": "KEY_INVALID", "reason": "no number"}
    summary.take([row(REJECTED, 1, CHANGED, None, **at), row(REJECTED, 2, CHANGED, "dbo.log", **at)])
    summary.take(
        [row(REJECTED, 3, CHANGED, **at), row(REJECTED, 4, CHANGED, **at), row(REJECTED, 5, CHANGED, key='["1"]')]
    )
    assert WITHOUT_TABLE.of_mirror(summary.facts) == {"": 1}
    assert KEYLESS.of(summary.facts) == {"dbo.a": {"": ("KEY_INVALID", "no number", "t/0", 3)}}


def test_what_a_partition_has_shown_is_reported_of_rows_taken_as_a_table_too_c_34() -> None:
    """C-34, C-88: messages of blocks move the complete position as those of the exact decoder do."""
    shown = [(3, "t/0", "e"), (9, "t/0", "e"), (5, "t/0", "f"), (4, "t/1", "e")]
    rows = [
        row(CHANGE, place, f"{major:08X}:01:1", origin=origin, epoch=epoch, op="I", key="[1]", cols="[]", row="{}")
        for place, (major, origin, epoch) in enumerate(shown)
    ]
    exact, taken = (RowSummary(TABLES, CesFormat(partitions=2)) for _ in range(2))
    exact.take(rows)
    table = log_table(rows, 1)
    for origin in ("t/0", "t/1"):
        taken.take_table(table.filter(pc.equal(table["origin"], origin)))
    assert (
        SHOWN.of_mirror(taken.facts)
        == SHOWN.of_mirror(exact.facts)
        == {"t/0": {"e": "00000009", "f": "00000005"}, "t/1": {"e": "00000004"}}
    )
    assert SHOWN.of_mirror(RowSummary(TABLES, CesFormat()).facts) == {}


def counted(origin: str, place: int, sequence: int, counter: int, kind: str = CHANGE) -> LogRow:
    position = qlik_position("0" * 35 if not sequence else f"{sequence:016d}{place:019d}", 1, counter)
    return row(kind, place, position, origin=origin, epoch="1", op="U", key="[1]", cols="[]", row="{}")


def test_only_the_beginning_of_a_transaction_shows_that_those_before_it_are_complete_k_80() -> None:
    """K-80, K-18: a change in the middle, or a row of a full load, shows its partition and no more."""
    rows = [
        counted("t/0", 1, 0, 1),
        counted("t/0", 2, 5, 1),
        counted("t/0", 3, 6, 2),
        counted("t/1", 4, 7, 3),
        counted("t/2", 5, 0, 1),
    ]
    exact, taken = (RowSummary(TABLES, QlikMessageFormat(partitions=3)) for _ in range(2))
    exact.take(rows)
    taken.take_table(log_table(rows, 1))
    story = {"t/0": {"1": f"{5:016d}:{2:019d}{1:020d}"}, "t/1": {"1": ""}, "t/2": {"1": ""}}
    assert SHOWN.of_mirror(taken.facts) == SHOWN.of_mirror(exact.facts) == story
    assert UNCOUNTED.of(taken.facts) == UNCOUNTED.of(exact.facts) == {}


def test_a_change_without_its_place_in_the_transaction_is_reported_k_80() -> None:
    """K-80: nothing tells then where a transaction begins; in a mirror that holds none back it does not matter."""
    rows = [counted("t/0", 1, 0, 0), counted("t/0", 2, 5, 1), counted("t/0", 3, 5, 0), counted("t/0", 4, 5, 2)]
    for kept, found in ((0, {}), (1, {"": "t/0:3"})):
        exact, taken = (RowSummary(TABLES, QlikMessageFormat(partitions=kept)) for _ in range(2))
        exact.take(rows)
        taken.take_table(log_table(rows, 1))
        assert UNCOUNTED.of_mirror(taken.facts) == UNCOUNTED.of_mirror(exact.facts) == found


def test_closed_partitions_of_all_tables_are_one_order_t_80() -> None:
    """T-80: the ledger keeps one place for all of them, however many partitions were closed."""
    summary = RowSummary(TABLES, ChangeTableFormat(partitions=1))
    summary.take([counted("dbo.a__ct/20260101T000000_20260101T010000", 1, 5, 0)])
    summary.take([counted("dbo.b__ct/20260101T010000_20260101T020000", 1, 9, 0)])
    summary.take([counted("dbo.b__ct/", 1, 12, 0)])
    assert SHOWN.of_mirror(summary.facts) == {"closed partitions": {"1": f"{9:016d}"}}, (
        "a row without a partition is in none"
    )


def test_what_is_read_again_is_watched_message_by_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """I1: a dead letter is settled by the very message that held it, so no block passes over it."""
    bodies = [event("INS", {"id": str(n), "name": "Ada", "price": "1.00"}, commit=n) for n in (1, 2)]
    (tmp_path / "a.jsonl").write_bytes(b"".join(body + b"\n" for body in bodies))
    place = LineFiles(tmp_path, "bare")
    bound = BoundRange("a.jsonl", 0, sum(len(body) + 1 for body in bodies))
    monkeypatch.setattr(message_files, "_WORTH_BYTES", 0)
    tables = {"dbo.orders": MirroredTable("dbo.orders", ("id",))}
    watched = frozenset({("a.jsonl", len(bodies[0]) + 1), ("a.jsonl", 7)})
    results = []
    for number, coordinates in enumerate((watched, frozenset[tuple[str, int]]())):
        target = LogTarget(tmp_path / "log", 1, f"attempt{number}", 0)
        decoding = read_task.Decoding(CesFormat(), tables, (), target, coordinates)
        decoding.take_range(place, bound)
        results.append(decoding.finish())
    assert [one.counts["changes"] for one in results] == [2, 2]
    assert [one.met for one in results] == [{("a.jsonl", len(bodies[0]) + 1)}, set()]


def test_the_parts_of_a_batch_keep_everything_in_one_manifest() -> None:
    """I1, C-34, G-08: what was shown, what is given back and what stops a table is lost by no merge."""
    one = Part(facts=facts_about(SHOWN, {"": {"t/0": {"e": "05"}}}), given_back={"a": "gone"}, counts={"loaded": 2})
    shown = facts_about(SHOWN, {"": {"t/0": {"e": "03", "f": "01"}}})
    two = Part(facts={**shown, **facts_about(READING_STOPS, {"dbo.a": {"": ("VALUE_INVALID", "x")}})})
    merged = Manifest.from_json(merge([one, two], (), 2).to_json())
    assert SHOWN.of_mirror(merged.facts) == {"t/0": {"e": "05", "f": "01"}} and merged.partitions == 2
    assert READING_STOPS.of(merged.facts) == {"dbo.a": {"": ("VALUE_INVALID", "x")}}
    assert merged.given_back == {"a": "gone"}
    assert merged.counts == {"loaded": 2}
