"""Templates of CES messages: what all messages look like that are like one which the exact decoder took.

A template is that message, byte by byte, except in its few variable places. Some have a fixed length (ids, times,
positions), others have not (key values, the sequence number, the rows): a message is a chain of *blocks*, the same in
all of them wherever they are not variable, with *gaps* between. Names, spaces, the order of members, the column list:
all that is part of the blocks, and so proven by being the same as in a message that was proven before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from spark_jobs.sources.text_buffer import Flags, Places, TextBuffer

Spans = dict[str, tuple[Places, Places]]
"""Where the variable places of messages begin and end: ``epoch``, ``lsn``, ``sequence``, ``old``, ``current``, keys."""

_S, _E = r"[ \t\r\n]*", r"(?: |\\[trn])*"  # spaces of a message, and spaces of its data, which is a text in a text
_PLAIN = r'[^"\\\x00-\x1f\x7f-\xff]*'
_TEXT = r'"(?:[^"\\\x00-\x1f]|\\/)*"'


def _member(name: str, value: str, quote: str = '"', space: str = _S) -> str:
    return f"{quote}{name}{quote}{space}:{space}{value}{space}"


def _inner(name: str, value: str) -> str:
    return _member(name, value, r'\\"', _E)


_ENVELOPE = f",{_S}".join(
    [
        *(_member(name, _TEXT) for name in ("specversion", "type", "source")),
        _member("id", f'"(?P<id>{_PLAIN})"'),
        _member("logicalid", '"(?P<epoch>[0-9A-Fa-f-]{36}):(?P<lsn>[0-9A-F]{20}):(?P<sequence>00[0-9]{18})"'),
        _member("time", f'"(?P<time>{_PLAIN})"'),
        _member("datacontenttype", _TEXT),
        _member("operation", '"(?P<operation>INS|UPD|DEL)"'),
        f"(?:{_member('segmentindex', '0')},{_S}{_member('finalsegment', 'true')}"
        f"|{_member('splitindex', '0')},{_S}{_member('splittotalcnt', '[01]')})",
    ]
)
_QUOTED = rf'\\"{_PLAIN}\\"'
_KEY_PART = rf"\{{{_E}{_inner('columnname', _QUOTED)},{_E}{_inner('value', _QUOTED)}\}}{_E}"
_TRANSACTION = f",{_E}".join(
    [
        _inner("commitlsn", r'\\"(?P<commitlsn>[0-9A-F]{8}:[0-9A-F]{8}:[0-9A-F]{4})\\"'),
        _inner("beginlsn", rf'\\"(?P<beginlsn>{_PLAIN})\\"'),
        _inner("sequencenumber", r"(?P<number>0|[1-9][0-9]{0,17})"),
        f"(?:{_inner('finalevent', '(?:true|false)')},{_E})?"
        + _inner("committime", rf'\\"(?P<committime>{_PLAIN})\\"'),
    ]
)
_MESSAGE = re.compile(
    rf'{_S}\{{{_S}{_ENVELOPE},{_S}"data"{_S}:{_S}"(?P<data>)\{{{_E}\\"eventsource\\"{_E}:{_E}\{{.*?,{_E}'
    rf'\\"pkkey\\"{_E}:{_E}\[{_E}(?P<pkkey>(?:{_KEY_PART}(?:,{_E}{_KEY_PART})*)?)\]{_E}'
    rf'(?:,{_E}\\"transaction\\"{_E}:{_E}\{{{_E}{_TRANSACTION}\}}{_E})?\}}{_E},{_E}\\"eventrow\\"{_E}:{_E}\{{{_E}'
    rf'\\"old\\"{_E}:{_E}(?P<old>\\".*?\\"){_E},{_E}\\"current\\"{_E}:{_E}(?P<current>\\".*?\\"){_E}'
    rf'\}}{_E}\}}{_E}"{_S}\}}{_S}'.encode(),
    re.DOTALL,
)
_KEY_VALUE = re.compile(
    rf'\\"columnname\\"{_E}:{_E}\\"({_PLAIN})\\"{_E},{_E}\\"value\\"{_E}:{_E}\\"({_PLAIN})\\"'.encode()
)
_NO_ROW = rb"\"{}\""


def _bytes(pattern: str) -> npt.NDArray[np.bool_]:
    """Which bytes a character class has."""
    return np.array([re.fullmatch(pattern.encode(), bytes([byte]), re.DOTALL) is not None for byte in range(256)])


def _each(classes: str) -> npt.NDArray[np.bool_]:
    """Which bytes may stand at each position: ``h`` hexadecimal in capitals, ``x`` in any case, ``d`` digit."""
    named = {"h": _bytes("[0-9A-F]"), "x": _bytes("[0-9A-Fa-f]"), "d": _bytes("[0-9]")}
    return np.array([named[c] if c in named else _bytes(re.escape(c)) for c in classes])


_ALLOWED = {
    "epoch": _each("xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"),
    "lsn": _each("h" * 20),
    "sequence": _each("00" + "d" * 18),
    "commitlsn": _each("hhhhhhhh:hhhhhhhh:hhhh"),
}
_PLAIN_BYTES = _bytes(r'[^"\\\x00-\x1f\x7f-\xff]')
# A key value may hold any character that stands for itself; that it is UTF-8, and the row's, is proven with the row.
_LONG = 256
_NO_KEY, _NO_DIGIT = _bytes(r'["\\\x00-\x1f]'), ~_bytes("[0-9]")
_ROWS = ("old", "current")
_PLAIN_FIELDS = ("id", "time", "beginlsn", "committime")
_POWERS = 10 ** np.arange(17, -1, -1, dtype=np.int64)


class _Block(NamedTuple):
    """A part of a message; *fields*: name, start and end of what varies in it."""

    text: bytes
    fields: Sequence[tuple[str, int, int]]

    def stands_at(self, buffer: TextBuffer, at: Places, spans: Spans) -> Flags:
        """Whether the block stands there; its fields are added to the spans."""
        for name, start, end in self.fields:
            spans[name] = (at + start, at + end)
        if len(self.text) > _LONG and not self.fields:
            return buffer.equal(at, self.text)
        varying = [(start, end, _ALLOWED.get(name, _PLAIN_BYTES)) for name, start, end in self.fields]
        # A row that is not there is `{}` in every message: named, to be found, and part of the text nevertheless.
        return buffer.alike(
            at, self.text, [one for one, field in zip(varying, self.fields, strict=True) if field[0] not in _ROWS]
        )


class Template:
    """What messages like one are like.

    Attributes:
        operation: ``INS``, ``UPD`` or ``DEL``.
        data: where the data begins in each such message.
        keys: the columns that ``pkkey`` announces, in its order; the spans of their values are ``key0``, ``key1``, …
    """

    def __init__(self, found: re.Match[bytes]) -> None:
        sample = found.string
        self.operation = found["operation"].decode()
        self.data = found.start("data")
        self._operation_at = found.start("operation")
        rows = {name: found.span(name) for name in ("old", "current")}
        parts = list(_KEY_VALUE.finditer(sample, *found.span("pkkey")))
        self.keys = tuple(part[1].decode() for part in parts)
        gaps = {name: place for name, place in rows.items() if found[name] != _NO_ROW}
        gaps |= {f"key{at}": part.span(2) for at, part in enumerate(parts)}
        gaps |= {"number": found.span("number")} if found["number"] is not None else {}
        names = [name for name in (*_ALLOWED, *_PLAIN_FIELDS) if found[name] is not None]
        fields = {name: found.span(name) for name in names} | {n: p for n, p in rows.items() if n not in gaps}
        # The data begins with the long list of columns, the same in all messages: a block without a field.
        gaps[""] = (self.data, self.data)
        self._gaps = sorted(gaps, key=lambda name: gaps[name])
        cuts = [0, *(cut for name in self._gaps for cut in gaps[name]), len(sample)]
        self._blocks = [_block(sample, *cuts[at : at + 2], fields) for at in range(0, len(cuts), 2)]

    def match(self, buffer: TextBuffer, chosen: Places) -> tuple[Places, Spans]:
        """Those of the chosen messages (indexes) that are like this template, and where their variable places are."""
        is_operation = buffer.alike(buffer.starts[chosen] + self._operation_at, self.operation.encode(), ())
        chosen = chosen[is_operation]
        at, ends = buffer.starts[chosen], buffer.ends[chosen]
        spans: Spans = {}
        like = np.ones(len(chosen), dtype=bool)
        for index, block in enumerate(self._blocks):
            like &= block.stands_at(buffer, at, spans)
            at = at + len(block.text)
            if index < len(self._gaps):
                name, after = self._gaps[index], self._blocks[index + 1].text
                if index + 2 == len(self._blocks):
                    gap_ends = ends - len(after)
                else:
                    gap_ends = _gap_ends(name, buffer, at, np.where(like, ends, at), after)
                like &= gap_ends >= at
                gap_ends = np.where(like, gap_ends, at)
                spans[name] = (at, gap_ends)
                at = gap_ends
        like &= at == ends
        if "number" in spans:
            like &= _position_agrees(buffer, spans)
        return chosen[like], {name: (start[like], end[like]) for name, (start, end) in spans.items() if name}


def template_of(message: bytes) -> Template | None:
    """The template of a message that the exact decoder took as a change; None where its form has none."""
    found = _MESSAGE.fullmatch(message)
    return None if found is None else Template(found)


def _block(sample: bytes, start: int, end: int, fields: Mapping[str, tuple[int, int]]) -> _Block:
    inside = [(name, low - start, high - start) for name, (low, high) in fields.items() if start <= low and high <= end]
    return _Block(sample[start:end], inside)


def _gap_ends(name: str, buffer: TextBuffer, at: Places, ends: Places, after: bytes) -> Places:
    if name in _ROWS:
        return buffer.find(after, at, ends)
    if name == "number":
        return buffer.until(at, _NO_DIGIT, 19)
    return buffer.until(at, _NO_KEY, 128) if name else at


def _position_agrees(buffer: TextBuffer, spans: Spans) -> Flags:
    """The transaction block says the same as ``logicalid`` (C-30)."""
    commit = np.delete(buffer.window(spans["commitlsn"][0], 22), [8, 17], axis=1)
    agrees: Flags = (commit == buffer.window(spans["lsn"][0], 20)).all(axis=1)
    start, end = spans["number"]
    length = end - start
    digits = buffer.window(np.maximum(end - 18, 0), 18) - np.uint8(48)
    digits[np.arange(18) < 18 - length[:, None]] = 0
    sequence = buffer.window(spans["sequence"][0] + 2, 18) - np.uint8(48)
    # A number does not begin with a zero unless it is zero: else it is no JSON.
    plain = (length == 1) | (buffer.window(start, 1)[:, 0] != 48)
    return agrees & plain & (length >= 1) & (length <= 18) & (digits @ _POWERS == sequence @ _POWERS)
