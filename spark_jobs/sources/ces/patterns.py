r"""The usual spelling of change events, as regular expressions over the bytes of a line (C-10 to C-49).

A message has three levels of JSON: the envelope; ``data``, an object written into a text; and the images of the row,
objects written into texts of ``data``. Each level escapes the quotes of the one inside: on the line a quote of the
envelope is ``"``, one of ``data`` is ``\"`` and one of an image is ``\\\"``. The expressions admit no white space, no
other member, none twice and no other order. So what they match is JSON at all three levels, and means what its groups
say. They never give back what they took: a line is read once, from left to right.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache

ESCAPE = rb"\\\\"
"""Begins an escaped character of an image; without one, an image has backslashes before its quotes only."""
SEPARATOR = rb"],\"pkkey\":["
"""Ends the list of columns, of which few occur: what is before it is looked up, what follows has a pattern."""

_PLAIN = rb"[ !#-\[\]-\xff]*+"
"""Characters that stand for themselves; that they are UTF-8 is not proven here."""
_ASCII = rb"[ !#-\[\]-~]*+"
_GUID = rb"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"

HEAD = re.compile(
    rb'\{"specversion":"1\.0","type":"com\.microsoft\.SQL\.CES\.DML\.V1","source":"(?:[ !#-\[\]-~]|\\/)*+",'
    rb'"id":"' + _ASCII + rb'","logicalid":"(' + _GUID + rb'):([0-9A-F]{20}:[0-9]{20})","time":"' + _ASCII + rb'",'
    rb'"datacontenttype":"application\\?/json","operation":"(INS|UPD|DEL)",'
    rb'(?:"segmentindex":0,"finalsegment":true|"splitindex":0,"splittotalcnt":[01]),"data":'
)
"""An unsplit event of generation a, b or c up to ``data``, which comes last: epoch, LSN with sequence, operation."""

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


def _foreign() -> re.Pattern[bytes]:
    text = rb'\\"' + _PLAIN + rb'(?:\\\\(?:[/bfnrt]|\\["/\\])' + _PLAIN + rb')*+\\"'
    part = _KEY_PART % (_PLAIN, rb'(?:\\"' + _PLAIN + rb'\\"|null)')
    key = rb"(?:" + part + rb"(?:," + part + rb")*+)?+\]"
    image = rb"(?:null|" + text + rb")"
    return re.compile(key + _TRANSACTION + _ROW % (image, image))


FOREIGN = _foreign()
"""A message from behind :data:`SEPARATOR` to its end, for a table that is not mirrored: its images may be any texts."""


class ChangePattern:
    """How a message of one list of columns goes on behind :data:`SEPARATOR` to its end.

    Its expressions prove names, their order and that values are texts or null, in images that are not empty; and that
    ``pkkey`` says the key columns of each image.

    Args:
        names: the columns of the images, in their order.
        key: the key columns.
        digits: for each key column of whole numbers how many digits always fit it, otherwise None.

    Raises:
        ValueError: for names that need escapes.
    """

    def __init__(self, names: Sequence[str], key: Sequence[str], digits: Sequence[int | None]) -> None:
        if not all(re.fullmatch(_PLAIN, name.encode()) for name in names):
            raise ValueError("a column's name needs escapes")
        self._spelled = {name: re.escape(name.encode()) for name in names}
        self._key = tuple(key)
        self.plain = self._compiled(_PLAIN, [rb"[1-9][0-9]{0,%d}+" % (most - 1) if most else _PLAIN for most in digits])
        """Values have no escaped characters, and whole numbers of the key are positive and spelled canonically."""
        group = self.plain.groupindex
        keys = [group[f"key{number}"] for number in range(len(key))]
        commit = len(key) + 1
        self.fields = (commit, commit + 1, group["old"], group["current"], *keys)
        """Groups of both expressions: commit LSN, sequence number, old image, current image, and each key value."""
        self.others = [(group["old"] + n, group["current"] + n) for n in range(1, 1 + len(names) - len(key))]
        """Groups of a column in the old and in the current image, for all outside the key."""

    @cached_property
    def general(self) -> re.Pattern[bytes]:
        """The same with escaped characters in values that are not of the key, and with any plain text as key."""
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


@lru_cache(maxsize=256)
def change_pattern(names: tuple[str, ...], key: tuple[str, ...], digits: tuple[int | None, ...]) -> ChangePattern:
    """The pattern of these columns, made once in a process: a column takes a quarter of a millisecond.

    Raises:
        ValueError: as :class:`ChangePattern`.
    """
    return ChangePattern(names, key, digits)
