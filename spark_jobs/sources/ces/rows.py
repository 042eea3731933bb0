"""Reads and writes the row images of change events (C-41 to C-45, C-49, C-71 to C-73, C-84).

An image is the text of a JSON object, usually of strings and nulls only. That case takes the fast reader, and only if
writing the result again proves that no name stood there twice; everything else takes the exact one.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Collection
from typing import Any

import msgspec

from open_mirroring.errors import TerminalError
from spark_jobs.sources.contract.decoded import Refusal, shown
from spark_jobs.sources.sql_server.row_columns import Column, RowColumns
from spark_jobs.sources.sql_server.type_text import BINARY, read_type
from spark_jobs.sources.sql_server.types import BinaryText, is_large

CUT_LENGTH = 2**20
"""Longer values are silently cut to this length at the source (C-50)."""

Image = dict[str, str | None]
"""Column name to value text; the names that were there, in the order in which they were there."""

_decode_columns = msgspec.json.Decoder(list[Column]).decode
_decode_image = msgspec.json.Decoder(dict[str, str | None]).decode
_encode = msgspec.json.encode
_NAME = re.compile(r'"[ \t\r\n]*:')


class ColumnList(RowColumns):
    """The columns one event announces, and how images of them are read and written for one table.

    Args:
        raw: the JSON text of ``cols``.
        key: key columns of the table.
        allowed: the only columns that may leave, besides the key; None for all.
        binary: how binary values are spelled.

    Raises:
        Refusal: ``COLUMNS_INVALID`` or ``TOO_LARGE``.
    """

    def __init__(self, raw: bytes, key: tuple[str, ...], allowed: frozenset[str] | None, binary: BinaryText) -> None:
        columns = _read_columns(raw)
        super().__init__(columns, key, allowed)
        self._columns = columns
        self._all_kept = len(self.kept) == len(columns)
        self.large = frozenset(c.name for c in columns if is_large(c.type))
        self._base64 = frozenset(c.name for c in columns if binary == "base64" and _is_binary(c.type))

    def read(self, text: str) -> tuple[Image, str | None]:
        """An image and, where the text can stand in the log as it is, its compact JSON.

        Raises:
            Refusal: ``ROW_MALFORMED``.
        """
        try:
            image = _decode_image(text)
        except (msgspec.DecodeError, RecursionError):
            image = _exact_image(text)
            proven = None
        else:
            proven = _encode(image).decode()
            # Each name is followed by one colon at least: as many of them as names leave no room for a second one.
            if proven != text and len(_NAME.findall(text)) != len(image):
                image = _exact_image(text)
                proven = None
        if self._base64:
            image, proven = {name: self.spelled(name, value) for name, value in image.items()}, None
        if tuple(image) == self.names:
            return image, proven if self._all_kept else None
        for name in image:
            if name not in self.types:
                raise Refusal("ROW_MALFORMED", f"the row has a value for {shown(name)}, which is not in cols")
        return image, None

    def absent_from(self, image: Image) -> tuple[str, ...]:
        """The columns that an image has no value for, not even NULL."""
        return tuple(name for name in self.kept if name not in image)

    def written_without(self, image: Image, untold: Collection[str]) -> tuple[str, str]:
        """The columns of an update that tells nothing of some, and its row (G-04, C-96).

        That a column is missing is seen by the gap between the places of the others. Where the last ones are missing
        there is none, so the places begin with 1 then.
        """
        told = [column for column in self._columns if column.name in self.kept and column.name not in untold]
        shift = int(sorted(c.index for c in told) == list(range(len(told))))
        text = _encode([[c.name, c.type, c.index + shift] for c in told]).decode()
        return text, self._written(image, tuple(c.name for c in told))

    @property
    def is_respelled(self) -> bool:
        """Whether the log spells values otherwise than the source does."""
        return bool(self._base64)

    def spelled(self, name: str, value: str | None) -> str | None:
        """A value as the log spells it, which is as the source does but for binary ones in base64.

        Raises:
            Refusal: ``ROW_MALFORMED``.
        """
        if value is None or name not in self._base64:
            return value
        try:
            return "0x" + base64.b64decode(value, validate=True).hex().upper()
        except (binascii.Error, ValueError):
            raise Refusal("ROW_MALFORMED", f"the value of {shown(name)}, {shown(value)}, is no base64") from None

    def write(self, image: Image) -> str:
        """A current row in the order of the columns. A value that is absent is NULL (C-84)."""
        return self._written(image, self.kept)

    def write_old(self, image: Image) -> str:
        """An old row in the order of the columns, only what the image tells for certain.

        The source leaves out old large objects unless asked (C-71); whether as NULL or not at all is documented
        nowhere. So a large object of which an old image has no value is not told, nor is what is absent.
        """
        told = tuple(n for n in self.kept if n in image and (image[n] is not None or n not in self.large))
        return self._written(image, told)

    def _written(self, image: Image, names: tuple[str, ...]) -> str:
        return _encode({name: image.get(name) for name in names}).decode()

    def cut_values(self, image: Image) -> list[str]:
        """The columns whose value has exactly the length at which the source cuts."""
        told = [(name, image.get(name)) for name in self.kept]
        return [n for n, value in told if value is not None and CUT_LENGTH in _lengths(self.types[n], value)]


def _read_columns(raw: bytes) -> list[Column]:
    try:
        return _decode_columns(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refusal("COLUMNS_INVALID", f"cols: {error}") from error


def _is_binary(sql_type: str) -> bool:
    try:
        return read_type(sql_type).name in BINARY
    except (TerminalError, ValueError):
        return False


def _exact_image(text: str) -> Image:
    """Read an image that is not plain: any scalar becomes text, numbers keep theirs; nothing else passes."""
    try:
        parsed = json.loads(
            text, object_pairs_hook=_unique, parse_int=str, parse_float=str, parse_constant=_no_such_number
        )
        text.encode()
    except (ValueError, RecursionError) as error:
        raise Refusal("ROW_MALFORMED", f"a row is no JSON object of plain values: {error}") from error
    if not isinstance(parsed, dict):
        raise Refusal("ROW_MALFORMED", f"a row is no JSON object: {shown(text)}")
    image: Image = {}
    for name, value in parsed.items():
        if isinstance(value, bool):
            value = "true" if value else "false"
        if value is not None and not isinstance(value, str):
            raise Refusal("ROW_MALFORMED", f"the value of {shown(name)} is no plain value")
        try:
            (name + (value or "")).encode()
        except UnicodeEncodeError as error:
            raise Refusal("ROW_MALFORMED", f"the value of {shown(name)} is no text: {error.reason}") from error
        image[name] = value
    return image


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {shown(twice)} stands there twice")
    return found


def _no_such_number(text: str) -> None:
    raise ValueError(f"{text} is no JSON number")


def _lengths(sql_type: str, value: str) -> tuple[int, ...]:
    """The lengths in bytes that a value may have had at the source, and its length in characters."""
    utf16 = len(value.encode("utf-16-le"))
    binary = (len(value.removeprefix("0x")) // 2,) if "binary" in sql_type or sql_type == "image" else ()
    national = (utf16,) if sql_type.startswith("n") else ()
    return (len(value), len(value.encode()), *binary, *national)
