"""Reads the headers of a data message: its operation, and its position in the order of changes (K-15 to K-26).

Public source: Qlik Help, *Metadata and data messages*.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, TypeGuard

from spark_jobs.sources.contract.decoded import Refusal, shown
from spark_jobs.sources.qlik.positions import SEQUENCE_DIGITS, is_sequence, qlik_position

OPERATIONS = ("REFRESH", "INSERT", "UPDATE", "DELETE")
_SECTIONS = ("data", "beforeData", "headers")

Mask = str | bytes | None


class Headers(NamedTuple):
    """The headers that the decoder uses; ``counter`` is the number of the change in its transaction.

    The decoder does not wait for the end of a transaction: if the last change is of a table that is not mirrored, its
    message never comes (K-26).
    """

    operation: str
    sequence: str
    counter: int
    change_mask: Mask
    column_mask: Mask

    def position(self, place: int, sub: int) -> str:
        """The log position of the change inside its Qlik full load.

        A REFRESH is a row of the full load itself. It has no sequence, so its position is before every change (K-18).
        """
        if self.operation == "REFRESH":
            return qlik_position("0" * len(self.sequence), sub, place)
        return qlik_position(self.sequence, sub, self.counter)


def refuse_other_sections(members: Collection[str]) -> None:
    """Raises a Refusal if a task's *Message Format* renames or flattens the sections of a message (K-65).

    *members* are the names of the message's members. Only the settings of the task show which of them is the row.
    """
    missing = [name for name in _SECTIONS if name not in members]
    if len(missing) == len(_SECTIONS) or (missing and {*members} - {*_SECTIONS, "schema", "table"}):
        raise Refusal(
            "MESSAGE_INVALID",
            f"the message has no {', '.join(missing)}, but {shown([*members][:8])}: if a Qlik task wrote it, the "
            "*Message Format* of the task or table renames or flattens sections",
        )


def stated_table(record: Mapping[str, Any]) -> str | None:
    """The table, ``schema.table``, that the message itself names; None if it names no table (K-15).

    Only some Qlik tasks write the table into their messages. Raises a Refusal if only schema or table is named, or one
    of them is not valid.
    """
    headers = record.get("headers")
    for part in (record, headers):
        if not isinstance(part, dict):
            continue
        schema, table = part.get("schema"), part.get("table")
        if schema is None and table is None:
            continue
        if not _is_text(schema) or not _is_text(table) or not table:
            raise Refusal("HEADER_INVALID", f"the header `schema` is {shown(schema)}, and `table` is {shown(table)}")
        return f"{schema}.{table}"
    return None


def transaction_of(record: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Time and transaction id of a change, from the headers of its message; None for a value that is not a string."""
    headers = record.get("headers")
    stated = (headers.get(name) if isinstance(headers, dict) else None for name in ("timestamp", "transactionId"))
    committed, transaction = (one if _is_text(one) and one else None for one in stated)
    return committed, transaction


def read_headers(record: Mapping[str, Any], sequence_digits: int = SEQUENCE_DIGITS) -> Headers:
    """The headers of a data message.

    Raises a Refusal if a header is not valid. A ``changeSequence`` must have *sequence_digits* digits: a sequence of
    another length would not sort correctly as string.
    """
    headers = record.get("headers")
    if not isinstance(headers, dict):
        raise Refusal("HEADER_INVALID", f"headers is not an object but {shown(headers)}")
    operation = headers.get("operation")
    if not _is_text(operation) or operation not in OPERATIONS:
        raise Refusal("MESSAGE_INVALID", f"operation is {shown(operation)}, not one of {', '.join(OPERATIONS)}")
    change, column = _mask(headers, "changeMask"), _mask(headers, "columnMask")
    sequence = headers.get("changeSequence")
    if operation == "REFRESH":
        return Headers(operation, "0" * sequence_digits, 0, None, column)
    if not _is_text(sequence) or not is_sequence(sequence, sequence_digits) or not sequence.strip("0"):
        raise Refusal("HEADER_INVALID", f"changeSequence is {shown(sequence)}, not {sequence_digits} digits")
    counter = headers.get("transactionEventCounter")
    if counter is not None and not (type(counter) is int and 0 <= counter < 2**63):
        raise Refusal("HEADER_INVALID", f"transactionEventCounter is {shown(counter)}")
    return Headers(operation, sequence, counter or 0, change, column)


def _is_text(value: object) -> TypeGuard[str]:
    return type(value) is str  # and not a JsonNumber


def _mask(headers: Mapping[str, Any], name: str) -> Mask:
    value = headers.get(name)
    if value is None or type(value) is str or isinstance(value, bytes):
        return value or None  # messages without masks may have an empty text instead of null
    raise Refusal("HEADER_INVALID", f"{name} is {shown(value)}")
