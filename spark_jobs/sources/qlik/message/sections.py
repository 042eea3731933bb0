"""Notices a task that writes its messages in a format of its own: sections renamed, or flattened away (K-65).

The dialog *Message Format* of a task or a table lets sections be named otherwise, and puts their members one level
higher where a section's name loses its slash. Such messages cannot be read: only that dialog knows which member is the
row and which the one before it.

Public source: Qlik Help, *Message Format*.
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
    """Why a record is of a task with a format of its own; None where it is not known to be one.

    It is one if a section is missing while something stands there that is none, and headers of Qlik are in it.
    """
    if all(name in record for name in _SECTIONS):
        return None
    parts = {name: set(part) for name, part in record.items() if isinstance(part, Mapping)}
    return _why(set(record), parts)


def custom_fields(members: Collection[str], parts: Mapping[str, Collection[str]]) -> str | None:
    """The same of an Avro record with these members, whose records have these members."""
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
