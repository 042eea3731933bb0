"""Decodes a source of which each message is one whole change of one table.

The format says what a message is, its position and its rows. This module does the rest, so no format can pass over one.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from open_mirroring.changes.row_key import key_bucket
from open_mirroring.facts.foreign_tables import FOREIGN, Ignored
from open_mirroring.facts.kind import NewFacts
from spark_jobs.changelog.schema import CHANGE, DELETE, KEY_LEFT, REJECTED, LogRow, RawMessage
from spark_jobs.sources.contract.decoded import (
    Damage,
    Decoded,
    Dispositions,
    IndependentMessages,
    MirroredTable,
    Refusal,
    Unjoinable,
    Waiting,
    damaged_row,
    refused_row,
    shown,
)
from spark_jobs.sources.contract.json_numbers import JsonNumber, no_number
from spark_jobs.sources.contract.table_names import TableNames


class TableEvent(NamedTuple):
    """A message that tells its table, and the incarnation of the stream; *content* is the format's own."""

    epoch: str
    schema: str
    table: str
    content: Any


class _Foreign(NamedTuple):
    table: str
    position: str


class TableChanges(IndependentMessages, ABC):
    """Decodes messages one by one; *tables* by their names at the source, ``schema.table``."""

    def __init__(self, tables: Mapping[str, MirroredTable]) -> None:
        self._tables, self._names = dict(tables), TableNames(tables)

    @abstractmethod
    def read(self, body: bytes) -> TableEvent | None:
        """What a message tells of its table; None for a tombstone. A Refusal means that any table may lack a change."""

    @abstractmethod
    def position(self, content: Any) -> str:
        """The place of an event inside its epoch, by the order of the source alone (G-01); a Refusal if it has none."""

    @abstractmethod
    def rows(self, content: Any, at: LogRow, table: MirroredTable) -> Sequence[LogRow]:
        """The rows of an event, by :func:`change_rows`; *at* has its coordinates, table and position.

        A Refusal has the key, if it is known which row is out of date; without one the table stops.
        """

    def decode(self, messages: Iterable[RawMessage | Damage]) -> Decoded:
        rows, ended = list[LogRow](), Counter[str]()
        facts: NewFacts = {}
        for message in messages:
            ended["messages"] += 1
            if isinstance(message, Damage):
                found: Sequence[LogRow] | _Foreign | None = [damaged_row(message)]
            else:
                found = self._outcome(message)
            if found is None:
                ended["ignored"] += 1
                continue
            if isinstance(found, _Foreign):
                ended["ignored"] += 1
                FOREIGN.add(facts, Ignored(1, found.position), name=found.table)
                continue
            rows += found
            ended["rejected" if found[0].kind == REJECTED else "changes"] += 1
        return Decoded(rows, Dispositions(**ended), facts=facts)

    def _outcome(self, message: RawMessage) -> Sequence[LogRow] | _Foreign | None:
        at = LogRow(REJECTED, message.origin, message.place)
        try:
            event = None if message.body is None else self.read(message.body)
            if event is None:
                return None
            name = f"{event.schema}.{event.table}"
            meant = self._names.meant_by(name)
            if meant is None:
                return _Foreign(name, self._position_told(event.content))
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

    def _position_told(self, content: Any) -> str:
        try:
            return self.position(content)
        except Refusal:
            return ""

    def join(self, pieces: Sequence[LogRow]) -> Decoded | Waiting | Unjoinable:
        return Waiting()

    def incomplete(self, pieces: Sequence[LogRow], reason: str) -> list[LogRow]:
        return []

    def again(self, origin: str, place: int, body: bytes, source: str | None) -> RawMessage:
        return RawMessage(origin, place, body)


def change_rows(
    at: LogRow, op: str, keys: Sequence[str | None], cols: str, row: str | None, before: str | None
) -> list[LogRow]:
    """The rows of one change; an update that gave its row another key is two, at one place (G-03).

    *at* has a position whose ``sub`` is 0 for a delete, else 1. *keys* are those of the row before and of the row
    after, encoded; one of them, where there is only one row. *before* are the known values of the row before.
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
    """JSON without a guess: whole numbers as ``int``, others a :class:`JsonNumber`, texts that are text."""
    try:
        found = json.loads(body.decode(), parse_float=JsonNumber, parse_constant=no_number)
        json.dumps(found, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except UnicodeDecodeError as error:
        raise Refusal("MESSAGE_INVALID", f"the message is no UTF-8: {error}") from error
    except (ValueError, RecursionError) as error:
        raise Refusal("MESSAGE_INVALID", f"the message is no JSON: {error}") from error
    return found
