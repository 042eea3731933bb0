"""Matches the usual form of Qlik messages by regular expressions over their bytes (K-01, K-02, K-16 to K-28).

A match is valid JSON without duplicate names. An escape matches only if the change log spells it equally, so that
values can be copied. Public source: Qlik Help, *The Replicate envelope* and *Metadata and data messages*.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

_PLAIN = rb"[ !#-\[\]-\xff]*+"
"""Characters that represent themselves. That they are valid UTF-8 is not proved here."""
_TEXT = rb'"' + _PLAIN + rb'(?:\\["\\bfnrt]' + _PLAIN + rb')*+"'
_NUMBER = rb"-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+"
_UNQUOTED = re.compile(rb'(?<!\\)":(true|false|' + _NUMBER + rb")(?=[,}])")
"""A value without quotes. Inside a text, a quote before a colon has a backslash before it."""
_ID = rb"[0-9A-Za-z_.-]{1,64}"

JSON_HEAD = re.compile(
    rb'\{"magic":"atMSG","type":"DT","headers":null,"messageSchemaId":(?:null|"(?P<id>'
    + _ID
    + rb')"),"messageSchema":null,'
    rb'"message":\{"data":'
)
"""A data message in its envelope up to its row: the id of its structure."""
AVRO_HEAD = re.compile(rb"atMSG\x04DT\x00\x02\x40(?P<id>[0-9A-Za-z]{32})\x00(?P<length>[\x80-\xff]{0,3}[\x00-\x7f])")
"""A data message in an Avro envelope up to its record: the id of its structure in 32 characters (K-02), the record's
length in Avro's encoding."""
REGISTRY_HEAD = re.compile(rb"(?P<id>\x00[\x00-\xff]{4})(?=[\x00-\xff])")
"""The frame of a schema registry: a zero byte and the number of the schema (K-04); an empty record has none."""
HEADS = {ord("{"): JSON_HEAD, ord("a"): AVRO_HEAD, 0: REGISTRY_HEAD}
"""The possible heads of a message by its first byte."""
IS_DATA = re.compile(rb'\{"magic":"atMSG","type":"DT",|atMSG\x04DT|\x00')
"""The beginning of a data message, or of an invalid message; neither announces a structure."""

_QUOTED = rb"(?:null|" + _TEXT + rb")"
_TOLD = rb"(?:null|(?P<%b>" + _TEXT + rb"))"
_HEADERS = (
    rb',"headers":\{"operation":"(?P<operation>REFRESH|INSERT|UPDATE|DELETE)",'
    rb'"changeSequence":(?:null|"(?P<sequence>[0-9]*+)"),'
    rb'"timestamp":' + _TOLD % b"timestamp" + rb',"streamPosition":' + _QUOTED
    + rb',"transactionId":' + _TOLD % b"transaction" + rb',"changeMask":(?:null|"(?P<change>[0-9A-Fa-f]*+)"),'
    rb'"columnMask":(?:null|"(?P<column>[0-9A-Fa-f]*+)"),(?:"externalSchemaId":(?:null|' + _TEXT + rb"|" + _NUMBER
    + rb'),)?+"transactionEventCounter":(?:null|(?P<counter>0|[1-9][0-9]{0,17}+)),'
    rb'"transactionLastEvent":(?:null|true|false)\}\}\}'
)  # fmt: skip


def is_record(head: re.Match[bytes], size: int) -> bool:
    """Whether the rest of a message after *head*, with *size* bytes, is exactly one record."""
    return head.re is not AVRO_HEAD or _number(head["length"]) == 2 * size


@lru_cache(maxsize=4096)
def _number(encoded: bytes) -> int:
    number = 0
    for byte in reversed(encoded):
        number = number << 7 | byte & 0x7F
    return number


class JsonColumn(NamedTuple):
    """How a column's values are written in JSON: as strings in quotes, or without quotes."""

    name: str
    is_quoted: bool


class JsonPattern:
    """The pattern of the part of a message after :data:`JSON_HEAD`, for one structure.

    A match proves that both row images have the same key without null. *in_before*: the row is in ``beforeData``, and
    ``data`` is null. Raises ValueError if a column's name needs escapes in JSON.
    """

    def __init__(self, columns: Sequence[JsonColumn], key: Sequence[str], *, in_before: bool) -> None:
        if not all(re.fullmatch(_PLAIN, column.name.encode()) for column in columns):
            raise ValueError("a column's name needs escapes")
        self._key = tuple(key)
        row = self._row(columns)
        other = rb"(?:null|(?P<before>" + self._other_row(columns) + rb"))"
        parts = rb'null,"beforeData":(?P<before>)' + row if in_before else row + rb',"beforeData":' + other
        compiled = re.compile(parts + _HEADERS)
        self.fullmatch, group = compiled.fullmatch, compiled.groupindex
        names = ["operation", "sequence", "change", "column", "counter", "before"]
        names += [f"key{number}" for number in range(len(key))]
        self.fields = tuple(group[name] for name in names)
        """Groups of the headers, ``beforeData`` (None if it is null, empty if it is the row), and the key."""
        self.transaction = (group["timestamp"], group["transaction"])
        """Groups of the time and transaction of a change, each with its quotes."""
        self._pieces = tuple(group[f"piece{number}"] for number in range(2 * self._unquoted + 1))
        self._image = b'"'.join([b"%b"] * len(self._pieces))

    def image(self, found: re.Match[bytes]) -> bytes:
        """The matched row as the change log stores it: every value except null is in quotes."""
        if not self._unquoted:
            return found[self._pieces[0]]
        pieces = found.group(*self._pieces)
        if None not in pieces:
            return self._image % pieces
        values = [b"null" if value is None else b'"%b"' % value for value in pieces[1::2]]
        return pieces[0] + b"".join([part for pair in zip(values, pieces[2::2], strict=True) for part in pair])

    def other_image(self, before: bytes) -> bytes:
        """The row image *before* as the change log stores it: every value except null is in quotes."""
        return _UNQUOTED.sub(rb'":"\1"', before) if self._unquoted else before

    def _row(self, columns: Sequence[JsonColumn]) -> bytes:
        written, self._unquoted = [rb"(?P<piece0>\{"], 0
        for place, column in enumerate(columns):
            written.append(_name(column, place))
            if column.is_quoted:
                text = _QUOTED
                if column.name in self._key:
                    text = rb'"(?P<key%d>%b)"' % (self._key.index(column.name), _PLAIN)
                written.append(text)
                continue
            value = rb"(?P<piece%d>" % (2 * self._unquoted + 1)
            if column.name in self._key:
                value += rb"(?P<key%d>-?(?:0|[1-9][0-9]{0,18}+)))" % self._key.index(column.name)
            else:
                value = rb"(?:null|" + value + rb"true|false|" + _NUMBER + rb"))"
            self._unquoted += 1
            written.append(rb")" + value + rb"(?P<piece%d>" % (2 * self._unquoted))
        return b"".join([*written, rb"\})"])

    def _other_row(self, columns: Sequence[JsonColumn]) -> bytes:
        written = [rb"\{"]
        for place, column in enumerate(columns):
            value = _QUOTED if column.is_quoted else rb"(?:null|true|false|" + _NUMBER + rb")"
            if column.name in self._key:
                quote = b'"' if column.is_quoted else b""
                value = quote + rb"(?P=key%d)" % self._key.index(column.name) + quote
            written.append(_name(column, place) + value)
        return b"".join([*written, rb"\}"])


def _name(column: JsonColumn, place: int) -> bytes:
    return (b',"' if place else b'"') + re.escape(column.name.encode()) + rb'":'


json_pattern = lru_cache(maxsize=256)(JsonPattern)
"""The pattern of these columns, cached in the process."""
