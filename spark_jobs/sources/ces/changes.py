"""Converts one change event (INSERT, UPDATE or DELETE) of a mirrored table to rows of the change log (A3, A6).

An UPDATE that changes the key becomes two rows at one log position: the first row removes the old key (``sub`` 0), the
second row sets the new key (``sub`` 1). Without the first row, the target would keep the row under its old key (G-03,
C-73).
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, NamedTuple

import msgspec

from open_mirroring.changes.column_choice import ColumnChoice
from open_mirroring.changes.row_key import encode_key, key_bucket
from spark_jobs.changelog.schema import CHANGE, DELETE, INSERT, KEY_LEFT, UPDATE, LogRow, image_mark
from spark_jobs.sources.ces.envelope import Data, Event, KeyPart
from spark_jobs.sources.contract.decoded import MirroredTable, Refusal, shown
from spark_jobs.sources.contract.json_numbers import DOUBLE_DIGITS, JsonNumber, may_be_rounded, rounded
from spark_jobs.sources.sql_server.row_columns import Column, RowColumns
from spark_jobs.sources.sql_server.type_text import BINARY, MONEY, is_large, read_any
from spark_jobs.sources.sql_server.types import BinaryText, hex_of_base64, is_another_row, is_unfilled

CUT_LENGTH = 2**20
"""The source silently cuts longer values to this length (C-50)."""

_NATIONAL = (("utf-16-le", 4), ("utf-8", 4))
_CODE_PAGES = (("utf-8", 4), ("cp932", 2), ("gbk", 2), ("cp949", 2), ("big5", 2))
"""Encodings with more than one byte per character in which the source may store a value, and their maximum bytes."""

Image = dict[str, str | None]
"""The values of a row before or after a change: column name to text (None: NULL), in the order of the source."""

_decode_columns = msgspec.json.Decoder(list[Column]).decode
_decode_image = msgspec.json.Decoder(dict[str, str | None]).decode
_decode_plain = msgspec.json.Decoder(dict[str, Any], float_hook=JsonNumber).decode
_encode = msgspec.json.encode
_COLUMN_LISTS_KEPT = 1000
"""The maximum of column lists cached per table: a table has few, and a hostile stream must not exhaust the memory."""


class ColumnList(RowColumns):
    """The column list of an event (``cols``): how row images with these columns are read and written to the change log.

    *key* are the key columns of the table, *chosen* its mirrored columns. *binary* is the encoding of binary values in
    the event.
    """

    def __init__(self, raw: bytes, key: tuple[str, ...], chosen: ColumnChoice, binary: BinaryText) -> None:
        try:
            columns = _decode_columns(raw)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise Refusal("ROW_INVALID", f"cols: {error}") from error
        super().__init__(columns, key, chosen)
        self._columns = columns
        self._all_kept = len(self.kept) == len(columns)
        self.logs_transactions = chosen.logs_transactions
        self.large = frozenset(c.name for c in columns if is_large(c.type))
        kinds = [(c.name, read_any(c.type)) for c in columns]
        numbers = [(name, kind) for name, kind in kinds if kind.name in ("decimal", *MONEY)]
        self._exact = frozenset(name for name, kind in numbers if kind.digits[0] > DOUBLE_DIGITS)
        self.base64 = frozenset(name for name, kind in kinds if binary == "base64" and kind.name in BINARY)

    def read(self, text: str) -> tuple[Image, str | None]:
        """Parses the JSON of a row image.

        Returns the values by column, and the image as compact JSON. The JSON is None if the change log cannot store the
        image as it is: the log spells values differently, or the image has not exactly the mirrored columns.
        """
        try:
            image = _decode_image(text)
        except (msgspec.DecodeError, RecursionError):
            image = self._exact_image(text)
            proven = None
        else:
            proven = _encode(image).decode()
        if self.base64:
            image, proven = {name: self.spelled(name, value) for name, value in image.items()}, None
        if tuple(image) == self.names:
            return image, proven if self._all_kept else None
        for name in image:
            if name not in self.types:
                raise Refusal("ROW_INVALID", f"the row has a value for {shown(name)}, which is not in cols")
        return image, None

    def _exact_image(self, text: str) -> Image:
        """An image that is not plain. A number that may have lost digits in transit is not a value (G-112)."""
        try:
            parsed = _decode_plain(text)
        except (ValueError, RecursionError) as error:
            raise Refusal("ROW_INVALID", f"a row is no JSON object of plain values: {error}") from error
        image: Image = {}
        for name, value in parsed.items():
            if isinstance(value, int):
                value = json.dumps(value)
            if value is not None and not isinstance(value, str):
                raise Refusal("ROW_INVALID", f"the value of {shown(name)} is no plain value")
            if name in self._exact and may_be_rounded(value):
                raise Refusal("ROW_INVALID", rounded(shown(name), value))
            image[name] = None if value is None else str(value)
        return image

    def absent_from(self, image: Image) -> tuple[str, ...]:
        """The mirrored columns that are missing in *image*; a column with the value NULL is not missing."""
        return tuple(name for name in self.kept if name not in image)

    def written_without(self, image: Image, unsent: Collection[str]) -> tuple[str, str]:
        """The column list and the row, both as JSON, for an update without the columns *unsent* (G-04, C-96).

        Readers of the change log recognize missing columns by a gap between the positions of the columns. If only the
        last columns are missing, there is no gap; then all positions are increased by 1, so that position 0 is the
        gap.
        """
        sent = [column for column in self._columns if column.name in self.kept and column.name not in unsent]
        shift = int(sorted(c.index for c in sent) == list(range(len(sent))))
        text = _encode([[c.name, c.type, c.index + shift] for c in sent]).decode()
        return text, self._written(image, tuple(c.name for c in sent))

    def spelled(self, name: str, value: str | None) -> str | None:
        """A value of the column *name* as the change log stores it: base64 becomes hexadecimal."""
        if value is None or name not in self.base64:
            return value
        try:
            return hex_of_base64(value)
        except ValueError:
            raise Refusal("ROW_INVALID", f"the value of {shown(name)}, {shown(value)}, is no base64") from None

    def write(self, image: Image) -> str:
        """The JSON of a row after a change, with the columns in order; missing values become NULL (C-84)."""
        return self._written(image, self.kept)

    def write_old(self, image: Image) -> str:
        """The JSON of a row before a change, without large objects that are NULL: they may not be sent (C-71)."""
        sent = tuple(n for n in self.kept if n in image and (image[n] is not None or n not in self.large))
        return self._written(image, sent)

    def mark(self, old: Image) -> int | None:
        """A short hash of the row before an update; None unless the image *old* certainly has all columns (C-71)."""
        if self.large or not old.keys() >= set(self.kept):
            return None
        return image_mark(self.write(old).encode())

    def _written(self, image: Image, names: tuple[str, ...]) -> str:
        return _encode({name: image.get(name) for name in names}).decode()


def _may_be_cut(sql_type: str, value: str) -> bool:
    """Whether a value has the length at which the source cuts; the character that the cut divides may be gone."""
    name = read_any(sql_type).name
    if name in BINARY and len(value.removeprefix("0x")) // 2 == CUT_LENGTH:
        return True
    text = value.removesuffix("\ufffd")
    for encoding, widest in _NATIONAL if name.startswith("n") else _CODE_PAGES:
        if not len(text) - 1 <= CUT_LENGTH < widest * (len(text) + 1):
            continue
        try:
            lacking = CUT_LENGTH - len(text.encode(encoding))
            if not lacking or (0 < lacking < widest and lacking < max(len(one.encode(encoding)) for one in set(text))):
                return True
        except UnicodeEncodeError:
            continue
    return len(value) == CUT_LENGTH


class Outcome(NamedTuple):
    """The result of decoding one message: the rows of the change log; no rows if the message's table is not mirrored.

    *foreign* is the name of the table if it is not mirrored, *at* the log position of the message, if known. *sender*
    is the database in which the change was made. *old_key_missing*: the update does not show the key that the row had
    before.
    """

    rows: tuple[LogRow, ...]
    foreign: str = ""
    at: str = ""
    sender: str = ""
    old_key_missing: bool = False


class SourceTable:
    """A mirrored table, with a cache of the column lists in its events."""

    def __init__(self, table: MirroredTable, binary: BinaryText) -> None:
        self.source = table.source
        self.key = table.key
        self.key_names = frozenset(table.key)
        self.refuse_narrower_key = table.refuse_narrower_key
        self.full_rows, self.keys_never_change = table.full_rows, table.keys_never_change
        self._chosen = table.columns
        self._binary = binary
        self._lists: dict[bytes, ColumnList] = {}

    def columns(self, raw: bytes) -> ColumnList:
        """Parses *raw*, the JSON of an event's ``cols``; a column list that was parsed before comes from the cache."""
        found = self._lists.get(raw)
        if found is None:
            if len(self._lists) >= _COLUMN_LISTS_KEPT:
                self._lists.clear()
            found = self._lists[raw] = ColumnList(raw, self.key, self._chosen, self._binary)
        return found


def change(event: Event, data: Data, table: SourceTable, origin: str, place: int) -> Outcome:
    """Converts a complete event to rows of the change log.

    *origin* and *place* locate the event's message at the source. Raises a Refusal, which becomes a dead letter, if
    the event contradicts itself or does not show its key.
    """
    images = data.images
    if images is None:
        raise Refusal("MESSAGE_INVALID", "data has no eventrow, or has eventdata next to it")
    parts = data.eventsource.pkkey
    if parts and len(parts) > 1 and len({part.columnname for part in parts}) != len(parts):
        raise Refusal("MESSAGE_INVALID", "pkkey names a column twice")
    table.refuse_narrower_key([part.columnname for part in parts or ()])
    columns = table.columns(bytes(data.eventsource.cols))
    pos = event.position(0 if event.operation == "DEL" else 1)
    at = LogRow(CHANGE, origin, place, table.source, -1, event.epoch, pos, cols=columns.text, whole=True)
    if columns.logs_transactions:
        at = at._replace(committed=event.committed, transaction=event.lsn)
    if event.operation == "DEL":
        if not _is_empty(images.current):
            raise Refusal("ROW_INVALID", "a DEL with a current row")
        return Outcome((_deletion(at, data, table, columns, images.old),))
    if images.current is None or _is_empty(images.current):
        raise Refusal("ROW_INVALID", f"an {event.operation} without a current row")
    image, text = columns.read(images.current)
    row = text or columns.write(image)
    absent = () if text or event.operation == "INS" else columns.absent_from(image)
    texts = columns.key_texts(image)
    key = encode_key(texts) if texts else None
    if len(row) >= CUT_LENGTH // 4:
        cut = [name for name in columns.kept if _may_be_cut(columns.types[name], image.get(name) or "")]
        if cut:
            raise Refusal("VALUE_INVALID", f"{shown(cut)} is of exactly 1 MB, at which the source cuts", key)
    if event.operation == "INS":
        if not _is_empty(images.old):
            raise Refusal("ROW_INVALID", "an INS with an old row", key)
        _refuse_another_row(data, columns, image)
        return Outcome((_row(at, INSERT, key, row=row),))
    try:
        old = columns.read("{}" if images.old is None else images.old)[0]
    except Refusal as refusal:
        raise Refusal(refusal.code, f"old: {refusal.reason}", key) from refusal
    _refuse_another_row(data, columns, image, old)
    whole = _is_complete(data, table, columns, old, image)
    unsent = [name for name in absent if not _is_null(name, columns, old, whole)]
    if unsent:
        if table.full_rows:
            raise Refusal("ROW_INVALID", f"an UPD without {shown(unsent)}, and `full_rows` promises all columns", key)
        if old and not columns.large and all(old.get(n, ...) == v for n, v in image.items()):
            # Something changed, so it is one of these; and only NULL can be left out.
            raise Refusal("ROW_INVALID", f"an UPD changes nothing but {shown(unsent)}, without its value", key)
        listed, row = columns.written_without(image, unsent)
        row_set = _row(at, UPDATE, key, row=row, cols=listed, whole=False)
    else:
        row_set = _row(at, UPDATE, key, row=row, whole=whole)
    old_texts = texts if key is None else _old_key(data, columns, table, old, image, texts, key)
    if old_texts == texts:
        lacks_old_key = key is not None and not table.keys_never_change and table.key_names.isdisjoint(old)
        row_set = row_set._replace(had=columns.mark(old))
        return Outcome((row_set,), old_key_missing=lacks_old_key)
    # The primary key in a key change may be the old or the new one: undocumented (C-73).
    left = _row(at, KEY_LEFT, encode_key(old_texts), pos=event.position(0), before=columns.write_old(old))
    return Outcome((left, row_set))


def _row(at: LogRow, op: str, key: str | None, **values: Any) -> LogRow:
    return at._replace(op=op, key=key, bucket=key_bucket(key), **values)


def _deletion(at: LogRow, data: Data, table: SourceTable, columns: ColumnList, old: str | None) -> LogRow:
    image, text = columns.read("{}" if old is None else old)
    before = (text or columns.write_old(image)) if image else None
    # A source may leave old values out; the primary key is always included (C-71).
    if table.key_names <= image.keys():
        _refuse_another_row(data, columns, image)
        values = image
    else:
        values = _announced(data, columns)
        if any(name in image and image[name] != values.get(name) for name in table.key):
            raise Refusal("OLD_KEY_MISSING", "the old row has some of the key columns only, and pkkey says another key")
        short = [name for name in table.key if is_unfilled(columns.types.get(name, ""), values.get(name))]
        if short:
            what = f"only pkkey contains {shown(short[0])}, without the blanks that fill it up"
            raise Refusal("OLD_KEY_MISSING", what)
    texts = columns.key_texts(values)
    return _row(at, DELETE, encode_key(texts) if texts else None, before=before)


def _old_key(
    data: Data, columns: ColumnList, table: SourceTable, old: Image, image: Image, texts: list[str], key: str
) -> list[str]:
    """The key before an update (C-73).

    Without old key values only ``pkkey`` can show that the key did not change. It is undocumented whether it has the
    old or the new key. Without key columns in it, the mirror file may promise that keys never change.
    """
    if not table.key_names <= old.keys():
        is_promised = table.keys_never_change and not table.key_names <= _key_columns(data)
        if not (is_promised or _announces(data, columns, texts)):
            raise Refusal("OLD_KEY_MISSING", "an UPD without old key values, and pkkey does not name the current key")
        if table.key_names.isdisjoint(old):
            return texts
        raise Refusal("OLD_KEY_MISSING", "the old row has some of the key columns only")
    if all([old[name] == image[name] for name in table.key]):
        return texts
    try:
        return columns.key_texts(old)
    except Refusal as refusal:
        raise Refusal(refusal.code, f"old: {refusal.reason}", key) from refusal


def _is_complete(data: Data, table: SourceTable, columns: ColumnList, old: Image, current: Image) -> bool:
    """Whether an update provably has all columns (C-44); NULL for an old large object proves nothing (C-71)."""
    key_names = table.key_names | _key_columns(data)
    for name, value in old.items():
        sent = value is not None or name not in columns.large
        if sent and name in current and current[name] == value and name not in key_names:
            return True
    return False


def _is_null(name: str, columns: ColumnList, old: Image, whole: bool) -> bool:
    """Whether an update without a value for a column means NULL (C-84): it was NULL before, or all columns are sent."""
    if name in columns.large:
        return False
    return old[name] is None if name in old else whole


def _key_columns(data: Data) -> set[str]:
    return {part.columnname for part in data.eventsource.pkkey or ()}


def _announces(data: Data, columns: ColumnList, texts: list[str]) -> bool:
    """Whether ``pkkey`` contains every key column with the key *texts*."""
    try:
        return columns.key_texts(_announced(data, columns)) == texts
    except Refusal:
        return False


def _announced(data: Data, columns: ColumnList) -> Image:
    parts = data.eventsource.pkkey or ()
    return {part.columnname: columns.spelled(part.columnname, _key_text(part)) for part in parts}


def _key_text(part: KeyPart) -> str | None:
    value = part.value
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if value is None else str(value)


def _refuse_another_row(data: Data, columns: ColumnList, *images: Image) -> None:
    """Refuse an event whose ``pkkey`` certainly belongs to another row than each of its images (C-45)."""
    parts = data.eventsource.pkkey
    if not parts or all(part.value == images[0].get(part.columnname) for part in parts):
        return
    try:
        announced = _announced(data, columns)
    except Refusal:
        return
    named = {name: value for name, value in announced.items() if name in columns.types}
    other: list[str] = []
    for image in images:
        other = [n for n, v in named.items() if n in image and is_another_row(columns.types[n], v, image[n])]
        if not other or not named.keys() <= image.keys():
            return
    raise Refusal("PKKEY_CONTRADICTED", f"pkkey says another {shown(other[0])} than the row: which of two is meant?")


def stale_key(event: Event, data: Data, table: SourceTable, key: str | None) -> str | None:
    """The key of the row that an unreadable change would have changed: only this row then counts as outdated.

    *key* is the key in the event if it could be read. Returns None if the key is unknown. Returns None also if an
    UPDATE may have changed the key, because the row under the old key would then stay at the target for ever (G-03,
    C-73).
    """
    key = key or _announced_key(data, table)
    images = data.images
    if event.operation != "UPD" or key is None:
        return key
    if images is None:
        return None
    try:
        columns = table.columns(bytes(data.eventsource.cols))
        # Without old key values, here too, only pkkey can show that the key did not change.
        old = _key_alone(columns, table, images.old) or _announced_key(data, table)
        return old if old == _key_alone(columns, table, images.current) else None
    except Refusal:
        return None


def _key_alone(columns: ColumnList, table: SourceTable, text: str | None) -> str | None:
    """The key in an image whose other values may be unreadable; None if it has no values for the key columns."""
    if text is None or _is_empty(text):
        return None
    try:
        row = json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError) as error:
        raise Refusal("ROW_INVALID", f"a row is no JSON object: {error}") from error
    if not isinstance(row, dict):
        raise Refusal("ROW_INVALID", "a row is no JSON object")
    values = {name: value for name, value in row.items() if name in table.key_names}
    if not all(isinstance(value, str) for value in values.values()):
        raise Refusal("ROW_INVALID", "the key of a row is not given by plain values")
    if not values:
        return None
    return encode_key(columns.key_texts({name: columns.spelled(name, value) for name, value in values.items()}))


def _announced_key(data: Data, table: SourceTable) -> str | None:
    names = [part.columnname for part in data.eventsource.pkkey or ()]
    if len(set(names)) != len(names):
        return None
    try:
        columns = table.columns(bytes(data.eventsource.cols))
        texts = columns.key_texts(_announced(data, columns))
    except Refusal:
        return None
    return encode_key(texts) if texts else None


def _is_empty(image: str | None) -> bool:
    return image is None or image == "{}" or (len(image) < 64 and "".join(image.split()) == "{}")
