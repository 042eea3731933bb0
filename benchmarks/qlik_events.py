"""Generates changes of the shop tables as Qlik sends them, in bulk by SQL; always the same ones, kept in build/bench.

The same tables and the same mix as :mod:`benchmarks.generate`: 45 % inserts, 45 % updates with the old row, 10 %
deletes; 0.1 % key changes, 1 % of the changes twice. Ten changes are a transaction.
"""

from __future__ import annotations

import heapq
import io
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import duckdb
import fastavro

from benchmarks.generate import ROOT, TABLES, key_of
from workload_generator.qlik_messages import QlikMessageOptions, announcement, avro_value
from workload_generator.qlik_schemas import ENVELOPE, QlikType, parsed_data_schema, qlik_type, schema_id
from workload_generator.tables import ColumnDef, TableDef

Encoding = Literal["json", "avro"]
PARTS = 4
"""Messages and rows come in so many parts: files, topic partitions, closed partitions."""
TASK = "task1"
# Places of the header columns that masks of change tables count, by target.
HEADERS = ("change_seq", "change_oper", "change_mask", "stream_position", "operation", "transaction_id", "timestamp")
PARTITION = "partition_name"

_JSON_TYPES = {"INT1": "BIGINT", "UINT1": "BIGINT", "INT2": "BIGINT", "INT4": "BIGINT", "INT8": "BIGINT"}
_JSON_TYPES |= {"REAL4": "DOUBLE", "REAL8": "DOUBLE", "BOOLEAN": "BOOLEAN"}
_POSTGRES_TYPES = {"bit": "boolean", "float": "double precision", "tinyint": "smallint", "datetime2": "timestamp(6)"}


def tables() -> list[TableDef]:
    """The shop tables as the workload generator describes tables."""
    return [
        TableDef("dbo", name, tuple(ColumnDef(c, _known(kind)) for c, (kind, _) in columns.items()), (key_of(name),))
        for name, columns in TABLES.items()
    ]


def _known(sql_type: str) -> str:
    """A type as the workload generator knows it."""
    return f"var{sql_type}" if sql_type.startswith("char") else sql_type


def announcements(encoding: Encoding) -> list[bytes]:
    """The metadata messages of all tables."""
    return [announcement(table, 1, QlikMessageOptions(encoding)) for table in tables()]


def message_files(events: int, encoding: Encoding) -> list[Path]:
    """Data messages, one file for each partition: the length of each in four bytes, then its bytes."""
    return _made(f"qlik-{encoding}-{events}", lambda folder: _write_messages(folder, events, encoding))


def read_messages(path: Path) -> Iterator[bytes]:
    """The messages of one of these files."""
    with path.open("rb") as file:
        while size := file.read(4):
            yield file.read(int.from_bytes(size, "big"))


def change_files(events: int) -> Path:
    """A file target's folder: data files of change tables with their metadata files."""
    return _made(f"qlik-files-{events}", lambda folder: _write_files(folder, events))[0].parent.parent


def copy_files(events: int) -> list[Path]:
    """Change tables with partitions as PostgreSQL's COPY takes them, one file for each table, named like it."""
    return _made(f"qlik-jdbc-{events}", lambda folder: _write_copies(folder, events))


def create_table(table: TableDef) -> str:
    """The statement that creates a change table in PostgreSQL, with header columns as real targets have them."""
    kinds = ("varchar(35)", "varchar(1)", "bytea", "varchar(128)", "varchar(12)", "varchar(32)", "timestamp(6)")
    columns = [f"header__{name} {kind}" for name, kind in zip(HEADERS, kinds, strict=True)]
    columns.append(f"header__{PARTITION} varchar(50)")
    columns += [f'"{column.name}" {_postgres_type(column.sql_type)}' for column in table.columns]
    return f"CREATE TABLE dbo.{table.name}__ct ({', '.join(columns)})"


def _postgres_type(sql_type: str) -> str:
    name, _, size = sql_type.partition("(")
    if name in _POSTGRES_TYPES:
        return _POSTGRES_TYPES[name]
    return f"varchar({size}" if name == "nvarchar" else sql_type


def _made(name: str, make: Callable[[Path], None]) -> list[Path]:
    folder = ROOT / name
    if not folder.is_dir():
        making = folder.with_suffix(".making")
        shutil.rmtree(making, ignore_errors=True)
        making.mkdir(parents=True)
        make(making)
        making.rename(folder)
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _changes(table: TableDef, number: int, events: int, *, typed: bool) -> str:
    """A query of one table's changes: n, op, seq, txn, place in it, after and before as structs, changed as a mask."""
    keys = max(1, events // 3 // len(TABLES))
    texts = {name: text for name, (_, text) in TABLES[table.name].items()}
    key, cast = table.key[0], {c.name: _JSON_TYPES.get(qlik_type(c.sql_type).name, "VARCHAR") for c in table.columns}

    def image(before: bool) -> str:
        parts = []
        for name, text in texts.items():
            value = text.replace("i % ", "(i + 1) % ") if before else text
            if before and name == key:
                value = f"(CASE WHEN op = 'UPDATE' AND hash(i + 2) % 450 = 10 THEN {keys} + k ELSE k END)::text"
            if not typed:
                value = f"({value})::text"
            elif cast[name] == "BOOLEAN":
                value = f"({value}) = '1'"
            elif cast[name] == "VARCHAR" and "datetime2" in TABLES[table.name][name][0]:
                value = f"(({value})::text)[:26]"
            else:
                value = f"({value})::{cast[name]}"
            parts.append(f"{name} := {value}")
        return f"struct_pack({', '.join(parts)})"

    changed = " + ".join(
        f"CASE WHEN after.{name} IS DISTINCT FROM before.{name} THEN {1 << place} ELSE 0 END"
        for place, name in enumerate(texts)
    )
    time = "timestamp '2026-06-16' + to_seconds(i // 10)"
    return f"""
        SELECT *, CASE op WHEN 'UPDATE' THEN {changed} WHEN 'DELETE' THEN 1 ELSE {(1 << len(texts)) - 1} END AS changed
        FROM (
            SELECT *, strftime({time}, '%Y%m%d%H%M%S00') || lpad((i + 1)::text, 19, '0') AS seq,
                   strftime({time}, '%Y-%m-%d %H:%M:%S.000') AS time, upper(md5((i // 10)::text)) AS txn,
                   '00000000.' || lpad(to_hex(i // 10), 8, '0') || '.00000001.000' || i % 10 || '.00.0000:1.1.16'
                   AS spot,
                   {image(False)} AS after, {image(True)} AS before
            FROM (SELECT n, i, hash(i) % {keys} AS k,
                         CASE WHEN hash(i + 1) % 20 < 9 THEN 'INSERT' WHEN hash(i + 1) % 20 < 18 THEN 'UPDATE'
                              ELSE 'DELETE' END AS op
                  FROM (SELECT n, (CASE WHEN n % 100 = 99 THEN n - 1 ELSE n END) * {len(TABLES)} + {number} AS i
                        FROM range({events // len(TABLES)}) AS numbers(n))))"""


def _write_messages(folder: Path, events: int, encoding: Encoding) -> None:
    files = [(folder / f"{part}.messages").open("wb") for part in range(PARTS)]
    each = [_messages(table, number, events, encoding) for number, table in enumerate(tables())]
    for _, part, body in heapq.merge(*each, key=lambda message: message[0]):
        files[part].write(len(body).to_bytes(4, "big") + body)
    for file in files:
        file.close()


def _messages(table: TableDef, number: int, events: int, encoding: Encoding) -> Iterator[tuple[int, int, bytes]]:
    """The messages of one table: number, partition by the hash of the key, bytes."""
    encode = _json_message if encoding == "json" else _avro_message(table)
    identity = schema_id(table, TASK, True)
    query = f"""
        SELECT n, hash(k) % {PARTS}, op, seq, time, txn, spot, i % 10 + 1, changed, to_json(after)::text,
               CASE WHEN op = 'UPDATE' THEN to_json(before)::text END
        FROM ({_changes(table, number, events, typed=True)}) ORDER BY n"""
    with duckdb.connect(config={"threads": 2}) as db:
        cursor = db.execute(query)
        while lines := cursor.fetchmany(10_000):
            for line in lines:
                yield line[0], line[1], encode(identity, line[2:])


def _json_message(identity: str, line: tuple[Any, ...]) -> bytes:
    op, seq, time, txn, spot, counter, changed, after, before = line
    return (
        f'{{"magic":"atMSG","type":"DT","headers":null,"messageSchemaId":"{identity}","messageSchema":null,'
        f'"message":{{"data":{after},"beforeData":{before or "null"},"headers":{{"operation":"{op}",'
        f'"changeSequence":"{seq}","timestamp":"{time.replace(" ", "T")}","streamPosition":"{spot}",'
        f'"transactionId":"{txn}","changeMask":"{changed:04X}","columnMask":"0FFF",'
        f'"transactionEventCounter":{counter},"transactionLastEvent":{"true" if counter == 10 else "false"}}}}}}}'
    ).encode()


def _avro_message(table: TableDef) -> Callable[[str, tuple[Any, ...]], bytes]:
    kinds = {column.name: qlik_type(column.sql_type) for column in table.columns}
    schema = parsed_data_schema(table, TASK, True)

    def message(identity: str, line: tuple[Any, ...]) -> bytes:
        op, seq, time, txn, spot, counter, changed, after, before = line
        headers = {"operation": op, "changeSequence": seq, "timestamp": time, "streamPosition": spot}
        headers |= {"transactionId": txn, "changeMask": changed.to_bytes(2, "big"), "columnMask": b"\x0f\xff"}
        headers |= {"transactionEventCounter": counter, "transactionLastEvent": counter == 10}
        record = {"data": _avro_row(after, kinds), "beforeData": _avro_row(before, kinds), "headers": headers}
        envelope = {"magic": b"atMSG", "type": "DT", "headers": None, "messageSchemaId": identity}
        return _datum(ENVELOPE, {**envelope, "messageSchema": None, "message": _datum(schema, record)})

    return message


def _avro_row(text: str | None, kinds: dict[str, QlikType]) -> dict[str, Any] | None:
    if text is None:
        return None
    row: dict[str, Any] = json.loads(text)
    return {
        name: value if value is None or not isinstance(value, str) else avro_value(kinds[name], value, True)
        for name, value in row.items()
    }


def _datum(schema: Any, record: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, record)
    return stream.getvalue()


def _table_rows(table: TableDef, number: int, events: int, headers: int, mask: str) -> str:
    """A query of change table rows in the order of change_seq: a before image beside its UPDATE.

    *headers* is how many header columns masks count; *mask* an expression of the mask's text over the number ``m``.
    """
    names = [column.name for column in table.columns]
    part = f"n * {PARTS} // {max(1, events // len(TABLES))}"
    head = (
        f"seq, oper, {mask} AS mask, spot, "
        "MAP {'I': 'INSERT', 'U': 'UPDATE', 'D': 'DELETE', 'B': 'BEFOREIMAGE'}[oper] AS operation, "
        "txn, time || '000' AS time"
    )
    return f"""
        SELECT {head}, {part} AS part, {", ".join(f"image.{name} AS {name}" for name in names)}
        FROM (
            SELECT n, seq, spot, txn, time, 'B' AS oper, NULL AS m, before AS image FROM changes WHERE op = 'UPDATE'
            UNION ALL
            SELECT n, seq, spot, txn, time, op[1] AS oper, changed::BIGINT << {headers} AS m, after AS image
            FROM changes)
        ORDER BY n, oper"""


def _write_files(folder: Path, events: int) -> None:
    mask = (
        "CASE WHEN oper = 'B' THEN NULL ELSE CASE WHEN length(to_hex(m)) % 2 = 1 THEN '0' ELSE '' END || to_hex(m) END"
    )
    for number, table in enumerate(tables()):
        target = folder / f"dbo.{table.name}__ct"
        target.mkdir()
        with duckdb.connect(config={"threads": 2}) as db:
            db.execute(f"CREATE TABLE changes AS {_changes(table, number, events, typed=False)}")
            rows = _table_rows(table, number, events, len(HEADERS), mask)
            db.execute(f"CREATE TABLE change_rows AS {rows}")
            quoted = [c.name for c in table.columns if qlik_type(c.sql_type).name in ("STRING", "WSTRING")]
            names = [f"header__{name}" for name in HEADERS] + [column.name for column in table.columns]
            for part in range(PARTS):
                path = target / f"20260616-00000{part}000.csv"
                spelled = dict(zip((*_ROW_HEAD, *(c.name for c in table.columns)), names, strict=True))
                chosen = ", ".join(f'{name} AS "{spelled[name]}"' for name in spelled)
                db.execute(
                    f"COPY (SELECT {chosen} FROM change_rows WHERE part = {part}) TO '{path}' "
                    f"(HEADER, FORCE_QUOTE ({', '.join(quoted)}))"
                )
                count = db.execute(f"SELECT count(*) FROM change_rows WHERE part = {part}").fetchone()
                path.with_suffix(".dfm").write_text(json.dumps(_dfm(table, path.name, (count or (0,))[0])))


_ROW_HEAD = ("seq", "oper", "mask", "spot", "operation", "txn", "time")


def _dfm(table: TableDef, file: str, records: int) -> dict[str, Any]:
    kinds = {f"header__{name}": QlikType("STRING", 128) for name in HEADERS}
    kinds["header__timestamp"] = QlikType("DATETIME")
    kinds |= {column.name: qlik_type(column.sql_type) for column in table.columns}
    columns = [
        {**kind._asdict(), "ordinal": n, "name": name, "type": kind.name}
        for n, (name, kind) in enumerate(kinds.items(), 1)
    ]
    data = {"sourceSchema": table.schema, "sourceTable": table.name, "targetSchema": table.schema}
    options = {"fieldDelimiter": ",", "recordDelimiter": "\n", "nullValue": "", "quoteChar": '"', "escapeChar": '"'}
    return {
        "fileInfo": {"name": file, "extension": "", "recordCount": records},
        "formatInfo": {"format": "delimited", "options": options},
        "dataInfo": {**data, "targetTable": f"{table.name}__ct", "columns": columns},
    }


def _write_copies(folder: Path, events: int) -> None:
    mask = "CASE WHEN oper = 'B' THEN '\\x' ELSE '\\x' || lpad(to_hex(m), 6, '0') END"
    for number, table in enumerate(tables()):
        with duckdb.connect(config={"threads": 2}) as db:
            db.execute(f"CREATE TABLE changes AS {_changes(table, number, events, typed=False)}")
            rows = _table_rows(table, number, events, len(HEADERS) + 1, mask)
            db.execute(f"COPY ({rows}) TO '{folder}/{table.name}.csv' (HEADER false)")
