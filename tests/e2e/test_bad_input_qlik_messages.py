"""Bad messages of Qlik tasks, in one batch with good ones: a dead letter, a wait, or the stop of its own table.

Every case is asserted by code, coordinates, raw bytes and way out. Another table of the same batch ends exactly equal,
what only came late heals without loss, and the counts add up (G-06, I1).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from open_mirroring.codes import next_step_of
from open_mirroring.errors import TerminalError
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.decisions import resume_table
from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests import ces_messages
from tests.bad_input import listed_next_steps, settled, stopped, stops
from tests.e2e.test_bad_input import wrapped
from tests.kafka_broker import KafkaBroker
from tests.pipeline import Pipeline, in_order
from tests.qlik_messages import ROW, avro_dt, avro_enveloped, avro_md, avro_schema, change, datum, dt, enveloped, md

TABLES = ("clean", "orders", "mapped", "late", "avro_late", "again", "never", "null_key", "two_keys", "unread", "cut",
          "custom", "untold")  # fmt: skip
ID = {table: f"{number:032X}" for number, table in enumerate(TABLES, 1)}
LANDED = {"id": 7, "name": "Ada", "price": Decimal("1.50"), "note": "x"}


def of(table: str, /, *args: Any, **parts: Any) -> bytes:
    """A change of a table, which only its schema tells."""
    return dt(*args, schema_id=ID[table], **parts)


def row(key: int | None, name: str = "Ada", **replaced: Any) -> dict[str, Any]:
    return {**ROW, "id": key, "name": name, **replaced}


def landed(key: int, name: str = "Ada") -> dict[str, Any]:
    return {**LANDED, "id": key, "name": name}


class Bad(NamedTuple):
    """A message that becomes a dead letter; *table* and *key* where the message still tells them."""

    name: str
    body: bytes | None
    code: str
    words: str
    table: str | None = None
    key: str | None = None


ORDERS_9: tuple[str, str] = ("dbo.orders", '["9"]')
# One for each way through the log: each kind is in the tests of the decoder.
BAD = [
    Bad("tombstone", None, "BODY_MISSING", "no body"),
    Bad("noise", b"\xde\xad\xbe\xef", "MESSAGE_INVALID", "begins with"),
    Bad("an event of another product", ces_messages.event(), "MESSAGE_INVALID", "the message has no beforeData"),
    Bad("metadata without columns", md([], table=""), "METADATA_MISSING", "0 columns"),
    Bad("avro envelope cut", avro_dt()[:-3], "MESSAGE_INVALID", "envelope"),
    Bad("names another table than its schema", of("orders", "INSERT", row(9), schema="dbo", table="clean"),
        "TABLE_NAME_DIFFERS", "'dbo.clean'"),
    Bad("no headers", enveloped("DT", {"data": row(9)}, ID["orders"]), "HEADER_INVALID", "headers", *ORDERS_9),
    Bad("mask against the row", of("orders", "INSERT", row(9), columnMask="05"), "MASK_INVALID", "'name'",
        *ORDERS_9),
    Bad("unknown column", of("orders", "INSERT", {**row(9), "more": 1}), "ROW_INVALID", "'more'", *ORDERS_9),
]  # fmt: skip


class Stopped(NamedTuple):
    """A table that stops alone; the last of its messages is the bad one, a dead letter of *letter* if it is one."""

    table: str
    bodies: list[bytes]
    code: str
    words: str
    letter: str | None = None


AVRO_FIELDS = avro_schema(table="unread")
HEADERS = {"headers": change()["headers"]}
STOPS = [
    Stopped("null_key", [of("null_key", "INSERT", row(None))], "KEY_UNKNOWN", "'id'", "KEY_INVALID"),
    Stopped("untold", [of("untold", "UPDATE", row(7))], "KEY_UNKNOWN", "neither changeMask nor beforeData",
            "OLD_KEY_MISSING"),
    # An update that cannot be read, but surely moves a key: two rows are out of date, not one.
    Stopped("two_keys", [of("two_keys", "INSERT", row(1)),
                         of("two_keys", "UPDATE", row(2), row(1), number=2, columnMask="FF")],
            "KEY_UNKNOWN", "beyond the 4", "MASK_INVALID"),
    Stopped("unread", [avro_md(AVRO_FIELDS, schema_id=ID["unread"], table="unread"),
                       avro_enveloped("DT", datum(AVRO_FIELDS, change()) + b"\0", ID["unread"])],
            "CHANGES_MISSING", "1 bytes", "MESSAGE_INVALID"),
    Stopped("cut", [of("cut", "INSERT", row(1)), of("cut", "UPDATE", row(1), number=2)[:-9]],
            "CHANGES_MISSING", "MESSAGE_INVALID", "MESSAGE_INVALID"),
    Stopped("custom", [enveloped("DT", {"row": row(1), "beforeData": None, **HEADERS}, ID["custom"])],
            "CHANGES_MISSING", "Message Format", "MESSAGE_INVALID"),
]  # fmt: skip


class Story(NamedTuple):
    """The batch with everything in it, extracted, published and applied."""

    pipeline: Pipeline
    kafka: KafkaBroker
    topic: str
    counts: Mapping[str, int]
    sent: dict[str, list[bytes | None]]

    def place(self, body: bytes | None, partition: str = "0") -> tuple[str, int]:
        """The coordinates of a message."""
        return f"{self.topic}/{partition}", self.sent[partition].index(body)

    def produce(self, *bodies: bytes | None, partition: int = 0) -> None:
        self.kafka.publish(self.topic, [(partition, None, body) for body in bodies])
        self.sent[str(partition)] += bodies


REGISTRY = b"\x00\x00\x00\x00\x63" + datum(AVRO_FIELDS, change())
LATE = [of("late", "INSERT", row(1), number=1), of("late", "UPDATE", row(1, "second"), number=2)]
AVRO_LATE = avro_schema(table="avro_late")
AVRO_EARLY = avro_dt("INSERT", row(1, "old"), schema=AVRO_LATE, schema_id=ID["avro_late"], number=1)
# A row of a load has the position of its offset (K-18), which a row in another partition has, too.
LOADED, AGAIN = of("clean", "REFRESH", row(3)), of("again", "REFRESH", row(1))
NEVER = of("never", "INSERT", row(1), number=1, schema="dbo", table="never")
WAITING = [*LATE, AVRO_EARLY, NEVER, REGISTRY]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory, spark: Any, kafka: KafkaBroker) -> Iterator[Story]:
    name = uuid4().hex[:8]
    topic, mapped = f"bad-{name}", f"mapped-{name}"
    kafka.create_topic(topic, 2)
    kafka.create_topic(mapped, 1)
    tables: list[dict[str, Any]] = [
        # Most of its updates have neither mask nor the row before: their keys are promised to stay (K-60).
        {"source": f"dbo.{table}", "target": f"dbo/{table}", "key": ["id"], "keys_never_change": table != "untold"}
        for table in TABLES
    ]
    tables[TABLES.index("mapped")]["topic"] = mapped
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AIRFLOW_CONN_BROKER", kafka.connection())
        pipeline = Pipeline(
            tmp_path_factory.mktemp("bad"),
            spark,
            tables,
            source={"format": "qlik-message", "transport": "kafka", "connection": "broker",
                    "topics": [topic, mapped], "path": "", "layout": None},
        )  # fmt: skip
        waits = ("late", "avro_late", "again", "never", "mapped", "unread")
        bodies: list[bytes | None] = [LOADED]
        bodies += [md(schema_id=ID[t], table=t) for t in TABLES if t not in waits]
        bodies += [of("clean", "INSERT", row(1)), of("orders", "INSERT", row(9))]
        for at, bad in enumerate(BAD, 2):
            bodies += [bad.body, of("clean", "UPDATE", row(1, f"n{at}"), number=at)]
        bodies += [body for stop in STOPS for body in stop.bodies]
        bodies += [of("orders", "INSERT", row(10, "old"), number=50), of("orders", "UPDATE", UNTYPABLE, number=51)]
        bodies += [*WAITING, of("clean", "INSERT", row(2), number=60)]
        state = Story(pipeline, kafka, topic, {}, {"0": [], "1": [], "mapped": []})
        state.produce(*bodies)
        state.produce(AGAIN, partition=1)
        state.sent["mapped"] += [
            md(schema_id=ID["mapped"], table="mapped"),
            of("mapped", "INSERT", row(1)),
            of("orders", "INSERT", row(9, "astray"), number=70),
            md(schema_id=ID["clean"], table="clean", version=2),
        ]
        state.sent["mapped"].append(None)
        kafka.publish(mapped, [(0, b"key", body) for body in state.sent["mapped"]])
        extracted, _ = pipeline.tick()
        yield state._replace(counts=extracted.counts)


UNTYPABLE = row(10, price="cheap")


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_an_unreadable_message_is_one_dead_letter(bad: Bad, story: Story) -> None:
    """G-06, K-01, K-16, K-20, K-23: code, coordinates, reason, the bytes as they came, and a way out."""
    origin, place = story.place(bad.body)
    found = [x for x in story.pipeline.letters() if (x["origin"], x["place"]) == (origin, place)]
    assert [(x["code"], x["tbl"], x["key"], x["raw"]) for x in found] == [(bad.code, bad.table, bad.key, bad.body)]
    assert bad.words in found[0]["reason"]
    assert listed_next_steps(story.pipeline)[origin, place] == next_step_of(bad.code)


def test_records_in_the_wrong_topic_belong_to_no_table(story: Story) -> None:
    """K-15, K-43: a topic that holds one table holds no other, changes and metadata alike."""
    origin = f"{story.topic.replace('bad', 'mapped')}/0"
    found = [x for x in story.pipeline.letters() if x["origin"] == origin]
    assert [(x["place"], x["code"], x["tbl"], x["raw"]) for x in found] == [
        (place, "TABLE_NAME_DIFFERS", None, story.sent["mapped"][place]) for place in (2, 3)
    ], "a tombstone with a key is no delete: the message says nothing of a change (K-64)"
    assert all("'dbo.mapped'" in x["reason"] for x in found[:2])
    assert listed_next_steps(story.pipeline)[origin, 2] == next_step_of("TABLE_NAME_DIFFERS")
    assert story.pipeline.mirrored("dbo", "mapped") == [landed(1)]


def test_every_message_has_one_disposition(story: Story) -> None:
    """I1; what tells no table puts the whole mirror at risk."""
    messages = sum(map(len, story.sent.values()))
    settled(story.pipeline, story.counts, messages)
    assert story.counts["rejected"] == len(BAD) + 2 + sum(stop.letter is not None for stop in STOPS)
    assert story.counts["fragments"] == len(WAITING) + 1
    homeless = [x for x in story.pipeline.letters() if x["tbl"] is None]
    assert story.pipeline.reader.mirror().unnamed_rejects == len(homeless) == 2 + sum(b.table is None for b in BAD)


def test_other_tables_of_the_batch_are_exactly_equal(story: Story) -> None:
    """Order is kept around every bad message; a key whose change cannot be read stays as it was (G-06)."""
    mirrored = in_order(story.pipeline.mirrored("dbo", "clean"), ["id"])
    assert mirrored == in_order([landed(1, f"n{len(BAD) + 1}"), landed(2), landed(3)], ["id"])
    assert story.pipeline.numbers("dbo.schema/clean") == [1]
    orders = in_order(story.pipeline.mirrored("dbo", "orders"), ["id"])
    assert orders == in_order([landed(9), landed(10, "old")], ["id"])


def test_a_value_that_does_not_fit_is_a_dead_letter_of_its_change(story: Story) -> None:
    """G-06, K-35: never a NULL."""
    reader = story.pipeline.reader
    (found,) = reader.rejected([reader.tables()["dbo.orders"].id]).popitem()[1]
    origin, place = story.place(of("orders", "UPDATE", UNTYPABLE, number=51))
    assert (found["code"], found["origin"], found["place"], found["key"]) == ("VALUE_INVALID", origin, place, '["10"]')
    assert "column 'price'" in found["reason"]
    assert listed_next_steps(story.pipeline)[origin, place] == next_step_of("VALUE_INVALID")


@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: stop.table)
def test_what_must_stop_a_table_stops_it_alone_and_says_the_next_step(stop: Stopped, story: Story) -> None:
    """K-30, K-31, G-02: what is missing then is not known."""
    stopped(story.pipeline, f"dbo.{stop.table}", stop.code, stop.words, *([stop.letter] if stop.letter else []))
    if stop.letter:
        origin, place = story.place(stop.bodies[-1])
        (found,) = (x for x in story.pipeline.letters() if (x["origin"], x["place"]) == (origin, place))
        expected = (stop.letter, f"dbo.{stop.table}", None, stop.bodies[-1])
        assert (found["code"], found["tbl"], found["key"], found["raw"]) == expected
        assert listed_next_steps(story.pipeline)[origin, place] == next_step_of(stop.letter)


def test_only_those_tables_are_stopped(story: Story) -> None:
    assert stops(story.pipeline) == {f"dbo.{stop.table}" for stop in STOPS}


def test_what_waits_for_metadata_heals_or_becomes_a_dead_letter_in_time(story: Story) -> None:
    """K-05, K-06, K-40: late metadata loses nothing; what never came is reported, and delivered again it is read."""
    pipeline, clean = story.pipeline, of("clean", "UPDATE", row(2, "later"), number=61)
    assert pipeline.open_fragments == 5, "two messages of one structure wait under one name"
    # Metadata comes in another partition, and a newer change of its table with it: the order is that of the source.
    story.produce(md(schema_id=ID["late"], table="late"), partition=1)
    story.produce(of("late", "UPDATE", row(1, "third"), number=3), of("late", "INSERT", row(2), number=4))
    story.produce(avro_dt("UPDATE", row(1, "new"), schema=AVRO_LATE, schema_id=ID["avro_late"], number=2), clean)
    story.produce(avro_md(AVRO_LATE, schema_id=ID["avro_late"], table="avro_late"), partition=1)
    pipeline.tick()
    late = in_order(pipeline.mirrored("dbo", "late"), ["id"])
    assert late == in_order([landed(1, "third"), landed(2)], ["id"])
    assert pipeline.mirrored("dbo", "avro_late") == [landed(1, "new")]
    assert landed(2, "later") in pipeline.mirrored("dbo", "clean")
    assert pipeline.open_fragments == 3

    pipeline.make_overdue()
    story.produce(of("clean", "UPDATE", row(2, "last"), number=62))
    before = {(x["origin"], x["place"]) for x in pipeline.letters()}
    extracted, _ = pipeline.tick()
    assert extracted.counts["expired"] == 3
    found = {(x["origin"], x["place"]): x for x in pipeline.letters() if x["code"] == "METADATA_MISSING"}
    found = {at: letter for at, letter in found.items() if at not in before}
    wanted = {story.place(AGAIN, "1"): (None, AGAIN), story.place(NEVER): ("dbo.never", NEVER)}
    wanted[story.place(REGISTRY)] = (None, REGISTRY)
    assert {at: (x["tbl"], x["raw"]) for at, x in found.items()} == wanted
    assert {listed_next_steps(pipeline)[at] for at in wanted} == {next_step_of("METADATA_MISSING")}
    assert ID["again"] in found[story.place(AGAIN, "1")]["reason"]
    assert pipeline.open_fragments == 0
    assert landed(2, "last") in pipeline.mirrored("dbo", "clean")
    stopped(pipeline, "dbo.never", "CHANGES_MISSING", "METADATA_MISSING", story.topic)

    # The way out: metadata is there, the changes are delivered again, the stop is lifted.
    story.produce(md(schema_id=ID["again"], table="again"), md(schema_id=ID["never"], table="never"), AGAIN, NEVER)
    pipeline.tick()
    resume_table(pipeline.ledger, "test", "dbo.never", Reason("operator", "delivered again"))
    story.produce(of("clean", "UPDATE", row(2, "end"), number=63))
    pipeline.tick()
    assert pipeline.mirrored("dbo", "again") == pipeline.mirrored("dbo", "never") == [landed(1)]
    assert landed(2, "end") in pipeline.mirrored("dbo", "clean")
    with pytest.raises(TerminalError, match="COMMAND_REFUSED"):
        resume_table(pipeline.ledger, "test", "dbo.null_key", Reason("operator", "in vain"))


@pytest.mark.parametrize(
    ("chosen", "code", "rows"), [({}, "ROW_INVALID", 0), ({"types": {"place": "string"}}, "MASK_INVALID", 1)]
)
def test_an_update_with_a_column_of_unknown_type_concerns_its_own_table(
    chosen: Mapping[str, Any], code: str, rows: int, tmp_path: Path, spark: Any
) -> None:
    """G-06, G-110, K-69: of a type that has no values here, the images are compared by their texts."""
    tables = [{"source": f"dbo.{name}", "target": f"dbo/{name}", "key": ["id"]} for name in ("clean", "orders")]
    pipeline = Pipeline(tmp_path, spark, [tables[0], tables[1] | chosen], source={"format": "qlik-message"})
    columns = [("id", "INT4", 10, 0, 0, 1), ("place", "GEOGRAPHY", 0, 0, 0, 0), ("name", "WSTRING", 50, 0, 0, 0)]
    old, new = {"id": 1, "place": "POINT (1 2)", "name": "Ada"}, {"id": 1, "place": "POINT(1 2)", "name": "Eve"}
    announced = [
        md(columns, schema_id=ID["orders"]), of("orders", "INSERT", old),
        of("orders", "UPDATE", new, old, number=2, changeMask="04"),
        md(schema_id=ID["clean"], table="clean"), of("clean", "INSERT", row(1)),
    ]  # fmt: skip
    pipeline.deliver("1.jsonl", wrapped(announced))
    assert main(["tick", str(pipeline.file)]) in (Exit.DONE_WITH_LOSSES, Exit.TABLES_STOPPED)
    pipeline.service.poll()
    assert pipeline.mirrored("dbo", "clean") == [landed(1)]
    letters = [letter for letter in pipeline.letters() if letter["place"] == 2]
    assert [(letter["code"], letter["tbl"]) for letter in letters] == [(code, "dbo.orders")]
    assert len(pipeline.numbers("dbo.schema/orders")) == rows
