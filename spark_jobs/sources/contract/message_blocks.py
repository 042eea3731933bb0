"""Joins messages into blocks, so that a fast path works on many messages in one step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_jobs.changelog.schema import RawMessage
from spark_jobs.sources.contract.decoded import Damage

BLOCK_BYTES = 4 * 2**20
"""Small enough to reuse memory: allocating fresh pages costs more than decoding what is on them."""
_MOST = 10_000

Places = npt.NDArray[np.int64]
Message = RawMessage | Damage


class Block(Protocol):
    """Messages of one file or partition (*origin*) in one buffer: message *i* is ``content[starts[i]:ends[i]]``.

    One byte separates two messages. *places* are the messages' offsets in the file or partition.
    """

    @property
    def origin(self) -> str: ...
    @property
    def content(self) -> bytes: ...
    @property
    def starts(self) -> Places: ...
    @property
    def ends(self) -> Places: ...
    @property
    def places(self) -> Places: ...

    def messages(self, numbers: Places) -> Iterator[Message]:
        """The messages of the block with these *numbers*, as single messages for the decoder."""
        ...


class RowBlock(ABC):
    """A block of rows of one source table, as columns."""

    @property
    @abstractmethod
    def size(self) -> int: ...

    @abstractmethod
    def messages(self, numbers: Places) -> list[Any]:
        """The rows of the block with these *numbers*, as single messages for the decoder."""


class MessageBlock(NamedTuple):
    """A :class:`Block` built from single messages.

    Damaged bytes, and messages without a body, are in the block as messages of no bytes.
    """

    origin: str
    content: bytes
    starts: Places
    ends: Places
    places: Places
    each: list[Message]

    def messages(self, numbers: Places) -> Iterator[Message]:
        return map(self.each.__getitem__, numbers.tolist())


def blocks_of(messages: Iterable[Message]) -> Iterator[MessageBlock]:
    """Groups messages, in their order, into blocks of about :data:`BLOCK_BYTES`, each from one file or partition."""
    held: list[Message] = []
    size, limit, most, origin = 0, BLOCK_BYTES, _MOST, ""
    for message in messages:
        if message.origin != origin or size >= limit or len(held) >= most:
            if held:
                yield _block(held)
            held, size, origin = [], 0, message.origin
        held.append(message)
        if type(message) is RawMessage and message.body is not None:
            size += len(message.body)
    if held:
        yield _block(held)


def _block(messages: list[Message]) -> MessageBlock:
    bodies = [(message.body or b"") if type(message) is RawMessage else b"" for message in messages]
    lengths = np.fromiter(map(len, bodies), np.int64, len(bodies))
    ends = np.cumsum(lengths + 1) - 1
    places = np.array([message.place for message in messages], np.int64)
    return MessageBlock(messages[0].origin, b"\n".join(bodies), ends - lengths, ends, places, messages)


def are_text(block: Block) -> npt.NDArray[np.bool_]:
    """For each message of a block whether the message is valid UTF-8."""
    borders = np.append(block.starts, len(block.content))
    texts = pa.Array.from_buffers(
        pa.large_string(), len(block.starts), [None, pa.py_buffer(borders), pa.py_buffer(block.content)]
    )
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return np.array([_is_text(text) for text in texts.cast(pa.large_binary()).to_pylist()], bool)
    return np.ones(len(block.starts), bool)


def _is_text(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
