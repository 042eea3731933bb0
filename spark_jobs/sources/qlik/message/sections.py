"""Detects messages of a Qlik task with a custom message format: sections renamed or flattened (K-65).

Such messages cannot be read, because only the Qlik task's settings show which member is the row. Public source: Qlik
Help, *Message Format*.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from spark_jobs.sources.contract.decoded import shown

_SECTIONS = ("data", "beforeData", "headers")
_KNOWN = frozenset({*_SECTIONS, "schema", "table"})
_HEADERS = frozenset({"operation", "changeSequence", "transactionId", "streamPosition", "changeMask", "columnMask",
                      "transactionEventCounter", "transactionLastEvent"})  # fmt: skip
_MOST_SHOWN = 8
SETTING = "the *Message Format* of the Qlik task or table renames or flattens sections"


def custom_format(record: Mapping[str, Any]) -> str | None:
    """Why the JSON message *record* belongs to a Qlik task with a custom message format; None if it does not.

    The message has headers of Qlik, but lacks the section ``data``, ``beforeData`` or ``headers``.
    """
    if all(name in record for name in _SECTIONS):
        return None
    parts = {name: set(part) for name, part in record.items() if isinstance(part, Mapping)}
    return _why(set(record), parts)


def custom_fields(members: Collection[str], parts: Mapping[str, Collection[str]]) -> str | None:
    """Why an Avro schema belongs to a Qlik task with a custom message format; None if it does not.

    *members* are the fields of the schema. *parts* maps each field that is itself a record to its fields.
    """
    if "data" in parts and "headers" in parts and set(members) <= _KNOWN:
        return None
    return _why(set(members), {name: set(part) for name, part in parts.items()})


def _why(members: set[str], parts: Mapping[str, set[str]]) -> str | None:
    others = members - _KNOWN
    is_ours = any({"operation", "changeSequence"} <= names or len(names & _HEADERS) >= 3
                  for names in (members, *parts.values()))  # fmt: skip
    if not others or not is_ours:
        return None
    missing = [name for name in _SECTIONS if name not in members]
    if not missing:
        return None
    return (
        f"{SETTING}: the members are {shown(sorted(members)[:_MOST_SHOWN])}, and {', '.join(missing)} is not among them"
    )
