"""Bare JSON lines in blocks of bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.schema import RawMessage
from spark_jobs.sources.contract.message_blocks import BLOCK_BYTES, Places
from spark_jobs.sources.transports.json_lines import body_of
from spark_jobs.sources.transports.source_files import open_source


class LineBlock(NamedTuple):
    """Whole lines of the file *origin* from byte *place*: a block of messages."""

    origin: str
    place: int
    content: bytes
    starts: Places
    ends: Places

    @property
    def places(self) -> Places:
        """The byte of the file at which each line begins."""
        return self.starts + self.place

    def messages(self, numbers: Places) -> Iterator[RawMessage]:
        """The messages in some lines; blank lines hold none."""
        for start, end in zip(self.starts[numbers].tolist(), self.ends[numbers].tolist(), strict=True):
            body = body_of(self.content[start:end], self.place + start)
            if body.strip():
                yield RawMessage(self.origin, self.place + start, body)


def read_blocks(root: Place, name: str, start: int, end: int) -> Iterator[LineBlock]:
    """The lines from byte *start* to byte *end* of a plain file, as bound.

    Where the file ends before, so do the blocks: what :func:`spark_jobs.sources.transports.json_lines.read_lines` says
    of the place where the last one ends tells what is missing.

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
