"""Reads delimited text of Qlik's file targets in blocks: delimiters of any length, quotes doubled or escaped.

A tolerant parser would read everything after an unclosed quote as one value. So quotes and the number of fields of each
record are checked. Public source: Qlik Help, *File target: general properties*.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.sources.contract.decoded import Refusal, shown
from spark_jobs.sources.qlik.dfm import CsvForm, DfmColumn

BLOCK = 1 << 20
_LF, _CR = b"\n\r"
_TYPE = r"[A-Za-z][A-Za-z0-9_]*(?: ?\([0-9A-Za-z, ]*\))?"
_ALIKE = {"WSTRING": "STRING", "NCLOB": "CLOB", "DECIMAL": "NUMERIC", "VARCHAR": "STRING", "NVARCHAR": "STRING"}
_Places = np.ndarray[Any, Any]


def read_delimited(file: IO[bytes], form: CsvForm, columns: Sequence[DfmColumn]) -> Iterator[pa.RecordBatch]:
    """The rows of a UTF-8 file, each column as strings or NULL; a header line is skipped."""
    names = [column.name for column in columns]
    splitter, held, at, is_first, size = _Splitter(form, len(columns)), b"", 0, True, BLOCK
    for block, ended in _blocks(file):
        held += block
        if len(held) < size and not ended:
            continue
        if is_first:
            splitter.prove_form(held, ended=ended)
        cut = splitter.cut(held, at, ended=ended)
        if is_first and len(cut.ends):
            is_first, start = False, min(int(cut.borders[cut.ends[0]]) + len(splitter.end), cut.size)
            if is_header(held[:start].decode(), form, columns):
                splitter.pass_over(held[:start])
                held, at = held[start:], at + start
                cut = splitter.cut(held, at, ended=ended)
        if len(cut.ends):
            yield pa.RecordBatch.from_arrays(splitter.columns(held, cut, at), names)
        # The search for a record longer than a block doubles the bytes each time.
        held, at, size = held[cut.size :], at + cut.size, BLOCK if cut.size else 2 * size


def _blocks(file: IO[bytes]) -> Iterator[tuple[bytes, bool]]:
    block = file.read(BLOCK)
    while True:
        ahead = file.read(BLOCK)
        yield block, not ahead
        if not ahead:
            return
        block = ahead


def is_header(record: str, form: CsvForm, columns: Sequence[DfmColumn]) -> bool:
    """Whether the first record of a file contains the columns' names, their types, or both."""
    record = record.removesuffix(form.record_end).removesuffix("\n").removesuffix("\r")
    quote, between = form.quote, re.escape(form.delimiter)

    def quoted(one: str) -> str:
        return f"(?:{one}|{re.escape(quote)}{one}{re.escape(quote)})" if quote else one

    def spelled(name: str) -> str:
        inside = name.replace(quote, (form.escape or quote) + quote) if quote else name
        return f"(?:{re.escape(name)}|{re.escape(inside)})"

    def typed(column: DfmColumn) -> str:
        kind = _ALIKE.get(column.type.upper(), column.type.upper())
        alike = (kind, *(name for name, its in _ALIKE.items() if its == kind))
        return f"(?:{'|'.join(map(re.escape, alike))})(?: ?\\([0-9A-Za-z, ]*\\))?"

    names = [spelled(column.name) for column in columns]
    both = [f"(?:{quoted(f'{name}:{_TYPE}')}|{quoted(name)}:{_TYPE})" for name in names]
    for fields in (map(quoted, names), both, (quoted(typed(column)) for column in columns)):
        if re.fullmatch(between.join(fields), record, re.IGNORECASE):
            return True
    named = [field.strip(quote).partition(":")[0] for field in record.split(form.delimiter)]
    wanted = [column.name for column in columns]
    if "\n" not in record and 2 * len({*named} & {*wanted}) > len(wanted):
        odd, lacking = [one for one in named if one not in wanted], [one for one in wanted if one not in named]
        what = "its first line looks like a header line with other columns than the metadata file"
        raise Refusal("FILE_DAMAGED", f"{what}: {shown(odd[:5] or named)} instead of {shown(lacking[:5] or wanted)}")
    return False


class _Cut(NamedTuple):
    """Complete records at the beginning of some bytes.

    *borders* are the ends of fields, *ends* the indexes of those that end a record. In *quotes* they open and close
    alternately.
    """

    size: int
    borders: _Places
    ends: _Places
    quotes: _Places
    has_escapes: bool


class _Splitter:
    def __init__(self, form: CsvForm, width: int) -> None:
        self._form, self._width = form, width
        self._is_line = form.record_end in ("\n", "\r\n")
        self._delimiter, self.end = form.delimiter.encode(), b"\n" if self._is_line else form.record_end.encode()
        self._quote = form.quote.encode()
        self._escape = b"" if form.escape == form.quote else form.escape.encode()
        self._null = form.null.encode()
        self._line_ends: set[bool] = set()

    def cut(self, data: bytes, at: int, *, ended: bool) -> _Cut:
        values = np.frombuffer(data, np.uint8)
        escaped = self._escaped(values)
        quotes, borders, is_end = self._borders(values, escaped)
        if self._form.record_end == "\r\n" and not at and is_end.any():
            # If lines end so, a line feed alone is part of a text.
            first = int(borders[is_end.argmax()])
            if first and values[first - 1] == _CR:
                self.end, self._is_line = b"\r\n", False
                quotes, borders, is_end = self._borders(values, escaped)
        self._prove_openers(values, quotes, at)
        ends = np.flatnonzero(is_end)
        if not ended:
            size = int(borders[ends[-1]]) + len(self.end) if len(ends) else 0
            kept = int(ends[-1]) + 1 if len(ends) else 0
            return _Cut(size, borders[:kept], ends, quotes[: np.searchsorted(quotes, size)], len(escaped) > 0)
        if len(quotes) % 2:
            where = at + int(quotes[-1])
            raise Refusal("FILE_DAMAGED", f"the quoted field at byte {where} is not closed: the file may be cut off")
        if len(data) > (int(borders[ends[-1]]) + len(self.end) if len(ends) else 0):
            ends, borders = np.append(ends, len(borders)), np.append(borders, len(data))
        return _Cut(len(data), borders, ends, quotes, len(escaped) > 0)

    def _borders(self, values: _Places, escaped: _Places) -> tuple[_Places, _Places, _Places]:
        if len(self._delimiter) == len(self.end) == 1:
            is_one = (values == self._delimiter[0]) | (values == self.end[0])
            if self._quote:
                is_one |= values == self._quote[0]
            is_one[escaped] = False
            places = np.flatnonzero(is_one)
            kinds = values[places]
            if not self._quote:
                return places[:0], places, kinds == self.end[0]
            is_quote = kinds == self._quote[0]
            is_border = ~is_quote & (np.cumsum(is_quote) % 2 == 0)
            return places[is_quote], places[is_border], kinds[is_border] == self.end[0]
        quotes = np.flatnonzero(values == self._quote[0]) if self._quote else escaped[:0]
        quotes = quotes[~np.isin(quotes, escaped)]
        ends, fields = (
            one[(np.searchsorted(quotes, one) % 2 == 0) & ~np.isin(one, escaped)]
            for one in (_found(values, self.end), _found(values, self._delimiter))
        )
        if len(ends):  # a delimiter may be a part of a record's end
            behind = np.searchsorted(ends, fields, "right") - 1
            fields = fields[(behind < 0) | (fields >= ends[behind] + len(self.end))]
        places = np.concatenate([fields, ends])
        order = np.argsort(places, kind="stable")
        return quotes, places[order], np.append(np.zeros(len(fields), bool), np.ones(len(ends), bool))[order]

    def _prove_openers(self, values: _Places, quotes: _Places, at: int) -> None:
        """Detect a quote inside a field early: the rest of the file would be kept in memory as one text."""
        opens, borders = quotes[0::2], np.zeros(256, bool)
        borders[[*self._quote, _LF, self._delimiter[-1], self.end[-1]]] = True
        before = np.where(opens > 0, values[opens - 1], _LF)
        wrong = np.flatnonzero(~borders[before])
        if len(wrong):
            self._refuse_quote(at + int(opens[wrong[0]]))

    @staticmethod
    def _refuse_quote(where: int) -> None:
        raise Refusal("FILE_DAMAGED", f"the quote at byte {where} is inside a field and is not doubled")

    def pass_over(self, line: bytes) -> None:
        if self._is_line and line.endswith(b"\n"):
            self._line_ends.add(line.endswith(b"\r\n"))

    def columns(self, data: bytes, cut: _Cut, at: int) -> list[pa.Array]:
        body = data[: cut.size]
        if not body.isascii():
            body.decode()
        values = np.frombuffer(body, np.uint8)
        starts = np.append(0, cut.borders[:-1] + len(self._delimiter))
        if len(self.end) != len(self._delimiter):
            starts[cut.ends[:-1] + 1] += len(self.end) - len(self._delimiter)
        self._check_width(body, at, cut.ends, starts)
        stops = self._without_returns(values, cut, starts)
        is_quoted = np.zeros(len(starts), bool)
        with_doubled = set[int]()
        if len(cut.quotes):
            first, last = values[np.minimum(starts, len(values) - 1)], values[stops - 1]
            is_quoted = (first == self._quote[0]) & (last == self._quote[0]) & (stops > starts + 1)
            doubled = self._doubled(cut)
            if len(cut.quotes) != 2 * (int(np.count_nonzero(is_quoted)) + len(doubled)):
                sound = np.concatenate([starts, stops - 1, doubled, doubled - 1])
                self._refuse_quote(at + int(np.append(cut.quotes[~np.isin(cut.quotes, sound)], cut.quotes)[0]))
            with_doubled.update(((np.searchsorted(starts, doubled, "right") - 1) % self._width).tolist())
        is_null = ~is_quoted & (stops - starts == len(self._null))
        for place, byte in enumerate(self._null):
            maybe = np.flatnonzero(is_null)
            is_null[maybe] = values[starts[maybe] + place] == byte
        # The texts between the fields are separate strings, so nothing is copied before columns are selected.
        is_small = len(body) < 2**31
        offsets = np.empty(2 * len(starts), np.int32 if is_small else np.int64)
        offsets[0::2], offsets[1::2] = starts + is_quoted, stops - is_quoted
        kind = pa.string() if is_small else pa.large_string()
        every = pa.Array.from_buffers(kind, len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(body)])
        found = []
        for column in range(self._width):
            places = np.arange(column, len(starts), self._width, dtype=np.int64) * 2
            texts = every.take(pa.array(places, mask=is_null[column :: self._width])).cast(pa.string())
            if column in with_doubled:
                texts = pc.replace_substring(texts, 2 * self._form.quote, self._form.quote)
            found.append(self._unescaped(texts) if cut.has_escapes else texts)
        return found

    def _unescaped(self, texts: pa.Array) -> pa.Array:
        escape = re.escape(self._form.escape)
        known = (self._form.quote, self._form.escape, self._form.delimiter, self._form.record_end, "\n", "\r")
        kept = "|".join(re.escape(one) for one in known if one)
        odd = texts.filter(pc.invert(pc.match_substring_regex(texts, rf"(?s)^(?:[^{escape}]|{escape}(?:{kept}))*$")))
        if len(odd):
            what = f"the escape character {shown(self._form.escape)} is part of {shown(odd[0].as_py())}"
            why = "neither a quote nor another one follows, so it may be a part of the text"
            raise Refusal("FORMAT_UNSUPPORTED", f"{what}: {why}; set the quote as escape character at the file target")
        return pc.replace_substring_regex(texts, rf"(?s){escape}({kept})", r"\1")

    def _escaped(self, values: _Places) -> _Places:
        if not self._escape:
            return np.zeros(0, np.int64)
        places = np.flatnonzero(values == self._escape[0])
        begins = np.append(True, np.diff(places) != 1)[: len(places)]
        first = np.maximum.accumulate(np.where(begins, np.arange(len(places)), 0))
        # Of several in sequence, every second one is itself escaped.
        escaped = places[(np.arange(len(places)) - first) % 2 == 0] + 1
        inside: _Places = escaped[escaped < len(values)]
        return inside

    def _check_width(self, body: bytes, at: int, lasts: _Places, starts: _Places) -> None:
        widths = np.diff(np.append(-1, lasts))
        wrong = np.flatnonzero(widths != self._width)
        if not len(wrong):
            return
        number = int(wrong[0])
        first = int(starts[0 if not number else lasts[number - 1] + 1])
        raw = body[first : first + 200]
        found = int(widths[number])
        if at + first:
            what = f"the record at byte {at + first} has {found} fields, the metadata file names {self._width} columns"
            raise Refusal("FILE_DAMAGED", f"{what}: {shown(raw.decode(errors='replace'))}")
        self._refuse_form(raw, found)

    def prove_form(self, beginning: bytes, *, ended: bool) -> None:
        first, found, _ = beginning.partition(self.end)
        if self._quote and self._quote in first:
            first, found = beginning, b""  # the record's end may be within quotes
        if self._width > 1 and first and (found or ended) and self._delimiter not in first:
            self._refuse_form(beginning[:200], 1)

    def _refuse_form(self, raw: bytes, found: int) -> None:
        form = self._form
        raise Refusal(
            "FORMAT_UNSUPPORTED",
            f"the first record has {found} fields, the metadata file names {self._width} columns. By the metadata file "
            f"fields end with {shown(form.delimiter)}, records with {shown(form.record_end)}. The file begins "
            f"with {shown(raw.decode(errors='replace'))}",
        )

    def _without_returns(self, values: _Places, cut: _Cut, starts: _Places) -> _Places:
        """The ends of fields, without the carriage return of a line's end; refused if lines end in two ways (T-93)."""
        if not self._is_line:
            return cut.borders
        stops, lasts = cut.borders, cut.ends
        returned = (stops[lasts] > starts[lasts]) & (values[stops[lasts] - 1] == _CR)
        is_cut = int(stops[-1]) == len(values)  # the last line has no line feed
        self._line_ends |= {bool(one) for one in np.unique(returned[:-1] if is_cut else returned)}
        if len(self._line_ends) > 1:
            what = "some lines end with a carriage return and others do not, so it may belong to a text without quotes"
            raise Refusal("FORMAT_UNSUPPORTED", f"{what}: set a quote character at the file target")
        if True in self._line_ends:
            stops = stops.copy()
            stops[lasts[returned]] -= 1
        return stops

    def _doubled(self, cut: _Cut) -> _Places:
        """The second quotes of doubled ones: such a pair closes and opens again at once."""
        opens, closes = cut.quotes[0::2], cut.quotes[1::2]
        if self._escape:
            return opens[:0]
        is_second: _Places = opens[1:] == closes[: len(opens) - 1] + 1
        return np.asarray(opens[1:][is_second], np.int64)


def _found(values: _Places, wanted: bytes) -> _Places:
    is_there = values[: max(0, len(values) - len(wanted) + 1)] == wanted[0]
    for at, byte in enumerate(wanted[1:], 1):
        is_there &= values[at : at + len(is_there)] == byte
    places = np.flatnonzero(is_there)
    if len(wanted) > 1 and len(places) > 1 and np.diff(places).min() < len(wanted):
        kept, free = [], 0
        for place in places.tolist():
            if place >= free:
                kept.append(place)
                free = place + len(wanted)
        places = np.array(kept)
    return places
