r"""Reads most change events with regular expressions, much faster than the decoder (C-10 to C-49).

The exact decoder (:mod:`spark_jobs.sources.ces.decoder`) defines the format. The fast path reads a message only if the
message's bytes prove that the decoder would give the same row. For this, the column list is known, everything else
matches a strict pattern, and the two copies of key and position agree. The decoder reads pieces of split events, key
changes, other spellings and anything damaged.

The patterns are regular expressions over the bytes of a line. A message has three levels of JSON: the envelope;
``data``, an object written into a string of the envelope; and the row images, objects written into strings of ``data``.
Each level escapes the quotes of the level inside it: on the line a quote of the envelope is ``"``, a quote of ``data``
is ``\"`` and a quote of an image is ``\\\"``.

The expressions allow no white space, no additional or duplicate member and no other order; only ``transaction`` may
have additional members. So a match is valid JSON at all three levels, and each group contains exactly its field. The
expressions never backtrack: a line is read once, from left to right.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, lru_cache
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow.compute as pc

from open_mirroring.changes.row_key import bucket_of_bytes, encode_key
from open_mirroring.errors import TerminalError
from open_mirroring.facts.foreign_tables import note_foreign
from open_mirroring.facts.kind import NewFacts
from open_mirroring.facts.senders import note_senders
from spark_jobs.changelog.schema import DELETE, INSERT, UPDATE, image_mark, mark_of_escaped
from spark_jobs.sources.ces.changes import CUT_LENGTH, ColumnList, SourceTable
from spark_jobs.sources.ces.decoder import CesDecoder, old_keys_missing
from spark_jobs.sources.ces.envelope import read_data, read_event
from spark_jobs.sources.contract.decoded import Refusal, SourceSchema
from spark_jobs.sources.contract.fast_decoder import NOT_ASKED, KnownColumns, RowFields, Taken, rows_table, texts
from spark_jobs.sources.contract.message_blocks import Block, are_text
from spark_jobs.sources.sql_server.json_columns import SURE_DIGITS
from spark_jobs.sources.sql_server.type_text import read_any

ESCAPE = rb"\\\\"
"""The start of an escaped character in an image. Without one, an image has backslashes before its quotes only."""
SEPARATOR = rb"],\"pkkey\":["
"""The end of the list of columns. Few lists occur: the part before is looked up, the part after has a pattern."""

_PLAIN = rb"[ !#-\[\]-\xff]*+"
"""Characters that represent themselves. That they are valid UTF-8 is not proved here."""
_ASCII = rb"[ !#-\[\]-~]*+"
_GUID = rb"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"

HEAD = re.compile(
    rb'\{"specversion":"1\.0","type":"com\.microsoft\.SQL\.CES\.DML\.V1","source":"(?:[ !#-\[\]-~]|\\/)*+",'
    rb'"id":"' + _ASCII + rb'","logicalid":"(' + _GUID + rb'):([0-9A-F]{20}:[0-9]{20})","time":"(' + _ASCII + rb')",'
    rb'"datacontenttype":"application\\?/json","operation":"(INS|UPD|DEL)",'
    rb'(?:"segmentindex":0,"finalsegment":true|"splitindex":0,"splittotalcnt":[01]),"data":'
)
"""An unsplit event of generation a, b or c up to ``data``, the last member: epoch, LSN with sequence, time, operation.
"""

_NUMBER = rb"(?:0|[1-9][0-9]{0,17}+)"
_OTHER = (
    rb'\\"(?!commitlsn\\|sequencenumber\\)[a-z]++\\":(?:\\"' + _ASCII + rb'\\"|-?' + _NUMBER + rb"|true|false|null)"
)
_TRANSACTION = (
    rb'(?:,\\"transaction\\":\{(?:' + _OTHER + rb',)*+\\"commitlsn\\":\\"([0-9A-F]{8}:[0-9A-F]{8}:[0-9A-F]{4})\\"'
    rb"(?:," + _OTHER + rb')*+,\\"sequencenumber\\":(' + _NUMBER + rb")(?:," + _OTHER + rb")*+\})?+"
)
_ROW = rb'\},\\"eventrow\\":\{\\"old\\":%b,\\"current\\":%b\}\}"\}'
_QUOTE = re.escape(rb"\\\"")
_ESCAPED = rb'\\\\\\\\(?:[/bfnrt]|\\\\\\["/]|\\\\\\\\|u(?![dD][89A-Fa-f])[0-9A-Fa-f]{4})'
_VALUE = _PLAIN + rb"(?:" + _ESCAPED + _PLAIN + rb")*+"
_KEY_PART = rb'\{\\"columnname\\":\\"%b\\",\\"value\\":%b\}'
_LSN_DIGITS = 20
_LONGEST = CUT_LENGTH // 8
"""Longer lines are not read: in shorter ones no value can have been cut at the source (C-50)."""
_MOST_LISTS = 1000
_PREFIX = 100
"""Column lists are looked up by this many bytes, fewer than the shortest has, and then compared completely."""
_OPERATIONS = {b"INS": INSERT, b"UPD": UPDATE, b"DEL": DELETE}
_decode_text = msgspec.json.Decoder(str).decode
_decode_image = msgspec.json.Decoder(dict[str, str | None]).decode
_encode = msgspec.json.encode


def _foreign() -> re.Pattern[bytes]:
    text = rb'\\"' + _PLAIN + rb'(?:\\\\(?:[/bfnrt]|\\["/\\])' + _PLAIN + rb')*+\\"'
    part = _KEY_PART % (_PLAIN, rb'(?:\\"' + _PLAIN + rb'\\"|null)')
    key = rb"(?:" + part + rb"(?:," + part + rb")*+)?+\]"
    image = rb"(?:null|" + text + rb")"
    return re.compile(key + _TRANSACTION + _ROW % (image, image))


FOREIGN = _foreign()
"""The rest of a message after :data:`SEPARATOR`, for a table that is not mirrored: its images may be any texts."""


class ChangePattern:
    """The pattern of the part of a message after :data:`SEPARATOR`, for one list of columns.

    A match proves the columns' names and order, that all values are strings or null, and that ``pkkey`` has the same
    key as each row image. *digits* contains for each key column the number of digits that always fit its integer type;
    None if the column is not an integer. Raises ValueError if a column's name needs escapes in JSON.
    """

    def __init__(self, names: Sequence[str], key: Sequence[str], digits: Sequence[int | None]) -> None:
        if not all(re.fullmatch(_PLAIN, name.encode()) for name in names):
            raise ValueError("a column's name needs escapes")
        self._spelled = {name: re.escape(name.encode()) for name in names}
        self._key = tuple(key)
        self.plain = self._compiled(_PLAIN, [rb"[1-9][0-9]{0,%d}+" % (most - 1) if most else _PLAIN for most in digits])
        """Values have no escaped characters, and integers of the key are positive and in canonical form."""
        group = self.plain.groupindex
        keys = [group[f"key{number}"] for number in range(len(key))]
        commit = len(key) + 1
        self.fields = (commit, commit + 1, group["old"], group["current"], *keys)
        """Groups of both expressions: commit LSN, sequence number, old image, current image, and each key value."""
        self.others = [(group["old"] + n, group["current"] + n) for n in range(1, 1 + len(names) - len(key))]
        """Groups of a column in the old and in the current image, for all outside the key."""

    @cached_property
    def general(self) -> re.Pattern[bytes]:
        """A pattern that also accepts escaped characters outside the key, and any string without escapes as key."""
        return self._compiled(_VALUE, [_PLAIN] * len(self._key))

    def _compiled(self, value: bytes, keys: Sequence[bytes]) -> re.Pattern[bytes]:
        parts = [
            _KEY_PART % (self._spelled[name], rb'\\"(?P<key%d>%b)\\"' % (number, spelling))
            for number, (name, spelling) in enumerate(zip(self._key, keys, strict=True))
        ]
        images = _ROW % (self._image(b"old", value), self._image(b"current", value))
        return re.compile(rb",".join(parts) + rb"\]" + _TRANSACTION + images)

    def _image(self, group: bytes, value: bytes) -> bytes:
        columns = []
        for name, spelling in self._spelled.items():
            found = rb"(null|" + _QUOTE + value + _QUOTE + rb")"
            if name in self._key:
                found = _QUOTE + rb"(?P=key%d)" % self._key.index(name) + _QUOTE
            columns.append(_QUOTE + spelling + _QUOTE + rb":" + found)
        return rb'(?:null|\\"(?:\{\}|(?P<' + group + rb">\{" + rb",".join(columns) + rb'\}))\\")'


change_pattern = lru_cache(maxsize=256)(ChangePattern)
"""The pattern of these columns, cached in the process: a column takes a quarter of a millisecond."""


class _KnownList(NamedTuple):
    """A column list of a mirrored table, its index, and how its keys become canonical.

    *is_canonical*: the plain pattern proves that keys are canonical already. *proofs* are the groups of each column
    outside the key, old and current: equal ones prove the row complete; a NULL counts only if the last item allows it.
    """

    number: int
    table: SourceTable
    sender: str
    columns: ColumnList
    pattern: ChangePattern
    convert: tuple[Callable[[str], str], ...]
    is_canonical: bool
    proofs: list[tuple[int, int, bool]]


_Taker = _KnownList | str | None
"""What is known of a list of columns: how to read it, the name of its table if that is not mirrored, or None to skip
it."""


class FastCes:
    """The fast path of change events. It caches the column lists it has seen, so use one instance for many blocks."""

    def __init__(self, decoder: CesDecoder) -> None:
        self._decoder = decoder
        self._lists: dict[bytes, list[tuple[bytes, _Taker]]] = {}
        self._room = _MOST_LISTS
        self._known: list[_KnownList] = []

    def take(self, block: Block) -> Taken:
        rows: list[RowFields] = []
        without_old_key = set[str]()
        epochs: list[bytes] = []
        foreign: list[int] = []
        names_of_foreign, foreign_up_to = Counter[str](), dict[str, bytes]()
        content, lists, read_head = block.content, self._lists, HEAD.match
        lines = np.flatnonzero(are_text(block) & (block.ends - block.starts <= _LONGEST))
        starts, ends = block.starts[lines].tolist(), block.ends[lines].tolist()
        for line, start, end in zip(lines.tolist(), starts, ends, strict=True):
            head = read_head(content, start, end)
            if head is None:
                continue
            data = head.end()
            for found in lists.get(content[data : data + _PREFIX], ()):
                if content.startswith(found[0], data):
                    break
            else:
                found = self._learn(content, start, data, end)
            announced, known = found
            at = data + len(announced)
            if isinstance(known, _KnownList):
                rest = known.pattern.plain.fullmatch(content, at, end)
                is_plain = rest is not None
                if rest is None:
                    rest = known.pattern.general.fullmatch(content, at, end)
                    if rest is None:
                        continue
                row = _row(known, line, head, rest, is_plain)
                if row is not None:
                    if head[4] == b"UPD" and rest["old"] is None and not known.table.keys_never_change:
                        without_old_key.add(known.table.source)
                    rows.append(row)
                    epochs.append(head[1])
            elif known is not None and FOREIGN.fullmatch(content, at, end):
                foreign.append(line)
                names_of_foreign[known] += 1
                foreign_up_to[known] = max(foreign_up_to.get(known, b""), head[2])
        taken = [row[0] for row in rows]
        names = pc.utf8_lower(texts(epochs)).dictionary_encode()
        columns = [KnownColumns(one.table.source, one.columns.text) for one in self._known]
        numbers = np.array(taken + foreign, np.int64)
        used = [self._known[number] for number in {row[1] for row in rows}]
        facts: NewFacts = {}
        note_senders(facts, {(one.table.source, one.sender) for one in used})
        note_foreign(facts, names_of_foreign, {name: f"{at.decode()}:0" for name, at in foreign_up_to.items()})
        return Taken(
            rows_table(block, rows, columns, names), numbers, schemas=old_keys_missing(without_old_key), facts=facts
        )

    def learn(self, schemas: Iterable[SourceSchema]) -> None:
        """Does nothing: change events contain their columns, so no structure has to be added."""

    def _learn(self, content: bytes, start: int, data: int, end: int) -> tuple[bytes, _Taker]:
        found = content.find(SEPARATOR, data, end)
        if found < 0 or not self._room:
            return b"", None
        self._room -= 1
        announced, taker = content[data : found + len(SEPARATOR)], None
        try:
            payload, head = read_event(content[start:end]).data, _decode_text(content[data:found] + b'"')
            if isinstance(payload, str) and payload.startswith(head):
                taker = self._taker(payload, head)
        except (Refusal, TerminalError, msgspec.DecodeError, ValueError):
            pass  # the exact decoder reports what is wrong with it
        self._lists.setdefault(announced[:_PREFIX], []).append((announced, taker))
        return announced, taker

    def _taker(self, payload: str, head: str) -> _Taker:
        data = read_data(payload)
        source, table = data.eventsource, self._decoder.table_of(data)
        cols = msgspec.json.decode(source.cols)
        spelled = {"eventsource": {"db": source.db, "schema": source.schema, "tbl": source.tbl, "cols": cols}}
        if _encode(spelled).decode() != head + "]}}":
            return None  # additional or duplicate members, or white space: left to the decoder
        if table is None:
            return self._decoder.foreign_name(data)
        columns = table.columns(bytes(source.cols))
        if columns.base64 or not table.key or columns.kept != columns.names or not table.key_names < set(columns.names):
            return None
        types = [columns.types[name] for name in table.key]
        digits = tuple(SURE_DIGITS.get(read_any(sql_type).name) for sql_type in types)
        convert = tuple(columns.key_converter(name) for name in table.key)
        pattern = change_pattern(columns.names, table.key, digits)
        others = [name for name in columns.names if name not in table.key_names]
        proofs = [(*groups, name in columns.large) for name, groups in zip(others, pattern.others, strict=True)]
        known = _KnownList(len(self._known), table, source.db, columns, pattern, convert, None not in digits, proofs)
        self._known.append(known)
        return known


def _row(
    known: _KnownList, line: int, head: re.Match[bytes], rest: re.Match[bytes], is_plain: bool
) -> RowFields | None:
    _, position, time, operation = head.groups()
    pattern, group = known.pattern, rest.group
    commit, sequence, old, current, *key = group(*pattern.fields)
    if commit is not None and commit.replace(b":", b"") + b":" + sequence.zfill(20) != position:
        return None
    op, image, whole, had = _OPERATIONS[operation], current, True, None
    if op == DELETE:
        if old is None or current is not None:
            return None
        image = old
    elif current is None or (op == INSERT and old is not None):
        return None
    elif op == UPDATE:
        whole = old is not None and _share(group, known.proofs)
        if old is not None and not whole and not is_plain:
            return None  # one value can have two spellings
        if old is not None and not known.columns.large:
            had = mark_of_escaped(old) if is_plain else image_mark(_logged(old, False))
    image = _logged(image, is_plain)
    if is_plain and known.is_canonical:
        canonical = b'["' + b'","'.join(key) + b'"]'
    else:
        try:
            texts = [convert(value.decode()) for convert, value in zip(known.convert, key, strict=True)]
        except ValueError:
            return None
        canonical = encode_key(texts).encode()
    bucket = bucket_of_bytes(canonical)
    transacted = (time, position[:_LSN_DIGITS]) if known.columns.logs_transactions else NOT_ASKED
    if op == DELETE:
        return line, known.number, position + b":0", op, canonical, bucket, whole, None, image, None, transacted
    return line, known.number, position + b":1", op, canonical, bucket, whole, image, None, had, transacted


def _logged(image: bytes, is_plain: bool) -> bytes:
    # Slashes are often escaped, needlessly: the log has them unescaped.
    unescaped = image if is_plain else image.replace(ESCAPE + b"/", b"/")
    if is_plain or ESCAPE not in unescaped:
        return unescaped.translate(None, b"\\")
    return _encode(_decode_image(_decode_text('"' + _decode_text(b'"' + image + b'"') + '"')))


def _share(group: Callable[[int], bytes], proofs: list[tuple[int, int, bool]]) -> bool:
    """Whether a column has the same value in both images; NULL does not count if an old value may be left out."""
    for before, after, is_large in proofs:
        if group(before) == group(after) and not (is_large and group(before) == b"null"):
            return True
    return False
