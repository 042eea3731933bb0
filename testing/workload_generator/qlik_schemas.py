"""Qlik's description of tables: types, metadata messages and their Avro schemas.

Public source: Qlik Help, *Metadata and data messages*, *Kafka data types*, *The Replicate envelope*, and *SQL Server
source data types*; rule ids in brackets.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import Any, NamedTuple

import fastavro

from workload_generator.sql_values import parse_type
from workload_generator.tables import TableDef

_INTEGERS = {"tinyint": ("UINT1", 3), "smallint": ("INT2", 5), "int": ("INT4", 10), "bigint": ("INT8", 19)}
_NUMERICS = ("decimal", "numeric", "money", "smallmoney")
# SQL Server types without a Qlik type are sent as text of this length.
_AS_TEXT = {"time": 16, "datetimeoffset": 34, "uniqueidentifier": 38}
_LARGE = {"varchar": "CLOB", "nvarchar": "NCLOB", "varbinary": "BLOB"}


class QlikType(NamedTuple):
    """A type in metadata messages; *length* in bytes."""

    name: str
    length: int = 0
    precision: int = 0
    scale: int = 0

    @property
    def is_large(self) -> bool:
        """Whether change masks leave it out (K-22)."""
        return self.name in ("BLOB", "CLOB", "NCLOB")


@lru_cache(maxsize=256)
def qlik_type(sql_type: str) -> QlikType:
    """The Qlik type of a SQL Server type.

    Raises:
        ValueError: for an unknown type.
    """
    kind = parse_type(sql_type)
    if kind.base in _INTEGERS:
        return QlikType(*_INTEGERS[kind.base])
    if kind.base in _NUMERICS:
        return QlikType("NUMERIC", 0, kind.size, kind.scale)
    if kind.base in _AS_TEXT:
        return QlikType("STRING", _AS_TEXT[kind.base])
    if kind.base in _LARGE and kind.size < 0:
        return QlikType(_LARGE[kind.base])
    if kind.base in ("varchar", "nvarchar"):
        return QlikType("STRING", kind.size) if kind.base == "varchar" else QlikType("WSTRING", 2 * kind.size)
    if kind.base in ("binary", "varbinary"):
        return QlikType("BYTES", kind.size)
    return {
        "float": QlikType("REAL8", 14),
        "real": QlikType("REAL4", 7),
        "bit": QlikType("BOOLEAN", 1),
        "date": QlikType("DATE"),
    }.get(kind.base, QlikType("DATETIME"))


def _record(record: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": record, "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}


ENVELOPE: Any = fastavro.parse_schema(
    _record(
        "MessageEnvelope",
        magic={"type": "fixed", "name": "Magic", "size": 5},
        type="string",
        headers=["null", {"type": "map", "values": "string"}],
        messageSchemaId=["null", "string"],
        messageSchema=["null", "string"],
        message="bytes",
    )
)
"""The envelope, parsed (K-01)."""

_COLUMN = _record(
    "TableColumn", ordinal="int", type="string", length="int", precision="int", scale="int", primaryKeyPosition="int"
)
METADATA_TEXT = json.dumps(
    _record(
        "MetadataRecord",
        schemaId="string",
        lineage=_record(
            "Lineage",
            server="string",
            task="string",
            schema="string",
            table="string",
            tableVersion="int",
            timestamp="string",
        ),
        tableStructure=_record("TableStructure", tableColumns={"type": "map", "values": _COLUMN}),
        dataSchema="string",
    )
)
"""The schema in a metadata message itself (K-03, K-10)."""

METADATA: Any = fastavro.parse_schema(json.loads(METADATA_TEXT))
"""The same, parsed."""


@lru_cache(maxsize=256)
def data_schema(table: TableDef, task: str, logical_types: bool) -> str:
    """The Avro schema of a table's data messages (K-04, K-35)."""
    columns = {column.name: ["null", _avro_type(qlik_type(column.sql_type), logical_types)] for column in table.columns}
    operation = {"type": "enum", "name": "operation", "symbols": ["INSERT", "UPDATE", "DELETE", "REFRESH"]}
    headers = _record(
        "Headers",
        operation=operation,
        changeSequence="string",
        timestamp="string",
        streamPosition="string",
        transactionId="string",
        changeMask=["null", "bytes"],
        columnMask=["null", "bytes"],
        transactionEventCounter=["null", "long"],
        transactionLastEvent=["null", "boolean"],
    )
    whole = _record(
        "DataRecord", data=["null", _record("Data", **columns)], beforeData=["null", "Data"], headers=headers
    )
    return json.dumps({**whole, "namespace": f"com.attunity.queue.msg.{task}.{table.full_name}"})


@lru_cache(maxsize=256)
def parsed_data_schema(table: TableDef, task: str, logical_types: bool) -> Any:
    """:func:`data_schema`, parsed."""
    return fastavro.parse_schema(json.loads(data_schema(table, task, logical_types)))


def schema_id(table: TableDef, task: str, logical_types: bool) -> str:
    """The id in the announcement of a structure: 32 hexadecimal digits (K-02)."""
    text = data_schema(table, task, logical_types)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest().upper()


def metadata(table: TableDef, version: int, task: str, logical_types: bool, timestamp: str) -> dict[str, Any]:
    """The metadata message of a table at one version of its structure (K-10 to K-12)."""
    columns = {}
    for ordinal, column in enumerate(table.columns, 1):
        kind = qlik_type(column.sql_type)
        columns[column.name] = {
            "ordinal": ordinal,
            "type": kind.name,
            "length": kind.length,
            "precision": kind.precision,
            "scale": kind.scale,
            "primaryKeyPosition": table.key.index(column.name) + 1 if column.name in table.key else 0,
        }
    return {
        "schemaId": schema_id(table, task, logical_types),
        "lineage": {
            "server": "QLIKSRV",
            "task": task,
            "schema": table.schema,
            "table": table.name,
            "tableVersion": version,
            "timestamp": timestamp,
        },
        "tableStructure": {"tableColumns": columns},
        "dataSchema": data_schema(table, task, logical_types),
    }


def _avro_type(kind: QlikType, logical_types: bool) -> Any:
    plain: dict[str, Any] = {
        "UINT1": "int",
        "INT2": "int",
        "INT4": "int",
        "INT8": "long",
        "REAL4": "float",
        "REAL8": "double",
        "BOOLEAN": "boolean",
        "BYTES": "bytes",
        "BLOB": "bytes",
    }
    if kind.name in plain:
        return plain[kind.name]
    if not logical_types:
        return "string"
    logical: dict[str, Any] = {
        "DATE": {"type": "int", "logicalType": "date"},
        "DATETIME": {"type": "long", "logicalType": "timestamp-micros"},
        "NUMERIC": {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale},
    }
    return logical.get(kind.name, "string")
