"""Reads the table structures under `structures` in a mirror file, for the decoder of Qlik messages (K-61)."""

from __future__ import annotations

import json
from typing import Any

from open_mirroring.config import Mirror
from open_mirroring.config.structures import GivenStructure
from open_mirroring.errors import TerminalError
from spark_jobs.sources.contract.decoded import BY_HAND, Refusal, SourceSchema
from spark_jobs.sources.qlik.message.envelope import registry_id
from spark_jobs.sources.qlik.message.structures import Structure, announced_table, known_structure

_TIMES = ("TIME", "DATETIME", "TIMESTAMP")


def given_structures(mirror: Mirror) -> tuple[SourceSchema, ...]:
    """The table structures under `structures` in the mirror file of *mirror*."""
    return tuple(_given(mirror, given) for given in mirror.structures)


def _given(mirror: Mirror, given: GivenStructure) -> SourceSchema:
    name = ".".join(given.source_name)
    announced_id, version, document = "", 0, ""
    if given.metadata is not None:
        record = _metadata(_read(mirror, given.metadata))
        if announced_table(record) != name:
            raise _invalid(given.metadata, f"it is not a metadata message of {name}")
        announced_id = str(record.get("schemaId") or "")
        stated = record["lineage"].get("tableVersion")
        version = stated if type(stated) is int else 0
        document = json.dumps(record)
    elif given.columns is not None:
        avro = None if given.avro is None else json.dumps(_read(mirror, given.avro))
        document = json.dumps(_described(given, given.columns, avro))
    elif given.avro is not None:
        document = json.dumps(_read(mirror, given.avro))
    number = given.registry_number
    schema_id = registry_id(number) if number is not None else given.schema_id or announced_id
    schema = SourceSchema(BY_HAND, schema_id, name, version if given.version is None else given.version, document)
    _prove(known_structure(schema), given)
    return schema


def _prove(found: object, given: GivenStructure) -> None:
    where = given.metadata or given.avro or f"structures, {given.table}"
    if not isinstance(found, Structure):
        raise _invalid(where, "it describes no messages of changes")
    for column in found.columns:
        column.log_type()
    if given.avro is None:
        return
    try:
        if found.avro.table not in ("", found.table):
            raise _invalid(where, f"it is the schema of {found.avro.table}, not of {found.table}")
    except Refusal as refusal:
        raise _invalid(where, refusal.reason) from refusal


def _read(mirror: Mirror, path: str) -> Any:
    try:
        return json.loads(mirror.resolve(path).read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise _invalid(path, f"it cannot be read as JSON: {type(error).__name__}") from error


def _metadata(whole: Any) -> dict[str, Any]:
    record = whole.get("message", whole) if isinstance(whole, dict) else {}
    return record if isinstance(record, dict) else {}


def _described(given: GivenStructure, columns: dict[str, str], avro: str | None) -> dict[str, Any]:
    schema, table = given.source_name
    described = {}
    for ordinal, (name, text) in enumerate(columns.items(), 1):
        kind, _, numbers = text.upper().replace(" ", "").rstrip(")").partition("(")
        first, _, second = (numbers or "0").partition(",")
        # NUMERIC(18,2) has digits, TIME(3) and DATETIME(3) digits of a second, WSTRING(100) a length in bytes.
        is_number, is_time = kind == "NUMERIC", kind in _TIMES
        described[name] = {
            "ordinal": ordinal,
            "type": kind,
            "length": 0 if is_number or is_time else int(first),
            "precision": int(first) if is_number else 0,
            "scale": int(second or 0) if is_number else int(first) if is_time else 0,
            "primaryKeyPosition": given.key.index(name) + 1 if name in given.key else 0,
        }
    lineage = {"schema": schema, "table": table, "tableVersion": given.version or 0}
    return {"lineage": lineage, "tableStructure": {"tableColumns": described}, "dataSchema": avro}


def _invalid(where: str, what: str) -> TerminalError:
    return TerminalError(
        "METADATA_MISSING",
        what,
        where=where,
        next_step="give a metadata message or an Avro schema of this table's data messages as JSON, or its columns "
        "with their Qlik types",
    )
