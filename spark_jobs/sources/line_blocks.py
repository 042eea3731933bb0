"""Bare JSON lines in blocks of bytes.

A block is small enough for memory that was used before: a fresh page costs more than decoding what is on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from spark_jobs.change_log_schema import RawMessage
from spark_jobs.sources.source_files import open_source

BLOCK_BYTES = 4 * 2**20

Places = npt.NDArray[np.int64]


class LineBlock(NamedTuple):
    """Whole lines of the file *origin* from byte *place*: each stands in *content* from its start to its line end."""

    origin: str
    place: int
    content: bytes
    starts: Places
    ends: Places

    def messages(self, lines: Places) -> Iterator[RawMessage]:
        """The messages in some lines, by number; blank lines hold none."""
        for start, end in zip(self.starts[lines].tolist(), self.ends[lines].tolist(), strict=True):
            body = self.content[start:end]
            if body.strip():
                yield RawMessage(self.origin, self.place + start, body.removesuffix(b"\r"))


def read_blocks(root: Path, name: str, start: int, end: int) -> Iterator[LineBlock]:
    """The lines from byte *start* to byte *end* of a plain file, as bound.

    Where the file ends before, so do the blocks: what :func:`spark_jobs.sources.json_lines.read_lines` says of the
    place where the last one ends tells what is missing.

    Raises:
        TerminalError: ``SOURCE_FILE_MISSING``.
    """
    with open_source(root / name) as file:
        file.seek(start)
        while start < end:
            content = file.read(min(BLOCK_BYTES, end - start))
            if not content.endswith(b"\n"):
                content += file.readline(end - start - len(content))
            if not content:
                return
            ends = np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n"))
            if not content.endswith(b"\n"):
                ends = np.append(ends, len(content))
            yield LineBlock(name, start, content, np.append(0, ends[:-1] + 1), ends)
            start += len(content)
