"""Reads the row images of data messages: values as strings, the columns really sent, keys (K-20 to K-23, K-27, K-30).

A column that the column mask does not name is unknown. It is not NULL, though the message contains null (K-23).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from open_mirroring.errors import TerminalError
from spark_jobs.changelog.schema import image_mark
from spark_jobs.sources.contract.decoded import MirroredTable, Refusal, shown
from spark_jobs.sources.contract.json_numbers import JsonNumber, may_be_rounded, rounded
from spark_jobs.sources.qlik.message.structures import Column, Structure
from spark_jobs.sources.qlik.types import RANGES, is_longer_than_a_double, is_out_of_range, key_type
from spark_jobs.sources.sql_server.chosen_types import chosen_digits, chosen_key_converter
from spark_jobs.sources.sql_server.type_text import is_large
from spark_jobs.sources.sql_server.types import BinaryText, hex_of_base64, is_same_value

Image = dict[str, str | None]
"""Column name to value text, for the names in the message."""

_IMAGES_KEPT = 1000
"""Structures cached: a table has few, and a hostile stream must not exhaust the memory."""
_WRITTEN_KEPT = 1000
"""Selections of columns cached: a task sends few, and a hostile stream must not exhaust the memory."""

_TEXT_TYPES = ("varchar", "nvarchar", "char", "nchar")
_encode = msgspec.json.encode


class Row(NamedTuple):
    """A row image as the change log stores it: its columns, its values, and whether it has all columns of the table."""

    cols: str
    values: str
    whole: bool


class _Written(NamedTuple):
    """How images with the same names are written: ``names`` in this order, or None for unchanged."""

    cols: str
    whole: bool
    names: tuple[str, ...] | None


class TableImages:
    """How row images of one structure are written to the change log for one mirrored table."""

    def __init__(self, structure: Structure, table: MirroredTable, binary: BinaryText) -> None:
        self.structure = structure
        self.source, self.key = table.source, table.key
        self.keys_never_change, self.full_rows = table.keys_never_change, table.full_rows
        self.logs_transactions = table.columns.logs_transactions
        self._fills = table.complete_rows
        self._chosen = table.columns
        mirrored = {*table.columns.of(column.name for column in structure.columns), *table.key}
        columns = [_with_chosen_decimal(column, table.columns.type_of(column.name)) for column in structure.columns]
        self._kept = [column for column in columns if column.name in mirrored]
        self._fixes = {
            column.name: hex_of_base64 for column in columns if binary == "base64" and _is_any_of(column, "varbinary")
        }
        self._key = [(name, self._key_text(name)) for name in table.key]
        self._large = [column.name for column in structure.columns if column.is_large]
        self._texts = frozenset(column.name for column in self._kept if _is_any_of(column, *_TEXT_TYPES))
        self._exact = tuple(
            column.name for column in self._kept if is_longer_than_a_double(column.type, column.precision)
        )
        self.ranges = {c.name: RANGES[c.type.upper()] for c in self._kept if c.type.upper() in RANGES}
        """The columns whose type has a smaller range than the log's type."""
        self._how_written = lru_cache(_WRITTEN_KEPT)(self._written)
        self.judged = tuple(column for column in self._kept if column.name not in self.key and _is_in_masks(column))
        """The columns at which a change mask and a pair of images can contradict each other (K-69)."""
        others = [column for column in self._kept if column.name not in self.key]
        self.is_marked = bool(others) and all(map(_is_in_masks, others))
        """Whether the log has the marks of old rows (G-190)."""
        self.key_bits = sum(structure.by_name[name].bit for name in table.key if name in structure.by_name)
        self._all_bits = sum(column.bit for column in structure.columns)
        self.key_differs = bool(structure.key_names) and structure.key_names != frozenset(table.key)

    def json_image(self, values: Any, name: str) -> Image | None:
        """The row image ``data`` or ``beforeData`` (*name*) of a JSON message; None if it is null or missing."""
        if values is None:
            return None
        if not isinstance(values, dict):
            raise Refusal("ROW_INVALID", f"{name} is not an object but {shown(values)}")
        if not values.keys() <= self.structure.by_name.keys():
            unknown = min(values.keys() - self.structure.by_name.keys())
            raise Refusal("ROW_INVALID", f"{name} has a value for {shown(unknown)}, which is not an announced column")
        try:
            image: Image = {
                column: value if type(value) is str or value is None else _TEXTS[type(value)](value)
                for column, value in values.items()
            }
        except KeyError:
            odd = next(c for c, value in values.items() if type(value) is dict or type(value) is list)
            raise Refusal("ROW_INVALID", f"the value of {shown(odd)} in {name} is not a plain value") from None
        if bool in map(type, values.values()):
            for column, value in values.items():
                if type(value) is bool and column in self._texts:
                    raise Refusal("ROW_INVALID", f"the value of {shown(column)} in {name} is not text")
        for column in self._exact:
            if may_be_rounded(values.get(column)):
                raise Refusal("ROW_INVALID", f"{rounded(shown(column), values[column])}: in {name}")
        for column, fix in self._fixes.items():
            value = image.get(column)
            if value is not None:
                try:
                    image[column] = fix(value)
                except ValueError as error:
                    raise Refusal("ROW_INVALID", f"the value of {shown(column)} in {name}: {error}") from error
        return image

    def avro_image(self, values: Any, name: str) -> Image | None:
        """The row image ``data`` or ``beforeData`` (*name*) of an Avro message; None if it is null."""
        if values is None:
            return None
        try:
            return self.structure.avro.image(values)
        except (ValueError, KeyError, TypeError) as error:
            raise Refusal("ROW_INVALID", f"{name}: {error}") from error

    @property
    def key_converters(self) -> tuple[Callable[[str], str], ...]:
        """Functions that convert strings of the key columns to canonical form, in the key's order.

        Empty if the table has no key, or if a key column has no such function.
        """
        found = tuple(convert for _, convert in self._key if callable(convert))
        return found if len(found) == len(self._key) else ()

    @property
    def plain_columns(self) -> str | None:
        """The ``cols`` of row images that have all columns, if such images are written unchanged; else None."""
        written = self._how_written(tuple(self.structure.by_name))
        return written.cols if written.names is None else None

    def holds_key(self, image: Image | None) -> bool:
        """Whether *image* contains the key; a null in a key column means that the value was not sent (K-30)."""
        if image is None:
            return False
        return all(image.get(name) is not None for name in self.key)

    def shows_all(self, image: Image) -> bool:
        """Whether *image* has every mirrored column that masks show.

        Large objects are not checked: masks omit them, and a null may mean that the object was not sent (K-22).
        """
        return all(column.name in image for column in self._kept if not column.is_large)

    def filled(self, image: Image) -> Image:
        """The image of a new row, with NULL for missing columns if the table sets `complete_rows`.

        Without `complete_rows` the image is unchanged.
        """
        return {column.name: image.get(column.name) for column in self.structure.columns} if self._fills else image

    def same_key(self, one: Image, other: Image) -> bool:
        """Whether the key columns of two row images have equal strings; different strings may still be the same key."""
        return all(one.get(name) == other.get(name) for name in self.key)

    def key_texts(self, image: Image) -> list[str]:
        """The canonical strings of the key columns (G-02). Raises a Refusal if a key column has no valid value."""
        texts = []
        for name, convert in self._key:
            if convert is None:
                raise Refusal("KEY_INVALID", f"the key column {shown(name)} is not an announced column")
            if isinstance(convert, str):
                raise Refusal("KEY_INVALID", convert)
            value = image.get(name)
            if value is None:
                raise Refusal("KEY_INVALID", f"the row has no value for the key column {shown(name)}")
            try:
                texts.append(convert(value))
                value.encode()  # half a surrogate pair is a ValueError: no key can contain it
            except ValueError as error:
                raise Refusal("KEY_INVALID", f"the key column {shown(name)}: {error}") from error
        return texts

    def present(self, image: Image, mask: int | None) -> Image:
        """A row image without the columns that the column mask leaves out (K-23).

        Masks may omit large objects, so a large object is left out only if it is null (K-22).
        """
        if mask is None or (mask == self._all_bits and image.keys() == self.structure.by_name.keys()):
            return image
        found: Image = {}
        for column in self.structure.columns:
            name = column.name
            if mask & column.bit:
                if name not in image:
                    raise Refusal("MASK_INVALID", f"columnMask names {shown(name)}, which is not in the message")
                found[name] = image[name]
            elif image.get(name) is not None:
                if not column.is_large:
                    raise Refusal("MASK_INVALID", f"columnMask leaves {shown(name)} out, but it has a value")
                found[name] = image[name]
        return found

    def lacks(self, image: Image, bits: int) -> str | None:
        """The first mirrored column in the mask *bits* that is absent or NULL in *image*.

        None if *image* has a value for each of these columns.
        """
        return next((c.name for c in self._kept if image.get(c.name) is None and bits & c.bit), None)

    def after(self, image: Image) -> Row:
        """The row after a change, as the change log stores it."""
        for column, (low, high) in self.ranges.items():
            if is_out_of_range(image.get(column), low, high):
                raise Refusal("ROW_INVALID", f"the value of {shown(column)} is not from {low} to {high}")
        return self._row(image)

    def before(self, image: Image) -> Row:
        """The row before a change, as the change log stores it.

        Large objects that are null are left out, because they may not have been sent (K-22).
        """
        unsent = [name for name in self._large if name in image and image[name] is None]
        return self._row({name: value for name, value in image.items() if name not in unsent} if unsent else image)

    def mark(self, before: Image, image: Image) -> int | None:
        """A short hash of the row *before* an update; None if it may lack values, such as large objects (T-94).

        *image* is the row after the update.
        """
        names = [column.name for column in self._kept]
        if not self.is_marked or not before.keys() >= set(names):
            return None
        if all(before[name] is None for name in names if name not in self.key) or any(
            before[name] is None and image.get(name) is not None for name in names
        ):
            return None
        try:
            return image_mark(_encode({name: before[name] for name in names}))
        except UnicodeEncodeError:
            return None

    def _row(self, image: Image) -> Row:
        found = self._how_written(tuple(image))
        values = image if found.names is None else {name: image[name] for name in found.names}
        try:
            return Row(found.cols, _encode(values).decode(), found.whole)
        except UnicodeEncodeError as error:
            raise Refusal("ROW_INVALID", f"a value is not text: {error.reason}") from error

    def _written(self, carried: tuple[str, ...]) -> _Written:
        columns = [column for column in self._kept if column.name in carried]
        try:
            typed = [(c, self._type_of(c)) for c in columns]
            cols = _encode([[c.name, type_, c.ordinal - 1] for c, type_ in typed]).decode()
        except TerminalError as error:
            raise Refusal("ROW_INVALID", error.what) from error
        names = tuple(column.name for column in columns)
        return _Written(cols, len(columns) == len(self._kept), None if names == carried else names)

    def is_same_value(self, column: Column, one: str | None, other: str | None) -> bool:
        """Whether two strings are the same value of a column.

        If the column's type is unknown and it lands as text, only equal strings are the same value.
        """
        try:
            return is_same_value(self._type_of(column), one, other)
        except TerminalError as error:
            raise Refusal("ROW_INVALID", error.what) from error

    def _type_of(self, column: Column) -> str:
        chosen = self._chosen.type_of(column.name)
        try:
            log_type = column.log_type()
        except TerminalError:
            # Only text lands as it was sent; a NUMERIC without digits does not land as text here (G-110).
            if chosen != "string" or column.type.upper() == "NUMERIC":
                raise
            return column.type
        return key_type(log_type, chosen) if column.name in self.key else log_type

    def _key_text(self, name: str) -> Callable[[str], str] | str | None:
        """The converter of a key column's text to canonical form, or why there is none; None without such a column."""
        column = next((one for one in self._kept if one.name == name), None)
        if column is None:
            return None
        try:
            return chosen_key_converter(self._type_of(column), self._chosen.type_of(name))
        except (TerminalError, ValueError) as error:
            return f"the key column {shown(name)}: {error}"


table_images = lru_cache(maxsize=_IMAGES_KEPT)(TableImages)
""":class:`TableImages`, cached."""

_TEXTS: Mapping[type, Callable[[Any], str]] = {
    JsonNumber: str,
    int: str,
    bool: lambda value: "true" if value else "false",
}
"""The texts of JSON's plain values besides texts and null."""


def _with_chosen_decimal(column: Column, chosen: str | None) -> Column:
    if column.known_type is None and column.precision < 1:
        return column._replace(known_type=chosen_digits(column.type, chosen))
    return column


def _is_any_of(column: Column, *types: str) -> bool:
    try:
        return column.log_type().startswith(types)
    except TerminalError:
        return False


def _is_in_masks(column: Column) -> bool:
    """Whether masks show a column: not if it is, or may be, a large object (K-22)."""
    return not column.is_large and (column.known_type is None or not is_large(column.known_type))
