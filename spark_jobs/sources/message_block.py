"""Messages by the block: side by side in one buffer, so that a decoder can look at all of them at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from spark_jobs.change_log_schema import RawMessage
from spark_jobs.sources.decoded import Damage
from spark_jobs.sources.text_buffer import PADDING, Places, TextBuffer

BLOCK_BYTES = 16 * 2**20
"""A block ends with the message that makes it as long: a worker's memory stays flat whatever the messages' size."""


class MessageBlock(NamedTuple):
    """Messages with their coordinates.

    Args:
        buffer: their bodies.
        origins: of each message the file or partition.
        places: of each message the place in it.
        others: damage, and messages without a body.
    """

    buffer: TextBuffer
    origins: Sequence[str]
    places: Places
    others: Sequence[RawMessage | Damage] = ()

    def __len__(self) -> int:
        """The number of messages, damage included."""
        return len(self.places) + len(self.others)

    def messages(self, chosen: Places | None = None) -> Iterator[RawMessage]:
        """The messages of the buffer, or some of them, by their index."""
        if chosen is None:
            chosen = np.arange(len(self.places))
        starts, ends, places = (
            numbers[chosen].tolist() for numbers in (self.buffer.starts, self.buffer.ends, self.places)
        )
        for at, start, end, place in zip(chosen.tolist(), starts, ends, places, strict=True):
            yield RawMessage(self.origins[at], place, self.buffer.content[start:end])


def block_of(messages: Sequence[RawMessage | Damage]) -> MessageBlock:
    """A block of messages that were read one by one."""
    whole = [message for message in messages if isinstance(message, RawMessage) and message.body is not None]
    others = [message for message in messages if isinstance(message, Damage) or message.body is None]
    bodies = [message.body or b"" for message in whole]
    lengths = np.fromiter(map(len, bodies), dtype=np.int64, count=len(bodies))
    ends = np.cumsum(lengths)
    buffer = TextBuffer(b"".join([*bodies, PADDING]), ends - lengths, ends)
    places = np.fromiter((message.place for message in whole), dtype=np.int64, count=len(whole))
    return MessageBlock(buffer, [message.origin for message in whole], places, others)


def blocks_of(messages: Iterable[RawMessage | Damage]) -> Iterator[MessageBlock]:
    """Messages read one by one, gathered into blocks."""
    gathered: list[RawMessage | Damage] = []
    size = 0
    for message in messages:
        gathered.append(message)
        size += 0 if isinstance(message, Damage) else len(message.body or b"")
        if size >= BLOCK_BYTES:
            yield block_of(gathered)
            gathered, size = [], 0
    if gathered:
        yield block_of(gathered)
