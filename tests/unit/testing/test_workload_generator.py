"""The workload generator makes what is hard about change data, and refuses what does not exist.

That it says the same thing in every way it speaks is what the end-to-end tests find: tables end in its own final state.
"""

from __future__ import annotations

import io
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest

from tests.odd.inputs import CHANGE_EVENT
from workload_generator import ces_shipping
from workload_generator.ces import CesOptions, commit_lsn, encode, render
from workload_generator.ces_shipping import CaptureShipping
from workload_generator.command_line import main
from workload_generator.database import Database
from workload_generator.delivery import Delivery
from workload_generator.exporting import export
from workload_generator.history import fold, random_history
from workload_generator.source import COUNTS, Source, SourceError
from workload_generator.sql_values import typed
from workload_generator.transports import capture_files, write_files

WIRES = [("a", "json"), ("b", "json"), ("c", "json"), ("b", "avro"), ("c", "avro")]


def envelope(body: bytes) -> Any:
    return (
        json.loads(body) if body.startswith(b"{") else fastavro.schemaless_reader(io.BytesIO(body), CHANGE_EVENT, None)
    )


# --- histories -------------------------------------------------------------------------------------------------------


def test_a_history_has_what_makes_change_data_hard() -> None:
    history = random_history(5, 400)
    for table in history.tables.values():
        changes = [change for change in history.changes if change.table.full_name == table.full_name]
        assert {change.op for change in changes} == {"I", "U", "D"}
        key_changes = [change for change in changes if change.is_key_change]
        assert key_changes
        ends = [(one.txn, table.key_of(one.before or {}), table.key_of(one.after or {})) for one in key_changes]
        swaps = [one for one in ends if (one[0], one[2], one[1]) in ends]
        assert swaps, f"{table.full_name}: two keys change places in one transaction (G-03)"
        gone, returned = set(), 0
        for change in changes:
            if change.op == "D":
                gone.add(table.key_of(change.before or {}))
            elif change.op == "I":
                returned += table.key_of(change.after or {}) in gone
        assert returned, f"{table.full_name}: deleted keys come back (G-05)"
    tables_of: dict[int, set[str]] = {}
    for change in history.changes:
        tables_of.setdefault(change.txn, set()).add(change.table.full_name)
    assert sum(len(names) > 1 for names in tables_of.values()) > 100
    texts = [value for one in history.changes for value in (one.after or {}).values()]
    assert None in texts and "" in texts
    assert all(any(sign in text for text in texts if text) for sign in ('"', "\\", "\n", "ü", "😀", "/"))


def test_the_fold_refuses_a_history_that_contradicts_itself() -> None:
    history = random_history(2, 20)
    broken = [one for one in history.changes if not (one.op == "I" and one.txn == 1)]
    with pytest.raises(ValueError, match="before image"):
        fold(broken)


def test_typed_values_cut_the_seventh_digit_and_keep_floats() -> None:
    assert typed("datetime2(7)", "9999-12-31 23:59:59.9999999") == datetime(9999, 12, 31, 23, 59, 59, 999999)
    assert typed("decimal(12,2)", "-0.50") == Decimal("-0.50")
    assert typed("date", "0001-01-01") == date(1, 1, 1)
    assert typed("nvarchar(5)", "") == "" and typed("nvarchar(5)", None) is None
    with pytest.raises(ValueError, match="unknown SQL type"):
        typed("geography", "POINT (0 0)")


# --- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("generation", "encoding"), WIRES)
def test_data_is_cut_at_the_limit(generation: Any, encoding: Any) -> None:
    options = CesOptions(generation, encoding, max_data_bytes=500)
    for change in random_history(4, 20).changes:
        pieces = encode(change, options)
        bodies = [envelope(one.body) for one in pieces]
        sizes = [len(one["data"] if encoding == "avro" else one["data"].encode()) for one in bodies]
        assert max(sizes) <= 500 and all(size > 496 for size in sizes[:-1])
        assert len({one["logicalid"] for one in bodies}) == 1


def test_an_update_may_leave_out_old_values_and_columns_that_did_not_change_c44_c71() -> None:
    updates = [change for change in random_history(6, 80).changes if change.op == "U"]
    for options in (CesOptions(include_old_values=False), CesOptions(include_all_columns=False)):
        sent = [json.loads(json.loads(m.body)["data"]) for m in render(updates, options)]
        without = [one["eventrow"]["old"] == "{}" for one in sent]
        assert set(without) == {not options.include_old_values}
        partial = [len(one["eventsource"]["cols"]) < len(c.table.columns) for one, c in zip(sent, updates, strict=True)]
        assert (sum(partial) > 20) == (not options.include_all_columns)


def test_json_texts_look_like_those_of_the_server() -> None:
    """C-12, C-16, C-42: escaped slashes, content types, pretty-printed inner JSON in generation a."""
    change = random_history(1, 1).changes[0]
    bodies = {generation: encode(change, CesOptions(generation))[0].body for generation in ("a", "b", "c")}
    assert all(b'"source":"\\/"' in body for body in bodies.values())
    assert b'"application\\/avro-json"' in bodies["b"]
    assert b'"application\\/json"' in bodies["a"] and b'"application\\/json"' in bodies["c"]
    assert json.loads(bodies["a"])["data"].startswith('{\n  "eventsource": {\n    "db": "ShopDb"')
    assert "\n" not in json.loads(bodies["c"])["data"]


@pytest.mark.parametrize(("generation", "sample"), [("a", "msdocs-2025-03"), ("c", "msdocs-2026-08")])
def test_messages_have_the_shape_of_the_published_samples(generation: Any, sample: str, shared_data: Path) -> None:
    def shape(body: bytes) -> tuple[Any, ...]:
        envelope = json.loads(body)
        data = json.loads(envelope["data"])
        its = data["eventsource"]
        inner = [list(its), list(data["eventrow"]), list(its["cols"][0]), list(its["pkkey"][0])]
        kinds = [type(value) for value in envelope.values()]
        texts = [envelope["datacontenttype"], envelope["operation"], data["eventrow"]["old"] == "{}"]
        return list(envelope), kinds, inner, list(its.get("transaction", ())), texts

    changes = {change.op: change for change in random_history(1, 30).changes}
    for op, name in (("I", "ins"), ("D", "del")):
        published = (shared_data / "samples" / "ces" / f"{sample}-{name}.json").read_bytes()
        (piece,) = encode(changes[op], CesOptions(generation, max_data_bytes=None))
        assert shape(piece.body) == shape(published)


@pytest.mark.parametrize(
    "wrong",
    [{"generation": "d"}, {"generation": "a", "encoding": "avro"}, {"segment_base": 2}, {"max_data_bytes": 3}],
    ids=str,
)
def test_a_stream_that_does_not_exist_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        CesOptions(**wrong)


def test_a_message_is_overtaken_by_its_near_followers_only() -> None:
    options, changes = CesOptions(), random_history(1, 200).changes
    sent = [one.body for one in render(changes, options)]
    arrived = [one.body for one in render(changes, options, Delivery(disorder=20))]
    order = {body: place for place, body in enumerate(sent)}
    newest, late = -1, []
    for body in arrived:
        late.append(max(0, newest - order[body]))
        newest = max(newest, order[body])
    assert sorted(arrived) == sorted(sent)
    assert 5 < max(late) <= 20


def test_round_robin_spreads_the_changes_of_one_row_and_the_pieces_of_one_event() -> None:
    """C-55, C-87."""
    changes = random_history(1, 60).changes
    messages = render(changes, CesOptions(max_data_bytes=400))
    partitions: dict[str, set[int]] = {}
    for message in messages:
        assert message.key is None
        partitions.setdefault(json.loads(message.body)["logicalid"], set()).add(message.partition)
    assert max(map(len, partitions.values())) == 3


def test_duplicates_are_the_same_bytes_again() -> None:
    """C-85."""
    changes = random_history(1, 200).changes
    counts = Counter(one.body for one in render(changes, None, Delivery(duplicates=0.1)))
    twice = sum(number == 2 for number in counts.values())
    assert max(counts.values()) == 2 and 0.05 * len(changes) < twice < 0.15 * len(changes)


def test_a_capture_file_has_the_schema_of_event_hubs(shared_data: Path) -> None:
    real = next((shared_data / "ces" / "capture-gen-c").rglob("*.avro"))
    (_, content), *_ = capture_files(render(random_history(1, 3).changes))
    with real.open("rb") as file:
        assert fastavro.reader(io.BytesIO(content)).writer_schema == fastavro.reader(file).writer_schema


# --- the source ------------------------------------------------------------------------------------------------------


def files_of(capture: Path) -> dict[str, bytes]:
    return {path.relative_to(capture).as_posix(): path.read_bytes() for path in sorted(capture.rglob("*.avro"))}


def sent_to(capture: Path) -> Iterator[bytes]:
    for content in files_of(capture).values():
        yield from (record["Body"] for record in fastavro.reader(io.BytesIO(content)))


@pytest.mark.parametrize("wire", WIRES, ids="-".join)
def test_three_runs_show_every_table_everything(tmp_path: Path, wire: Any) -> None:
    """Each run has all kinds; after three, each table had late, split and doubled events; nothing stays behind."""
    source, capture = Source.create(tmp_path / "source.db", seed=3, rows=20), tmp_path / "capture"
    seen: list[set[str]] = []
    for number in range(3):
        source.run(CaptureShipping(capture, wire[1], wire[0]), transactions=6, hold_back=number < 2)
        seen.append({envelope(body)["logicalid"] for body in sent_to(capture)})
        report = source.report()
        assert (report["withheld"] > 0) == (number < 2)
        for counts in report["tables"].values():
            assert set(counts) == {"rows", *COUNTS}
            assert min(counts["inserts"], counts["updates"], counts["deletes"], counts["key_changes"]) > number
            assert counts["split_events"] > number and counts["duplicates"] > number
            assert counts["late_events"] >= number
    bodies = list(sent_to(capture))
    repeats = len(bodies) - len(set(bodies))
    assert repeats == sum(counts["duplicates"] for counts in report["tables"].values())
    newest_of_first_run = max(one.split(":")[1] for one in seen[0])
    came_late = [one for one in seen[1] - seen[0] if one.split(":")[1] <= newest_of_first_run]
    assert came_late, "whole events of the first run come with the second"


def test_a_run_killed_before_its_files_were_written_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def source_of(name: str) -> tuple[Source, CaptureShipping, Path]:
        capture = tmp_path / name / "capture"
        return Source.create(tmp_path / name / "s.db", seed=4, rows=10), CaptureShipping(capture), capture

    source, shipping, capture = source_of("killed")

    def killed(folder: Path, files: Sequence[tuple[str, bytes]]) -> list[Path]:
        if files:
            write_files(folder, files[:2])
            raise KeyboardInterrupt
        return []

    with monkeypatch.context() as patch:
        patch.setattr(ces_shipping, "write_files", killed)
        with pytest.raises(KeyboardInterrupt):
            source.run(shipping, transactions=5)
    assert len(files_of(capture)) == 2
    source.run(shipping, transactions=0)
    twin, other, whole = source_of("whole")
    twin.run(other, transactions=5)
    twin.run(other, transactions=0)
    assert files_of(capture) == files_of(whole)


def test_the_same_seed_lives_the_same_life_and_another_seed_another(tmp_path: Path) -> None:
    def life(name: str, seed: int) -> dict[str, bytes]:
        source, capture = Source.create(tmp_path / name / "s.db", seed=seed, rows=10), tmp_path / name / "capture"
        source.run(CaptureShipping(capture), transactions=10, hold_back=True)
        source.run(CaptureShipping(capture), transactions=10)
        return files_of(capture)

    assert life("one", 9) == life("two", 9) != life("three", 8)


def test_commands_refuse_what_would_spoil_something(tmp_path: Path) -> None:
    source = Source.create(tmp_path / "s.db", seed=1, rows=1)
    with pytest.raises(SourceError, match="exists"):
        Source.create(tmp_path / "s.db", seed=1, rows=1)
    with pytest.raises(SourceError, match="no such state file"):
        Source(tmp_path / "other.db")
    export(source, tmp_path / "out", "csv")
    with pytest.raises(SourceError, match="not empty"):
        export(source, tmp_path / "out", "csv")
    with pytest.raises(ValueError, match="JSON only"):
        source.run(CaptureShipping(tmp_path / "capture", "avro", "a"))
    assert source.report()["runs"] == 0


def test_the_command_line_plays_a_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def call(command: str, *words: str) -> tuple[int, str, str]:
        code = main([command, "--state", str(tmp_path / "s.db"), *words])
        return code, *capsys.readouterr()

    assert call("init", "--seed", "1", "--rows", "4")[0] == 0
    code, answer, reason = call("init", "--seed", "1")
    assert code == 2 and "exists" in reason and answer == ""
    assert json.loads(call("export", "--out", str(tmp_path / "out"))[1])["stream_from"] == commit_lsn(1)
    done = json.loads(call("run", "--capture", str(tmp_path / "capture"), "--transactions", "3", "--hold-back")[1])
    assert done["transactions"] == 3 and done["withheld"] > 0
    module = [sys.executable, "-m", "workload_generator", "report", "--state", str(tmp_path / "s.db")]
    report = subprocess.run(module, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
    assert json.loads(report.stdout)["transactions"] == 3


def test_a_kind_that_needs_rows_makes_them() -> None:
    """Guaranteed, not by chance: every kind works on an empty table."""
    for kind in ("insert", "update", "delete", "reinsert", "key_change", "rotate", "churn"):
        effects = list(Database().act("dbo.products", kind, random.Random(1)))
        assert effects[0][0] == "I"
