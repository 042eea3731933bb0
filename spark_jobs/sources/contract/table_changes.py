"""A base class for decoders of formats in which each message is one complete change of one table.

A format implements how to read a message, its log position and its rows. The base class counts each message, and turns
each failure into a dead letter, so that no message gets lost.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from open_mirroring.changes.row_key import key_bucket
from open_mirroring.facts.foreign_tables import FOREIGN, Ignored
from open_mirroring.facts.kind import NewFacts
from spark_jobs.changelog.schema import CHANGE, DELETE, KEY_LEFT, REJECTED, LogRow, RawMessage
from spark_jobs.sources.contract.decoded import (
    Damage,
    Decoded,
    Decoder,
    Dispositions,
    MirroredTable,
    Refusal,
    TableNames,
    damaged_row,
    refused_row,
    shown,
)
from spark_jobs.sources.contract.json_numbers import JsonNumber, no_number


class TableEvent(NamedTuple):
    """A message whose table is known.

    *epoch* is the id of the stream (one enabling of streaming at the source) to which the change belongs; *content* is
    the part of the message from which the format reads position and rows.
    """

    epoch: str
    schema: str
    table: str
    content: Any


class TableChanges(Decoder):
    """Decodes messages one by one. *tables* are the mirrored tables by their names at the source, ``schema.table``."""

    def __init__(self, tables: Mapping[str, MirroredTable]) -> None:
        self._tables, self._names = dict(tables), TableNames(tables)

    @abstractmethod
    def read(self, body: bytes) -> TableEvent | None:
        """Reads the table of a message; None for a message to ignore, such as a tombstone.

        Raises a Refusal if the table cannot be read. Then any table may lack a change, so every table counts as
        incomplete.
        """

    @abstractmethod
    def position(self, content: Any) -> str:
        """The log position of an event within its epoch, in the source's commit order (G-01).

        *content* is that of a :class:`TableEvent`. Raises a Refusal if the position is unknown.
        """

    @abstractmethod
    def rows(self, content: Any, at: LogRow, table: MirroredTable) -> Sequence[LogRow]:
        """Converts an event to rows of the change log, with :func:`change_rows`.

        *content* is that of a :class:`TableEvent`; *at* has the event's origin, place, table and position. Raises a
        Refusal if the event cannot be read. If the Refusal has the row's key, only this row counts as outdated; else
        the table stops.
        """

    def decode(self, messages: Iterable[RawMessage | Damage]) -> Decoded:
        rows, ended = list[LogRow](), Counter[str]()
        facts: NewFacts = {}
        for message in messages:
            found = [damaged_row(message)] if isinstance(message, Damage) else self._rows(message, facts)
            rows += found
            kind = found[0].kind if found else ""
            ended["messages"] += 1
            ended["ignored" if not found else "rejected" if kind == REJECTED else "changes"] += 1
        return Decoded(rows, Dispositions(**ended), facts=facts)

    def _rows(self, message: RawMessage, facts: NewFacts) -> Sequence[LogRow]:
        """The rows of a message; none for a tombstone, and for a table that is not mirrored, which is a fact."""
        at = LogRow(REJECTED, message.origin, message.place)
        try:
            event = None if message.body is None else self.read(message.body)
            if event is None:
                return ()
            name = f"{event.schema}.{event.table}"
            meant = self._names.meant_by(name)
            if meant is None:
                position = ""
                with suppress(Refusal):
                    position = self.position(event.content)
                FOREIGN.add(facts, Ignored(1, position), name=name)
                return ()
            at = at._replace(tbl=self._tables[meant].source, epoch=event.epoch)
            if name not in self._tables:
                self._names.refuse_other_case(name)
            if "." in event.table:
                raise Refusal("MESSAGE_INVALID", f"the table name {shown(event.table)} has a period")
            at = at._replace(pos=self.position(event.content))
            return self.rows(event.content, at, self._tables[name])
        except Refusal as why:
            letter = refused_row(message.origin, message.place, why, message.body)
            return [letter._replace(tbl=at.tbl, epoch=at.epoch, pos=at.pos, key=why.key, bucket=key_bucket(why.key))]


def change_rows(
    at: LogRow, op: str, keys: Sequence[str | None], cols: str, row: str | None, before: str | None
) -> list[LogRow]:
    """The rows of the change log for one change: one, or two at one position for an update that changes the key (G-03).

    The log position in *at* has ``sub`` 0 for a delete, else 1. *keys* are the encoded keys before and after the
    change, or the only key. *row* and *before* are the JSON of the row after and before the change.
    """
    change = at._replace(kind=CHANGE, op=op, key=keys[-1], bucket=key_bucket(keys[-1]), cols=cols, whole=True, row=row)
    if op == DELETE:
        return [change._replace(before=before)]
    if keys[0] == keys[-1]:
        return [change]
    pos = f"{(at.pos or '')[:-1]}0"
    gone = change._replace(pos=pos, op=KEY_LEFT, key=keys[0], bucket=key_bucket(keys[0]), row=None, before=before)
    return [gone, change]


def exact_json(body: bytes) -> Any:
    """Parses JSON without losing digits: whole numbers become ``int``, other numbers :class:`JsonNumber`.

    Raises a Refusal for bytes that are not UTF-8, and for text that is not valid JSON.
    """
    try:
        found = json.loads(body.decode(), parse_float=JsonNumber, parse_constant=no_number)
        json.dumps(found, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except UnicodeDecodeError as error:
        raise Refusal("MESSAGE_INVALID", f"the message is no UTF-8: {error}") from error
    except (ValueError, RecursionError) as error:
        raise Refusal("MESSAGE_INVALID", f"the message is no JSON: {error}") from error
    return found
