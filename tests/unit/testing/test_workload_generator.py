"""The workload generator says the same thing in every way it speaks: history, wire, files, database.

Messages are decoded here by a small reader of its own, written from the message format, not by the generator.
"""

from __future__ import annotations

import base64
import gzip
import io
import json
import random
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workload_generator import ces_shipping
from workload_generator.ces import CesOptions, commit_lsn, encode, render
from workload_generator.ces_shipping import CaptureShipping
from workload_generator.command_line import main
from workload_generator.database import Database
from workload_generator.delivery import Delivery, Message
from workload_generator.exporting import export
from workload_generator.history import Change, ColumnDef, TableDef, fold, random_history
from workload_generator.source import COUNTS, Source, SourceError
from workload_generator.sql_values import random_text, typed
from workload_generator.transports import capture_files, compressed, json_lines, write_files

OUTER_FIELDS = [("specversion", "string"), ("type", "string"), ("source", "string"), ("id", "string")]
OUTER_FIELDS += [("logicalid", "string"), ("time", "string"), ("datacontenttype", "string"), ("operation", "string")]
OUTER_FIELDS += [("segmentindex", "int"), ("finalsegment", "boolean"), ("data", "bytes")]

EVERY_TYPE = TableDef(
    "odd",
    "every_type",
    (
        ColumnDef("id", "bigint", nullable=False),
        *(
            ColumnDef(f"c{n}", sql_type)
            for n, sql_type in enumerate(
                (
                    *("tinyint", "smallint", "int", "bit", "decimal(38,10)", "numeric(5,0)", "money", "smallmoney"),
                    *("float", "real", "date", "time(3)", "datetime", "datetime2(0)", "datetime2(7)", "smalldatetime"),
                    *("datetimeoffset(7)", "uniqueidentifier", "varchar(5)", "nvarchar(5)", "nvarchar(max)"),
                    *("binary(4)", "varbinary(max)"),
                )
            )
        ),
    ),
    ("id",),
)
KEY_ONLY = TableDef("odd", "key_only", (ColumnDef("a", "smallint", False), ColumnDef("b", "date", False)), ("a", "b"))


class Event(NamedTuple):
    """One row change as a consumer sees it."""

    lsn: str
    sequence: int
    table: str
    operation: str
    columns: tuple[tuple[str, str, int], ...]
    key: dict[str, str]
    old: dict[str, str | None]
    current: dict[str, str | None]


def avro_record(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": kind} for field, kind in fields]}


def data_schema(generation: str) -> Any:
    final = [("finalevent", "boolean")] if generation == "c" else []
    transaction = [("commitlsn", "string"), ("beginlsn", "string"), ("sequencenumber", "int"), *final]
    column = avro_record("Column", ("name", "string"), ("type", "string"), ("index", "int"))
    key = avro_record("PkKey", ("columnname", "string"), ("value", "string"))
    source = avro_record(
        "EventSource",
        *(("db", "string"), ("schema", "string"), ("tbl", "string")),
        ("cols", {"type": "array", "items": column}),
        ("pkkey", {"type": "array", "items": key}),
        ("transaction", avro_record("Transaction", *transaction, ("committime", "string"))),
    )
    row = avro_record("EventRow", ("old", "string"), ("current", "string"))
    return avro_record("Data", ("eventsource", source), ("eventrow", row))


def avro_read(schema: Any, body: bytes) -> Any:
    buffer = io.BytesIO(body)
    record = fastavro.schemaless_reader(buffer, schema)
    assert buffer.read() == b"", "a raw datum ends where its bytes end (C-62)"
    return record


def decode(bodies: Iterable[bytes], options: CesOptions) -> list[Event]:
    """Read messages in any order, duplicates included: re-join by logical id, drop repeats, sort by log position."""
    pieces: dict[str, dict[int, Any]] = {}
    ends: dict[str, int] = {}
    for body in bodies:
        avro = options.encoding == "avro"
        envelope = avro_read(avro_record("ChangeEvent", *OUTER_FIELDS), body) if avro else json.loads(body)
        assert envelope["specversion"] == "1.0" and envelope["type"] == "com.microsoft.SQL.CES.DML.V1"
        assert envelope["source"] == "/"
        logical = envelope["logicalid"]
        if options.generation == "a":
            assert "segmentindex" not in envelope
            index, last = envelope["splitindex"], max(envelope["splittotalcnt"] - 1, 0)
        else:
            index, last = envelope["segmentindex"], None
            if envelope["finalsegment"]:
                last = index
        known = pieces.setdefault(logical, {}).setdefault(index, envelope)
        assert known == envelope, "a message sent again is the same message (C-31)"
        if last is not None:
            assert ends.setdefault(logical, last) == last
    ids = [one["id"] for group in pieces.values() for one in group.values()]
    assert len(set(ids)) == len(ids), "each piece has an id of its own (C-54)"
    base = 0 if options.generation == "a" else options.segment_base
    events = []
    for logical, group in pieces.items():
        assert sorted(group) == list(range(base, ends[logical] + 1)), "no piece is missing (C-52, C-53)"
        parts = [group[index]["data"] for index in sorted(group)]
        if options.encoding == "avro":
            data = avro_read(data_schema(options.generation), b"".join(parts))
        else:
            data = json.loads("".join(parts))
        events.append(_event(logical, group[base]["operation"], data, options))
    return sorted(events)


def _event(logical: str, operation: str, data: dict[str, Any], options: CesOptions) -> Event:
    _, lsn, sequence = logical.split(":")
    its = data["eventsource"]
    assert list(data) == ["eventsource", "eventrow"] and its["db"] == options.database
    assert ("transaction" in its) == (options.generation != "a")
    if options.generation != "a":
        transaction = its["transaction"]
        assert transaction["commitlsn"].replace(":", "") == lsn and transaction["sequencenumber"] == int(sequence)
        assert transaction.get("finalevent") == (False if options.generation == "c" else None)
        assert transaction["beginlsn"] < transaction["commitlsn"]
    return Event(
        lsn,
        int(sequence),
        f"{its['schema']}.{its['tbl']}",
        operation,
        tuple((one["name"], one["type"], one["index"]) for one in its["cols"]),
        {one["columnname"]: one["value"] for one in its["pkkey"]},
        json.loads(data["eventrow"]["old"]),
        json.loads(data["eventrow"]["current"]),
    )


def expected_event(change: Change, options: CesOptions) -> Event:
    """What a full-row event of this change says."""
    columns = enumerate(change.table.columns)
    row = change.after or change.before or {}
    return Event(
        commit_lsn(change.txn).replace(":", ""),
        change.seq,
        change.table.full_name,
        {"I": "INS", "U": "UPD", "D": "DEL"}[change.op],
        tuple((one.name, one.sql_type, place) for place, one in columns),
        {name: row[name] or "" for name in change.table.key},
        {} if change.op == "U" and not options.include_old_values else change.before or {},
        change.after or {},
    )


WIRES = [("a", "json"), ("b", "json"), ("c", "json"), ("b", "avro"), ("c", "avro")]


# --- histories -------------------------------------------------------------------------------------------------------


@settings(derandomize=True, deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), rows=st.integers(0, 8), odd=st.booleans())
def test_folding_the_changes_gives_the_final_state(seed: int, rows: int, odd: bool) -> None:
    tables = {"tables": (EVERY_TYPE, KEY_ONLY)} if odd else {}
    history = random_history(seed, 30, rows=rows, **tables)
    shuffled = random.Random(seed).sample(history.changes, len(history.changes))
    folded = fold(shuffled, history.initial)
    assert {name: rows for name, rows in history.final.items() if rows} == {
        n: rows for n, rows in folded.items() if rows
    }


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


def test_positions_inside_a_history_are_unbroken() -> None:
    """Transactions count from 1, changes inside one from 1 across tables (C-46)."""
    changes = random_history(1, 200).changes
    last: tuple[int, int] = (0, 0)
    for change in changes:
        assert (change.txn, change.seq) == ((last[0], last[1] + 1) if change.txn == last[0] else (last[0] + 1, 1))
        last = (change.txn, change.seq)
    assert last[0] == 200


def test_a_column_added_on_the_way_is_null_in_old_rows_without_a_change() -> None:
    """G-07, C-75: only the column list of the next change tells of a new column."""
    column = ColumnDef("channel", "nvarchar(10)")
    history = random_history(3, 60, rows=5, add_column_at={30: ("dbo.orders", column)})
    of_orders = [change for change in history.changes if change.table.name == "orders"]
    assert all(("channel" in (one.after or one.before or {})) == (one.txn >= 30) for one in of_orders)
    assert all((column in one.table.columns) == (one.txn >= 30) for one in of_orders)
    assert {row["channel"] for row in history.final["dbo.orders"].values()} > {None}
    assert fold(history.changes, history.initial) == history.final


def test_a_table_without_key_only_gets_inserts() -> None:
    keyless = TableDef("dbo", "log", (ColumnDef("line", "nvarchar(max)"),), ())
    history = random_history(1, 40, tables=(keyless,), rows=3)
    assert {change.op for change in history.changes} == {"I"}
    assert len(history.final["dbo.log"]) == len(history.changes) + 3
    assert fold(history.changes, history.initial) == history.final


def test_the_fold_refuses_a_history_that_contradicts_itself() -> None:
    history = random_history(2, 20)
    broken = [one for one in history.changes if not (one.op == "I" and one.txn == 1)]
    with pytest.raises(ValueError, match="before image"):
        fold(broken)


def test_the_same_seed_gives_the_same_history_and_bytes_and_another_seed_others() -> None:
    def bytes_of(seed: int) -> list[Message]:
        options, delivery = CesOptions(seed=seed, max_data_bytes=900), Delivery(disorder=9, duplicates=0.1, seed=seed)
        return render(random_history(seed, 20).changes, options, delivery)

    assert bytes_of(1) == bytes_of(1)
    assert [one.body for one in bytes_of(1)] != [one.body for one in bytes_of(2)]


@pytest.mark.parametrize("column", EVERY_TYPE.columns, ids=lambda one: one.sql_type)
def test_every_random_text_is_a_value_of_its_type(column: ColumnDef) -> None:
    kind = random_history(1, 1, tables=(TableDef("s", "t", (column,), ()),), rows=50).final["s.t"]
    for row in kind.values():
        text = row[column.name]
        value = typed(column.sql_type, text)
        if isinstance(value, Decimal) and text is not None:
            assert format(value, "f") == text
        if column.sql_type == "nvarchar(5)" and text is not None:
            assert len(text.encode("utf-16-le")) <= 10
        assert (value is None) == (text is None)


def test_typed_values_cut_the_seventh_digit_and_keep_floats() -> None:
    assert typed("datetime2(7)", "9999-12-31 23:59:59.9999999") == datetime(9999, 12, 31, 23, 59, 59, 999999)
    assert typed("decimal(12,2)", "-0.50") == Decimal("-0.50")
    assert typed("date", "0001-01-01") == date(1, 1, 1)
    assert typed("nvarchar(5)", "") == "" and typed("nvarchar(5)", None) is None
    with pytest.raises(ValueError, match="unknown SQL type"):
        typed("geography", "POINT (0 0)")


def test_real_values_are_the_shortest_text_of_their_four_bytes() -> None:
    rng = random.Random(1)
    texts = [random_text("real", rng) for _ in range(200)]
    assert all(len(text.strip("-").replace(".", "")) <= 10 for text in texts)
    assert len(set(texts)) > 190


# --- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("generation", "encoding"), WIRES)
@pytest.mark.parametrize("base", [0, 1])
@pytest.mark.parametrize("limit", [None, 300])
def test_messages_decode_back_to_the_changes(generation: Any, encoding: Any, base: int, limit: int | None) -> None:
    """C-22, C-30, C-41 to C-46, C-51 to C-54, C-60, C-61: whole rows, in pieces, shuffled and doubled."""
    options = CesOptions(generation, encoding, segment_base=base, max_data_bytes=limit, seed=7)
    changes = random_history(11, 25, tables=(EVERY_TYPE, KEY_ONLY)).changes
    messages = render(changes, options, Delivery(disorder=50, duplicates=0.2, seed=7))
    assert decode((one.body for one in messages), options) == [expected_event(one, options) for one in changes]


@settings(derandomize=True, deadline=None, max_examples=30)
@given(seed=st.integers(0, 1000), wire=st.sampled_from(WIRES), limit=st.integers(40, 4000), shuffle=st.randoms())
def test_arrival_order_and_cuts_do_not_matter(seed: int, wire: Any, limit: int, shuffle: random.Random) -> None:
    """C-51, C-55: every limit and every order gives the same events."""
    options = CesOptions(*wire, max_data_bytes=limit, seed=seed)
    changes = random_history(seed, 3).changes
    bodies = [one.body for one in render(changes, options)]
    shuffle.shuffle(bodies)
    assert decode(bodies, options) == [expected_event(one, options) for one in changes]


@pytest.mark.parametrize(("generation", "encoding"), WIRES)
def test_data_is_cut_at_the_limit(generation: Any, encoding: Any) -> None:
    options = CesOptions(generation, encoding, max_data_bytes=500)
    outer = avro_record("ChangeEvent", *OUTER_FIELDS)
    for change in random_history(4, 20).changes:
        pieces = encode(change, options)
        bodies = [avro_read(outer, one.body) if encoding == "avro" else json.loads(one.body) for one in pieces]
        sizes = [len(one["data"] if encoding == "avro" else one["data"].encode()) for one in bodies]
        assert max(sizes) <= 500 and all(size > 496 for size in sizes[:-1])
        assert len({one["logicalid"] for one in bodies}) == 1


def test_an_uncut_event_says_so() -> None:
    """C-51, C-53: final on an unsplit event; generation a counts 0 of 0."""
    change = random_history(1, 1).changes[0]
    (old,), (new,) = encode(change, CesOptions("a")), encode(change, CesOptions("c", segment_base=1))
    assert (json.loads(old.body)["splitindex"], json.loads(old.body)["splittotalcnt"]) == (0, 0)
    assert (json.loads(new.body)["segmentindex"], json.loads(new.body)["finalsegment"]) == (1, True)


def test_old_values_can_be_left_out_of_updates_but_not_of_deletes() -> None:
    """C-71."""
    options = CesOptions(include_old_values=False)
    changes = random_history(6, 80).changes
    events = decode((one.body for one in render(changes, options)), options)
    assert events == [expected_event(one, options) for one in changes]
    assert all(one.old == {} for one in events if one.operation == "UPD")
    assert all(one.old for one in events if one.operation == "DEL")


def test_only_key_and_changed_columns_of_an_update_can_be_sent() -> None:
    """C-44, C-70: the columns carried keep their own index."""
    options = CesOptions(include_all_columns=False)
    changes = random_history(6, 80).changes
    events = decode((one.body for one in render(changes, options)), options)
    partial = 0
    for change, event in zip(changes, events, strict=True):
        whole = expected_event(change, options)
        if change.op != "U":
            assert event == whole
            continue
        before, after = change.before or {}, change.after or {}
        names = [n for n in after if n in change.table.key or before[n] != after[n]]
        assert event.columns == tuple(one for one in whole.columns if one[0] in names)
        assert event.current == {n: after[n] for n in names} and event.old == {n: before[n] for n in names}
        partial += len(names) < len(after)
    assert partial > 20


def test_commit_lsns_rise_as_numbers_and_as_text() -> None:
    """C-32: also where the block wraps into the next log file."""
    for start in (0, 0x8000 - 50, 0x10000 - 50):
        texts = [commit_lsn(txn) for txn in range(start, start + 100)]
        assert texts == sorted(set(texts))
        assert all(len(part) == size for text in texts for part, size in zip(text.split(":"), (8, 8, 4), strict=True))


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


# --- delivery --------------------------------------------------------------------------------------------------------


def places(messages: Sequence[Message]) -> dict[int, list[int]]:
    result: dict[int, list[int]] = {}
    for message in messages:
        result.setdefault(message.partition, []).append(message.offset)
    return result


@settings(derandomize=True, deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 1000),
    partitions=st.integers(1, 5),
    scheme=st.sampled_from(["round_robin", "table", "key"]),
    disorder=st.integers(0, 30),
)
def test_offsets_are_unbroken_in_each_partition(seed: int, partitions: int, scheme: Any, disorder: int) -> None:
    """C-93."""
    delivery = Delivery(partitions, scheme, disorder, 0.1, seed)
    messages = render(random_history(seed, 15).changes, None, delivery)
    assert all(offsets == list(range(len(offsets))) for offsets in places(messages).values())
    assert [one.enqueued for one in messages] == sorted(one.enqueued for one in messages)


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


@pytest.mark.parametrize("scheme", ["table", "key"])
def test_keyed_schemes_keep_each_partition_in_order(scheme: Any) -> None:
    """C-87: one key, one partition; there the order of sending holds even when partitions overtake each other."""
    messages = render(random_history(1, 100).changes, CesOptions(), Delivery(4, scheme, disorder=40))
    partition_of: dict[bytes | None, int] = {}
    last: dict[int, str] = {}
    out_of_order, newest = 0, ""
    for message in messages:
        assert partition_of.setdefault(message.key, message.partition) == message.partition
        position = json.loads(message.body)["logicalid"]
        assert position > last.get(message.partition, "")
        last[message.partition] = position
        out_of_order += position < newest
        newest = max(newest, position)
    assert len(last) > 1 and out_of_order > 10


def test_duplicates_are_the_same_bytes_again() -> None:
    """C-85."""
    changes = random_history(1, 200).changes
    counts = Counter(one.body for one in render(changes, None, Delivery(duplicates=0.1)))
    twice = sum(number == 2 for number in counts.values())
    assert max(counts.values()) == 2 and 0.05 * len(changes) < twice < 0.15 * len(changes)


# --- files -----------------------------------------------------------------------------------------------------------


def read_capture(folder: Path) -> dict[int, list[dict[str, Any]]]:
    """The records of each partition, in the order of the files' windows."""
    records: dict[int, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("*/*/*/*/*/*/*/*/*.avro")):
        with path.open("rb") as file:
            records.setdefault(int(path.relative_to(folder).parts[2]), []).extend(fastavro.reader(file))
    return records


@pytest.mark.parametrize("codec", ["deflate", "null"])
def test_capture_files_hold_the_messages_by_partition_and_window(tmp_path: Path, codec: Any) -> None:
    """C-93: path, record, unbroken sequence numbers, an empty file where nothing came."""
    messages = render(random_history(1, 60).changes, None, Delivery(2, disorder=5))
    late = (datetime(2026, 3, 1, 13, 7, 0, tzinfo=UTC)).isoformat()
    messages.append(Message(0, len(places(messages)[0]), b"last", b"k", late))
    shape = {"partitions": 2, "window": timedelta(days=10), "codec": codec, "namespace": "n", "hub": "h"}
    files = dict(capture_files(messages, **shape))
    assert files == dict(capture_files(messages, **shape))
    write_files(tmp_path, files.items())
    written = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert written == set(files), "nothing but the files themselves is left"
    starts = sorted({path[len("n/h/0/") :] for path in written})
    assert written == {f"n/h/{partition}/{start}" for partition in (0, 1) for start in starts}
    assert starts[0] == "2025/12/28/00/00/00.avro" and len(starts) == 8, "one window more than the last event needs"
    for partition, records in read_capture(tmp_path).items():
        mine = [one for one in messages if one.partition == partition]
        assert [one["SequenceNumber"] for one in records] == [one.offset for one in mine] == list(range(len(mine)))
        assert [one["Body"] for one in records] == [one.body for one in mine]
    assert records_of(files, "Body", [b"last"])["EnqueuedTimeUtc"] == "3/1/2026 1:07:00 PM"
    assert any(not list(fastavro.reader(io.BytesIO(content))) for content in files.values())


def records_of(files: dict[str, bytes], field: str, values: list[Any]) -> Any:
    return next(
        one for content in files.values() for one in fastavro.reader(io.BytesIO(content)) if one[field] in values
    )


def test_a_capture_file_has_the_schema_of_event_hubs(shared_data: Path) -> None:
    real = next((shared_data / "ces" / "capture-gen-c").rglob("*.avro"))
    (_, content), *_ = capture_files(render(random_history(1, 3).changes))
    with real.open("rb") as file:
        assert fastavro.reader(io.BytesIO(content)).writer_schema == fastavro.reader(file).writer_schema


@pytest.mark.parametrize("wire", WIRES, ids="-".join)
def test_wrapped_lines_carry_every_message_unharmed(wire: Any) -> None:
    messages = render(random_history(2, 20).changes, CesOptions(*wire), Delivery(scheme="key"))
    content = json_lines(messages, topic="t", layout="wrapped")
    assert gzip.decompress(compressed(content)) == content and compressed(content) == compressed(content)
    read = []
    for line in content.split(b"\n")[:-1]:
        fields = json.loads(line)
        assert list(fields)[:5] == ["topic", "partition", "offset", "timestamp", "key"] and fields["headers"] == []
        value = fields["value"].encode() if fields["encoding"] == "utf8" else base64.b64decode(fields["value"])
        key = fields["key"] and base64.b64decode(fields["key"])
        read.append(Message(fields["partition"], fields["offset"], value, key, fields["timestamp"]))
    assert read == messages


def test_bare_lines_are_the_bodies() -> None:
    messages = render(random_history(2, 20).changes, CesOptions("a"))
    assert json_lines(messages, layout="bare").split(b"\n")[:-1] == [one.body for one in messages]
    with pytest.raises(ValueError, match="not one line of JSON"):
        json_lines(render(random_history(2, 1).changes, CesOptions("c", "avro")), layout="bare")


# --- the source ------------------------------------------------------------------------------------------------------

State = dict[str, dict[tuple[str, ...], dict[str, str | None]]]


def state_of(path: Path) -> State:
    """The rows in the SQLite file, read without the generator."""
    result: State = {}
    with sqlite3.connect(path) as db:
        names = [name for (name,) in db.execute('SELECT DISTINCT "table" FROM _columns')]
        for name in names:
            columns = db.execute('SELECT name, key_position FROM _columns WHERE "table" = ? ORDER BY ordinal', (name,))
            described = columns.fetchall()
            key = [column for column, place in sorted(described, key=lambda one: one[1]) if place]
            rows = [
                dict(zip([one for one, _ in described], row, strict=True))
                for row in db.execute(f'SELECT * FROM "{name}"')
            ]
            result[name] = {tuple(str(row[one]) for one in key): row for row in rows}
    return result


def applied(state: State, events: Iterable[Event]) -> State:
    """Apply events in log order; a key leaves only with the row that its before image shows (G-03)."""
    for event in events:
        rows = state[event.table]
        if event.old:
            key = tuple(event.old[name] or "" for name in event.key)
            if rows.get(key) == event.old:
                del rows[key]
        if event.current:
            rows[tuple(event.current[name] or "" for name in event.key)] = event.current
    return state


def bodies(records: dict[int, list[dict[str, Any]]]) -> list[bytes]:
    return [one["Body"] for partition in records.values() for one in partition]


@pytest.mark.parametrize("wire", WIRES, ids="-".join)
def test_three_runs_show_every_table_everything(tmp_path: Path, wire: Any) -> None:
    """Each run has all kinds; after three, each table had late, split and doubled events; nothing stays behind."""
    path, capture = tmp_path / "source.db", tmp_path / "capture"
    source = Source.create(path, seed=3, rows=20)
    before = state_of(path)
    seen: list[set[str]] = []
    for number in range(3):
        source.run(CaptureShipping(capture, wire[1], wire[0]), transactions=6, hold_back=number < 2)
        seen.append({_logical(body, wire[1]) for body in bodies(read_capture(capture))})
        report = source.report()
        assert (report["withheld"] > 0) == (number < 2)
        for counts in report["tables"].values():
            assert min(counts["inserts"], counts["updates"], counts["deletes"], counts["key_changes"]) > number
            assert counts["split_events"] > number and counts["duplicates"] > number
            assert counts["late_events"] >= number
    records = read_capture(capture)
    assert all([one["SequenceNumber"] for one in its] == list(range(len(its))) for its in records.values())
    events = decode(bodies(records), CesOptions(*wire))
    assert applied(before, events) == state_of(path), "what was delivered leads to what the database holds"

    totals = Counter((one.table, one.operation) for one in events)
    repeats = len(bodies(records)) - len(set(bodies(records)))
    assert repeats == sum(counts["duplicates"] for counts in report["tables"].values())
    for table, counts in report["tables"].items():
        assert set(counts) == {"rows", *COUNTS} and counts["rows"] == len(state_of(path)[table])
        assert (counts["inserts"], counts["updates"], counts["deletes"]) == tuple(
            totals[table, operation] for operation in ("INS", "UPD", "DEL")
        )
    newest_of_first_run = max(one.split(":")[1] for one in seen[0])
    came_late = [one for one in seen[1] - seen[0] if one.split(":")[1] <= newest_of_first_run]
    assert came_late, "whole events of the first run come with the second"


def _logical(body: bytes, encoding: str) -> str:
    outer = avro_record("ChangeEvent", *OUTER_FIELDS)
    return str((avro_read(outer, body) if encoding == "avro" else json.loads(body))["logicalid"])


def test_single_pieces_of_split_events_come_a_run_later(tmp_path: Path) -> None:
    """C-55: for every table an event begins in one run and is completed in the next."""
    source = Source.create(tmp_path / "s.db", seed=1, rows=10)

    def open_events() -> set[str]:
        pieces: dict[str, set[int]] = {}
        ends: dict[str, int] = {}
        for body in bodies(read_capture(tmp_path / "capture")):
            envelope = json.loads(body)
            pieces.setdefault(envelope["logicalid"], set()).add(envelope["segmentindex"])
            if envelope["finalsegment"]:
                ends[envelope["logicalid"]] = envelope["segmentindex"]
        return {one for one, its in pieces.items() if one not in ends or len(its) <= ends[one]}

    source.run(CaptureShipping(tmp_path / "capture"), transactions=4, hold_back=True)
    begun = {one.partition(":")[2] for one in open_events()}
    source.run(CaptureShipping(tmp_path / "capture"), transactions=0)
    assert open_events() == set()
    events = decode(bodies(read_capture(tmp_path / "capture")), CesOptions())
    assert {one.table for one in events if f"{one.lsn}:{one.sequence:020d}" in begun} == set(source.report()["tables"])


def test_late_events_are_older_than_delivered_events_of_their_row(tmp_path: Path) -> None:
    """G-05: lateness that changes nothing would prove nothing."""
    source = Source.create(tmp_path / "s.db", seed=2, rows=5)
    source.run(CaptureShipping(tmp_path / "capture"), transactions=30, hold_back=True)
    first = set(bodies(read_capture(tmp_path / "capture")))
    source.run(CaptureShipping(tmp_path / "capture"), transactions=0)
    options = CesOptions()
    every = decode(bodies(read_capture(tmp_path / "capture")), options)
    on_time = {_logical(body, "json") for body in first}
    arrived = [one for one in every if any(f":{one.lsn}:{one.sequence:020d}" in logical for logical in on_time)]
    missing = [one for one in every if one not in arrived]
    overtaken = {
        late.table
        for late in missing
        for other in arrived
        if other.table == late.table
        and other.key == late.key
        and (other.lsn, other.sequence) > (late.lsn, late.sequence)
    }
    assert overtaken == {"dbo.customers", "dbo.products", "dbo.orders", "dbo.order_lines"}


def test_a_run_lies_in_windows_from_the_moment_it_is_given_and_never_before_the_last_one(tmp_path: Path) -> None:
    """C-93: the sequence numbers of a partition go on, whichever hour a run is for."""
    source, folder = Source.create(tmp_path / "s.db", seed=4, rows=5), tmp_path / "capture"
    hours = [datetime(2026, 2, 1, hour, tzinfo=UTC) for hour in (3, 9, 6)]
    windows: list[set[datetime]] = []
    for since in hours:
        before = set(folder.rglob("*.avro"))
        source.run(CaptureShipping(folder, since=since), transactions=5)
        made = set(folder.rglob("*.avro")) - before
        windows.append({datetime(*map(int, one.with_suffix("").parts[-6:]), tzinfo=UTC) for one in made})
    for since, its in zip(hours[:2], windows[:2], strict=True):
        assert since == min(its) and max(its) < since + timedelta(hours=1)
    assert min(windows[2]) > max(windows[1])
    assert all([one["SequenceNumber"] for one in its] == list(range(len(its))) for its in read_capture(folder).values())


def test_the_same_seed_lives_the_same_life(tmp_path: Path) -> None:
    def life(name: str) -> dict[str, bytes]:
        source = Source.create(tmp_path / name / "s.db", seed=9, rows=10)
        source.run(CaptureShipping(tmp_path / name / "capture"), transactions=10, hold_back=True)
        source.run(CaptureShipping(tmp_path / name / "capture"), transactions=10)
        files = sorted((tmp_path / name / "capture").rglob("*.avro"))
        return {path.relative_to(tmp_path / name).as_posix(): path.read_bytes() for path in files}

    assert life("one") == life("two")


def test_a_run_killed_before_its_files_were_written_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, capture = Source.create(tmp_path / "s.db", seed=4, rows=10), tmp_path / "capture"
    before = state_of(tmp_path / "s.db")
    with monkeypatch.context() as patch:

        def killed(folder: Path, files: Sequence[tuple[str, bytes]]) -> list[Path]:
            if files:
                write_files(folder, files[:2])
                raise KeyboardInterrupt
            return []

        patch.setattr(ces_shipping, "write_files", killed)
        with pytest.raises(KeyboardInterrupt):
            source.run(CaptureShipping(capture), transactions=5)
    assert len(list(capture.rglob("*.avro"))) == 2
    source.run(CaptureShipping(capture), transactions=0)
    records = read_capture(capture)
    assert all([one["SequenceNumber"] for one in its] == list(range(len(its))) for its in records.values())
    assert applied(before, decode(bodies(records), CesOptions())) == state_of(tmp_path / "s.db")


@pytest.mark.parametrize("file_format", ["parquet", "csv"])
def test_an_export_and_the_events_from_its_lsn_on_give_the_state(tmp_path: Path, file_format: Any) -> None:
    """G-08, C-76: rows that no event tells of are in the export; `stream_from` is the first LSN not whole in it."""
    path = tmp_path / "s.db"
    source = Source.create(path, seed=5, rows=120)
    source.run(CaptureShipping(tmp_path / "capture"), transactions=15, hold_back=True)
    manifest = export(source, tmp_path / "export", file_format)
    exported = state_of(path)
    assert json.loads((tmp_path / "export" / "export.json").read_text()) == manifest
    source.run(CaptureShipping(tmp_path / "capture"), transactions=15)
    events = decode(bodies(read_capture(tmp_path / "capture")), CesOptions())
    lsn = manifest["stream_from"].replace(":", "")
    assert any(one.lsn == lsn for one in events) and any(one.lsn < lsn for one in events)
    for table, described in manifest["tables"].items():
        files = [tmp_path / "export" / one for one in described["files"]]
        assert sorted((tmp_path / "export" / table).iterdir()) == files and len(files) > 1
        if file_format == "parquet":
            rows = pa.concat_tables([pq.read_table(one) for one in files]).to_pylist()
            types = {one["name"]: one["sql_type"] for one in described["columns"]}
            wanted = [{n: typed(types[n], text) for n, text in row.items()} for row in exported[table].values()]
            assert sorted(rows, key=repr) == sorted(wanted, key=repr)
        else:
            rows = [row for one in files for row in csv_rows(one.read_bytes().decode())]
            assert sorted(rows, key=repr) == sorted(exported[table].values(), key=repr)
        assert described["rows"] == len(rows)
    assert applied(exported, [one for one in events if one.lsn >= lsn]) == state_of(path)


def csv_rows(text: str) -> list[dict[str, str | None]]:
    """Quoted is text, unquoted and empty is NULL; a quote inside is doubled."""
    rows: list[list[str | None]] = [[]]
    place = 0
    while place < len(text):
        value: str | None = None
        if text[place] == '"':
            end = place + 1
            while text[end] != '"' or text[end : end + 2] == '""':
                end += 2 if text[end] == '"' else 1
            value, place = text[place + 1 : end].replace('""', '"'), end + 1
        rows[-1].append(value)
        if text[place] == "\n":
            rows.append([])
        else:
            assert text[place] == ","
        place += 1
    names = [str(one) for one in rows[0]]
    return [dict(zip(names, row, strict=True)) for row in rows[1:-1]]


def test_an_export_has_the_arrow_types_of_the_source(tmp_path: Path) -> None:
    export(Source.create(tmp_path / "s.db", seed=1, rows=3), tmp_path / "out", "parquet")
    schemas = {path.parent.name: pq.read_schema(path) for path in (tmp_path / "out").rglob("*.parquet")}
    assert schemas["dbo.customers"].types == [
        *(pa.int32(), pa.string(), pa.string(), pa.decimal128(12, 2), pa.bool_(), pa.timestamp("us"), pa.string()),
    ]
    assert schemas["dbo.products"].types == [
        *(pa.string(), pa.string(), pa.decimal128(18, 4), pa.float64(), pa.date32()),
    ]
    assert schemas["dbo.orders"].types == [pa.int64(), pa.int32(), pa.string(), pa.string(), pa.timestamp("us")]
    assert schemas["dbo.order_lines"].types[:2] == [pa.int64(), pa.int16()]


def test_commands_refuse_what_would_spoil_something(tmp_path: Path) -> None:
    source = Source.create(tmp_path / "s.db", seed=1, rows=1)
    with pytest.raises(SourceError, match="exists"):
        Source.create(tmp_path / "s.db", seed=1, rows=1)
    with pytest.raises(SourceError, match="no such state file"):
        Source(tmp_path / "other.db")
    export(source, tmp_path / "out", "csv")
    with pytest.raises(SourceError, match="not empty"):
        export(source, tmp_path / "out", "csv")
    state = state_of(tmp_path / "s.db")
    with pytest.raises(ValueError, match="JSON only"):
        source.run(CaptureShipping(tmp_path / "capture", "avro", "a"))
    assert state_of(tmp_path / "s.db") == state and source.report()["runs"] == 0


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
