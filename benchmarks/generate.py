"""Generates change events in bulk by SQL, a million in about a minute; the same ones every time.

Five shop tables of 12 columns, messages of generation c of about 2.5 kB, three levels of JSON. 45 % inserts, 45 %
updates with old values, 10 % deletes; 1 % of the events twice, 0.1 % key changes, 5 % of the rows with a slash and 1 %
with a quote in a text, escaped as the source escapes them.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import duckdb
import fastavro

from workload_generator.transports import EVENT_DATA

Layout = Literal["wrapped", "bare", "capture"]

ROOT = Path(__file__).resolve().parents[1] / "build" / "bench"
BASE_EVENTS = 1_000_000
"""More events than this are the same files again, each time with later log positions."""
_LOG = 0x2C
"""The first part of every log position; a repetition has the next one."""
_PART = 125_000
_GUID = "9c8d4ad2-bf54-4f10-a96f-038af496997f"

_TIME = (
    "strftime(timestamp '2026-01-01' + to_seconds({}), '%Y-%m-%d %H:%M:%S') || '.' "
    "|| lpad((i % 10000000)::text, 7, '0')"
)
_TEXT = (
    "'Remark ' || i || CASE WHEN i % 20 = 7 THEN ' and/or more' WHEN i % 100 = 3 THEN ' said \"yes\"' ELSE '' END"
    " || repeat(' so it goes', (i % 23)::int)"
)
# Column name -> SQL type, and the expression of its text over event number i and key k.
TABLES: dict[str, dict[str, tuple[str, str]]] = {
    "customers": {
        "customer_id": ("int", "k::text"),
        "first_name": ("nvarchar(50)", "'Ana' || k % 997"),
        "last_name": ("nvarchar(50)", "'Müller' || k % 9973"),
        "email": ("varchar(100)", "'customer' || k || '@example.com'"),
        "phone": ("varchar(20)", "'+49 30 ' || 100000 + k % 899999"),
        "street": ("nvarchar(100)", "'Hauptstrasse ' || k % 211"),
        "city": ("nvarchar(50)", "'City ' || k % 499"),
        "country": ("char(2)", "'DE'"),
        "credit_limit": ("decimal(12,2)", "(i % 100000) || '.' || lpad((i % 100)::text, 2, '0')"),
        "active": ("bit", "(i % 2)::text"),
        "changed_at": ("datetime2(7)", _TIME.format("i")),
        "note": ("nvarchar(400)", _TEXT),
    },
    "orders": {
        "order_id": ("bigint", "k::text"),
        "customer_id": ("int", "(k % 100000)::text"),
        "status": ("varchar(20)", "CASE i % 3 WHEN 0 THEN 'open' WHEN 1 THEN 'shipped' ELSE 'closed' END"),
        "total": ("decimal(14,2)", "(i % 1000000) || '.' || lpad((k % 100)::text, 2, '0')"),
        "currency": ("char(3)", "'EUR'"),
        "placed_at": ("datetime2(7)", _TIME.format("k")),
        "shipped_at": ("datetime2(7)", f"CASE WHEN i % 4 > 0 THEN {_TIME.format('i')} END"),
        "weight": ("float", "(i % 4096) / 16.0"),
        "ship_to": ("nvarchar(200)", "'Dock ' || k % 77 || ', Pier ' || i % 13"),
        "priority": ("tinyint", "(i % 5)::text"),
        "gift": ("bit", "(k % 2)::text"),
        "remark": ("nvarchar(400)", _TEXT),
    },
    "products": {
        "product_id": ("int", "k::text"),
        "sku": ("varchar(40)", "'SKU-' || lpad(k::text, 12, '0')"),
        "name": ("nvarchar(100)", "'Product ' || k"),
        "category": ("nvarchar(50)", "'Category ' || k % 41"),
        "price": ("decimal(10,4)", "(i % 10000) || '.' || lpad((k % 10000)::text, 4, '0')"),
        "stock": ("int", "(i % 100000)::text"),
        "width": ("real", "(i % 128) / 8.0"),
        "height": ("real", "(k % 128) / 8.0"),
        "discontinued": ("bit", "(i % 2)::text"),
        "introduced": ("date", "strftime(date '2020-01-01' + (k % 2000)::int, '%Y-%m-%d')"),
        "changed_at": ("datetime2(7)", _TIME.format("i")),
        "description": ("nvarchar(400)", _TEXT),
    },
    "payments": {
        "payment_id": ("bigint", "k::text"),
        "order_id": ("bigint", "(k % 300000)::text"),
        "method": ("varchar(20)", "CASE k % 3 WHEN 0 THEN 'card' WHEN 1 THEN 'invoice' ELSE 'transfer' END"),
        "amount": ("decimal(14,2)", "(i % 1000000) || '.' || lpad((k % 100)::text, 2, '0')"),
        "currency": ("char(3)", "'EUR'"),
        "paid_at": ("datetime2(7)", _TIME.format("i")),
        "reference": ("varchar(60)", "md5(i::text)"),
        "bank": ("nvarchar(60)", "CASE WHEN i % 3 > 0 THEN 'Bank ' || k % 99 END"),
        "country": ("char(2)", "'FR'"),
        "confirmed": ("bit", "(i % 2)::text"),
        "fee": ("decimal(8,4)", "'0.' || lpad((i % 10000)::text, 4, '0')"),
        "remark": ("nvarchar(400)", _TEXT),
    },
    "shipments": {
        "shipment_id": ("bigint", "k::text"),
        "order_id": ("bigint", "(k % 300000)::text"),
        "carrier": ("varchar(30)", "CASE i % 3 WHEN 0 THEN 'North' WHEN 1 THEN 'South' ELSE 'East' END"),
        "tracking": ("varchar(60)", "md5(k::text)"),
        "weight": ("float", "(k % 4096) / 32.0"),
        "packed_at": ("datetime2(7)", _TIME.format("k")),
        "sent_at": ("datetime2(7)", f"CASE WHEN i % 4 > 0 THEN {_TIME.format('i')} END"),
        "parcels": ("smallint", "(1 + i % 7)::text"),
        "insured": ("bit", "(k % 2)::text"),
        "value": ("decimal(14,2)", "(i % 1000000) || '.' || lpad((k % 100)::text, 2, '0')"),
        "city": ("nvarchar(60)", "'Zürich ' || k % 499"),
        "remark": ("nvarchar(400)", _TEXT),
    },
}


def table_names(tables: int) -> list[str]:
    """The first *tables* names; beyond five the five come again with a number."""
    names = list(TABLES)
    return [names[n % 5] if n < 5 else f"{names[n % 5]}_{n // 5}" for n in range(tables)]


def key_of(table: str) -> str:
    """The key column of a table."""
    return next(iter(TABLES[table.partition("_")[0]]))


def source_folder(events: int, layout: Layout, tables: int = 5) -> Path:
    """A folder with so many events, made if it is not there yet."""
    base = min(events, BASE_EVENTS)
    folder = ROOT / f"{layout}-{tables}x{base}"
    if not folder.is_dir():
        making = folder.with_suffix(".making")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        _make(making, base, layout, tables)
        making.rename(folder)
    if events == base:
        return folder
    repeated = ROOT / f"{layout}-{tables}x{events}"
    shutil.rmtree(repeated, ignore_errors=True)
    repeated.mkdir()
    for copy in range(-(-events // base)):
        for part in sorted(folder.iterdir()):
            target = repeated / f"{copy:03d}-{part.name}"
            if copy == 0 or layout == "capture":  # whose files are compressed: the same positions come again
                os.link(part, target)
            else:
                target.write_bytes(part.read_bytes().replace(b"%08X" % _LOG, b"%08X" % (_LOG + copy)))
    return repeated


def ces_bodies(events: int, part: int, parts: int, tables: int = 5) -> Iterator[bytes]:
    """The messages of one topic partition out of *parts*, in the order of their numbers; not kept."""
    query = f"SELECT encode(body) FROM ({_bodies(0, events, events, tables)}) WHERE n % {parts} = {part} ORDER BY n"
    with duckdb.connect(config={"threads": 2}) as db:
        cursor = db.execute(query)
        while lines := cursor.fetchmany(10_000):
            yield from (body for (body,) in lines)


def _make(folder: Path, events: int, layout: Layout, tables: int) -> None:
    with duckdb.connect(config={"threads": 2}) as db:
        for part, start in enumerate(range(0, events, _PART)):
            bodies = _bodies(start, min(start + _PART, events), events, tables)
            if layout == "capture":
                _write_capture(folder / f"{part:03d}.avro", db, bodies)
                continue
            line = "body"
            if layout == "wrapped":
                line = (
                    f"""'{{"topic":"cdc","partition":{part},"offset":' || n"""
                    """ || ',"timestamp":"2026-06-16T00:00:00.000Z"'"""
                    """ || ',"key":null,"headers":[],"encoding":"utf8","value":' || to_json(body) || '}'"""
                )
            target = folder / f"{part:03d}.jsonl"
            db.execute(
                f"COPY (SELECT {line} FROM ({bodies}) ORDER BY n) TO '{target}' "
                "(FORMAT csv, HEADER false, QUOTE '', ESCAPE '', DELIMITER '\x01')"
            )


def _write_capture(path: Path, db: duckdb.DuckDBPyConnection, bodies: str) -> None:
    def records() -> Iterator[dict[str, object]]:
        cursor = db.execute(f"SELECT n, encode(body) FROM ({bodies}) ORDER BY n")
        while lines := cursor.fetchmany(10_000):
            for number, body in lines:
                yield {
                    "SequenceNumber": number,
                    "Offset": str(number),
                    "EnqueuedTimeUtc": "6/16/2026 12:00:00 AM",
                    "SystemProperties": {},
                    "Properties": {},
                    "Body": body,
                }

    with path.open("wb") as file:
        fastavro.writer(file, EVENT_DATA, records(), codec="deflate")


def _bodies(start: int, end: int, events: int, tables: int) -> str:
    """A query of the messages with numbers *start* to *end*: ``n``, ``body``."""
    keys = max(1, events // 3 // tables)
    # Every hundredth message is the one before it again.
    base = f"""
        SELECT n, CASE WHEN n % 100 = 99 THEN n - 1 ELSE n END AS i FROM range({start}, {end}) AS numbers(n)"""
    chosen = f"""
        SELECT n, i, i % {tables} AS t, hash(i) % {keys} AS k,
               CASE WHEN hash(i + 1) % 20 < 9 THEN 'INS' WHEN hash(i + 1) % 20 < 18 THEN 'UPD' ELSE 'DEL' END AS op,
               upper(lpad(to_hex(1000 + i // 10), 8, '0')) AS lsn, 1 + i % 10 AS seq
        FROM ({base})"""
    cases_cols, cases_key, cases_row, cases_old = [], [], [], []
    for number, name in enumerate(table_names(tables)):
        columns = TABLES[name.partition("_")[0]]
        cols = ",".join(
            f'{{"name":"{column}","type":"{kind}","index":{index}}}'
            for index, (column, (kind, _)) in enumerate(columns.items())
        )
        cases_cols.append(f"""WHEN {number} THEN '"tbl":"{name}","cols":[{cols}]'""")
        key = key_of(name)
        cases_key.append(f"WHEN {number} THEN '{key}'")
        pairs = ", ".join(f"{column} := ({text})::text" for column, (_, text) in columns.items())
        row = f"replace(to_json(struct_pack({pairs}))::text, '/', '\\/')"
        cases_row.append(f"WHEN {number} THEN {row}")
        cases_old.append(f"WHEN {number} THEN {row.replace('i % ', '(i + 1) % ')}")
    images = f"""
        SELECT *, CASE t {" ".join(cases_cols)} END AS cols, CASE t {" ".join(cases_key)} END AS key,
               CASE WHEN op = 'DEL' THEN '{{}}' ELSE CASE t {" ".join(cases_row)} END END AS after,
               CASE WHEN op = 'INS' THEN '{{}}' ELSE CASE t {" ".join(cases_old)} END END AS old
        FROM ({chosen})"""
    changed = f"""
        SELECT * REPLACE (CASE WHEN op = 'UPD' AND hash(i + 2) % 450 = 10
            THEN replace(old, '"' || key || '":"' || k || '"', '"' || key || '":"' || {keys} + k || '"')
            ELSE old END AS old) FROM ({images})"""
    data = f"""
        SELECT *, '{{"eventsource":{{"db":"shop","schema":"dbo",' || cols || ',"pkkey":[{{"columnname":"' || key
            || '","value":"' || k || '"}}],"transaction":{{"commitlsn":"0000002C:' || lsn
            || ':0001","beginlsn":"0000002C:00000001:0001","sequencenumber":' || seq
            || ',"finalevent":false,"committime":"2026-06-16T00:00:00.000Z"}}}},"eventrow":{{"old":'
            || to_json(old) || ',"current":' || to_json(after) || '}}}}' AS data FROM ({changed})"""
    return f"""
        SELECT n, '{{"specversion":"1.0","type":"com.microsoft.SQL.CES.DML.V1","source":"\\/","id":"' || uuid5(n)
            || '","logicalid":"{_GUID}:0000002C' || lsn || '0001:' || lpad(seq::text, 20, '0')
            || '","time":"2026-06-16T00:00:00.000Z","datacontenttype":"application\\/json","operation":"' || op
            || '","segmentindex":0,"finalsegment":true,"data":' || to_json(data) || '}}' AS body
        FROM ({data})""".replace("uuid5(n)", "md5(n::text)::uuid::text")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("events", type=int)
    parser.add_argument("--layout", choices=("wrapped", "bare", "capture"), default="wrapped")
    parser.add_argument("--tables", type=int, default=5)
    arguments = parser.parse_args()
    print(source_folder(arguments.events, arguments.layout, arguments.tables))
