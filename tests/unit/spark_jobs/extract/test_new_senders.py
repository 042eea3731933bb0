"""Who sends the changes of a table: the first sender counts, another one stops it (C-12, K-71)."""

from __future__ import annotations

import json

import pytest

from open_mirroring.changes.manifest import SENT_BY
from open_mirroring.facts.senders import senders_in
from spark_jobs.extract.mixed_tables import new_senders, unrelated_senders
from spark_jobs.sources.contract.decoded import SourceSchema
from spark_jobs.sources.qlik.message.structures import registry_schema
from tests.qlik_messages import ORDERS, avro_schema, change, datum, decode, md

A, B = "dbo.a", "dbo.b"


def test_the_first_sender_of_a_table_is_kept_and_another_one_stops_it_c12_k71() -> None:
    first, stops = new_senders([], [(A, "shop"), (B, "shop"), (A, "Shop")])
    assert [(schema.table, schema.schema_id) for schema in first] == [(A, "shop"), (B, "shop")]
    assert stops == {}
    assert new_senders([*first, SourceSchema("t", "1", A, 1, "{}")], [(A, "SHOP")]) == ([], {})
    other, stops = new_senders(first, [(A, "test"), (B, "shop")])
    assert {table: code for table, (code, _) in stops.items()} == {A: "SENDER_OTHER"}
    assert new_senders([*first, *other], [(A, "test"), (A, "shop")])[1] == {}, "it is known by now"
    assert new_senders([], [(A, "shop"), (A, "test")])[1].keys() == {A}


def test_two_tasks_side_by_side_are_reported_from_one_that_took_the_place_of_another_k80() -> None:
    """K-80: their positions have no common order; a task that was made anew sends the tables of the one before."""

    def sent(*senders: tuple[str, str]) -> list[SourceSchema]:
        return [SourceSchema(SENT_BY, name, table, 0, "") for table, name in senders]

    assert unrelated_senders(sent()) == []
    assert unrelated_senders(sent((A, "s/t"), (B, "s/t"))) == ["s/t"]
    assert unrelated_senders(sent((A, "s/t"), (B, "s/u"))) == ["s/t", "s/u"]
    assert unrelated_senders(sent((A, "s/t"), (B, "s/t"), (A, "s/u"), ("dbo.c", "s/u"))) == ["s/t"]
    assert unrelated_senders([SourceSchema("t", "1", A, 1, "{}")]) == []
    assert len(unrelated_senders(sent((A, "s/t"), (B, "?/t")))) == 1, "K-82: they may be one"
    assert unrelated_senders(sent((A, "?/t"), (B, "?/u"))) == ["?/t", "?/u"]


def test_no_stream_fills_the_ledger_with_senders() -> None:
    many, _ = new_senders([], [(A, f"db{number}\0" + "x" * 300) for number in range(50)])
    assert len(many) <= 3 and all(len(s.schema_id) <= 200 and "\0" not in s.schema_id for s in many)


@pytest.mark.parametrize(
    ("lineage", "senders"),
    [
        ({"server": "S", "task": "T"}, {("dbo.orders", "S/T")}),
        ({"server": "S"}, set()),
        ({"server": "S", "task": ""}, set()),
        ({"server": "S", "task": 5}, set()),
    ],
)
def test_a_task_is_reported_by_server_and_task_of_the_lineage_k71(
    lineage: dict[str, object], senders: set[object]
) -> None:
    named = {"schema": "dbo", "table": "orders", "tableVersion": 1, "timestamp": "", **lineage}
    assert set(senders_in(decode(md(lineage=named)).facts)) == senders
    assert not senders_in(decode(md(lineage=named), tables=[ORDERS._replace(source="dbo.cars")]).facts)
    quoted = decode(md(lineage=named), tables=[ORDERS._replace(source="[dbo].[orders]")])
    assert {sender for _, sender in senders_in(quoted.facts)} == {sender for _, sender in senders}
    assert {table for table, _ in senders_in(quoted.facts)} <= {"[dbo].[orders]"}, "as the mirror file names it"


def test_of_two_tasks_behind_a_registry_the_second_stops_the_table_k82() -> None:
    """The namespace of a writer schema names the task; a task that metadata names with its server may be the same."""
    senders = set()
    for number, task in enumerate(("task1", "task1", "task2"), 1):
        schema = avro_schema() | {"namespace": f"com.attunity.queue.msg.{task}.dbo.orders"}
        body = b"\x00" + number.to_bytes(4, "big") + datum(schema, change(number=number))
        known = [registry_schema(number, "dbo.orders", number, json.dumps(schema))]
        decoded = decode(body, schemas=known, tables=[ORDERS._replace(source="[dbo].[orders]")])
        assert decoded.counts.changes == 1
        senders |= set(senders_in(decoded.facts))
    assert senders == {("[dbo].[orders]", "?/task1"), ("[dbo].[orders]", "?/task2")}, "as the mirror file names it"
    assert new_senders([], senders)[1].keys() == {"[dbo].[orders]"}
    assert new_senders([], [("dbo.orders", "?/task1"), ("dbo.orders", "srv/task1")])[1] == {}
