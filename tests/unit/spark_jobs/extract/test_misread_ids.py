"""Which ids a topic used for one table, and announced for another one later (K-85)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from spark_jobs.changelog.schema import RawMessage
from spark_jobs.extract.mixed_tables import misread, stops_of_shared
from spark_jobs.sources.contract.decoded import USED, SourceSchema
from tests.qlik_messages import ID, ORDERS, avro_dt, avro_md, decode, decoder, dt, md

CARS = ORDERS._replace(source="dbo.cars")
NOTES = [SourceSchema("cdc", ID, "dbo.orders", 0, USED)]
ELSEWHERE = decode(md(), topic="meta").schemas


def used(*bodies: bytes, schemas: Sequence[SourceSchema] = ELSEWHERE, **settings: Any) -> list[SourceSchema]:
    found = decode(*bodies, schemas=schemas, **settings).schemas
    return [schema for schema in found if schema.document == USED]


def test_an_id_that_another_topic_announced_is_noted_where_nothing_else_shows_the_table_k85() -> None:
    assert used(dt(), dt(number=2)) == NOTES
    assert used(avro_dt(), schemas=decode(avro_md(), topic="meta").schemas) == NOTES
    assert used(dt(), tables=[CARS]) == NOTES, "whose it is counts where nobody mirrors it, too: another may lack it"
    assert used(dt(), topics={"cdc": "dbo.orders"}) == used(dt(members={"schema": "dbo", "table": "orders"})) == []
    assert used(dt(), schemas=decode(md()).schemas) == used(md(), dt()) == used(dt(), topic="meta") == []
    assert used(dt(), schemas=[*ELSEWHERE, *NOTES]) == NOTES, "a note is no structure"
    bare = RawMessage("folder/file.jsonl", 0, dt())
    assert decoder(schemas=ELSEWHERE).decode([bare]).schemas == [], "a file of bare lines tells no topic"


def test_what_the_topic_announces_then_shows_whose_its_messages_were_k85() -> None:
    own, other = decode(md()).schemas, decode(md(table="cars")).schemas
    assert misread(NOTES, own) == misread(NOTES, ELSEWHERE) == misread(own, other) == set()
    assert misread(NOTES, decode(md(table="cars"), topic="third").schemas) == set(), "an id is one of its topic"
    found = misread(NOTES, [*own, *other])
    assert found == {(NOTES[0], "dbo.cars")}
    assert found - misread([*NOTES, *other], [*other, *decode(md(table="cars", version=2)).schemas]) == set()
    quoted = {"dbo.orders": ORDERS._replace(source="[dbo].[orders]"), "dbo.cars": CARS}
    stops = stops_of_shared(found, quoted)
    codes = {table: code for table, (code, _) in stops.items()}
    assert codes == dict.fromkeys(("[dbo].[orders]", "dbo.cars"), "SCHEMA_SHARED"), "as the mirror file names them"
    assert stops_of_shared(found, {"dbo.cars": CARS}).keys() == {"dbo.cars"}, "nobody mirrors the other one"


@pytest.mark.parametrize(("announcement", "data"), [(md(table="cars"), dt()), (avro_md(table="cars"), avro_dt())])
def test_the_topics_own_announcement_goes_before_others_k10_k85(announcement: bytes, data: bytes) -> None:
    decoded = decode(announcement, data, schemas=ELSEWHERE, tables=[ORDERS, CARS])
    assert [row.tbl for row in decoded.rows] == ["dbo.cars"] and USED not in {one.document for one in decoded.schemas}
