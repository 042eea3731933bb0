"""The envelope of an ordinary CES message, proven for many lines at once.

What a source writes before ``data`` differs from line to line only in five values of fixed width, so that a line with
the same bytes elsewhere is an envelope as sound as one that was read.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view

from spark_jobs.sources.line_blocks import LineBlock

_PLAIN = rb"[ !#-\[\]-~]*"
_HEAD = re.compile(
    rb'\{"specversion":"1\.0","type":"com\.microsoft\.SQL\.CES\.DML\.V1","source":"(?:[ !#-\[\]-~]|\\/)*",'
    rb'"id":"(?P<id>' + _PLAIN + rb')","logicalid":"(?P<epoch>[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}):'
    rb'(?P<lsn>[0-9A-F]{20}):(?P<sequence>[0-9]{20})","time":"(?P<time>' + _PLAIN + rb')",'
    rb'"datacontenttype":"application\\?/json","operation":"(?P<operation>INS|UPD|DEL)",'
    rb'(?:"segmentindex":0,"finalsegment":true|"splitindex":0,"splittotalcnt":[01]),"data":'
)
"""An unsplit event of generation a, b or c, as the source spells it; ``data`` comes last."""

_ANY, _HEXADECIMAL, _CAPITAL, _DIGIT, _TEXT = 1, 2, 4, 8, 16
_CLASSES = np.full(256, _ANY, np.uint8)
for _characters, _class in (
    (b"0123456789ABCDEFabcdef", _HEXADECIMAL),
    (b"0123456789ABCDEF", _CAPITAL),
    (b"0123456789", _DIGIT),
    (bytes(c for c in range(32, 127) if c not in b'"\\'), _TEXT),
):
    _CLASSES[list(_characters)] |= _class
_SHORTEST = len('"{}"}')
_OPERATIONS = [np.frombuffer(operation, np.uint8) for operation in (b"INS", b"UPD", b"DEL")]


class Heads(NamedTuple):
    """Lines with a proven envelope, and what it says.

    Args:
        lines: their numbers in the block.
        starts: where ``data`` begins, with its quote.
        ends: where it ends, behind its quote, as far as the last bytes of the line tell.
        operations: the operation's first letter.
        lsns: the log sequence number in capitals, without colons.
        sequences: the sequence number.
        epochs: the guid, a row of bytes each.
        positions: the place in the log as ``open_mirroring.log_position.position_text`` spells it, the same way.
    """

    lines: npt.NDArray[np.int64]
    starts: npt.NDArray[np.int64]
    ends: npt.NDArray[np.int64]
    operations: list[str]
    lsns: list[str]
    sequences: list[int]
    epochs: npt.NDArray[np.uint8]
    positions: npt.NDArray[np.uint8]


class HeadTemplate:
    """The spelling of one envelope, from a line that has it."""

    def __init__(self, head: re.Match[bytes]) -> None:
        self.width = head.end()
        self._bytes = np.frombuffer(head.group(), np.uint8)
        self._spans = {name: slice(*head.span(name)) for name in head.re.groupindex}
        self._needed = np.zeros(self.width, np.uint8)
        for name, kind in (("id", _TEXT), ("time", _TEXT), ("lsn", _CAPITAL), ("sequence", _DIGIT)):
            self._needed[self._spans[name]] = kind
        epoch = self._spans["epoch"]
        self._needed[epoch] = np.where(self._bytes[epoch] == ord("-"), 0, _HEXADECIMAL)
        self._needed[self._spans["operation"]] = _ANY
        self._free = np.flatnonzero(self._needed)
        self._fixed = self._needed == 0

    @classmethod
    def of(cls, line: bytes) -> HeadTemplate | None:
        """The template of a line; None for a line that is not spelled as the source does it."""
        head = _HEAD.match(line)
        return None if head is None else cls(head)

    def heads(self, block: LineBlock, longest: int) -> Heads:
        """The lines of a block, of *longest* bytes at most, that have this envelope."""
        content = np.frombuffer(block.content, np.uint8)
        length = block.ends - block.starts
        lines = np.flatnonzero((length > self.width + _SHORTEST) & (length <= longest))
        if not len(lines):
            return self._heads(block, lines, np.zeros((0, self.width), np.uint8))
        found = sliding_window_view(content, self.width)[block.starts[lines]]
        is_sound = ((found == self._bytes) | ~self._fixed).all(axis=1)
        is_sound &= (_CLASSES[found[:, self._free]] & self._needed[self._free] != 0).all(axis=1)
        operation = found[:, self._spans["operation"]]
        is_sound &= np.any([(operation == name).all(axis=1) for name in _OPERATIONS], axis=0)
        starts, ends = block.starts[lines] + self.width, block.ends[lines]
        is_sound &= (content[starts] == ord('"')) & (content[ends - 2] == ord('"')) & (content[ends - 1] == ord("}"))
        return self._heads(block, lines[is_sound], found[is_sound])

    def _heads(self, block: LineBlock, lines: npt.NDArray[np.int64], found: npt.NDArray[np.uint8]) -> Heads:
        lsn, sequence = found[:, self._spans["lsn"]], found[:, self._spans["sequence"]]
        operation = found[:, self._spans["operation"].start]
        colon = np.full((len(lines), 1), ord(":"), np.uint8)
        sub = np.where(operation == ord("D"), ord("0"), ord("1")).astype(np.uint8)[:, None]
        return Heads(
            lines,
            block.starts[lines] + self.width,
            block.ends[lines] - 1,
            list(operation.tobytes().decode()),
            fixed_texts(lsn).to_pylist(),
            list(map(int, fixed_texts(sequence).to_pylist())),
            found[:, self._spans["epoch"]],
            np.hstack([lsn, colon, sequence, colon, sub]),
        )


def fixed_texts(characters: npt.NDArray[np.uint8]) -> pa.Array:
    """ASCII texts of one width, a row of bytes each."""
    rows, width = characters.shape
    offsets = np.arange(0, (rows + 1) * width, width, dtype=np.int32)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(characters)))
