"""Defines what every format's decoder takes and gives.

A decoder is a pure function: messages in, rows of the change log out, and every message with exactly one disposition.
"""

from __future__ import annotations

import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from open_mirroring.changes.column_choice import ALL_COLUMNS, ColumnChoice
from open_mirroring.changes.manifest import Facts
from open_mirroring.changes.row_key import columns_lacking
from open_mirroring.facts.kind import NO_FACTS
from spark_jobs.changelog.schema import REJECTED, LogRow, RawMessage
from spark_jobs.sources.contract.encodings import looks_like

_LIST_BYTES = 64 * 2**20
_BASE64 = re.compile(rb'"?[A-Za-z0-9+/]{16,}={0,2}"?')


class MirroredTable(NamedTuple):
    """What a decoder must know of a mirrored table.

    Args:
        source: the table as the mirror file names it, ``schema.table``.
        key: key columns in the order of the mirror file; empty for a table that takes inserts only.
        columns: the columns that may be read, the key always among them (G-12).
        keys_never_change: the mirror file promises that no update changes a key, should nothing else tell (T-60, K-70).
        full_rows: the mirror file promises that changes carry whole rows (G-04).
        complete_rows: columns that a change leaves out are completed from the changes before it (G-04).
        key_is_unique: the mirror file promises that its key tells rows apart, whatever the source announces (G-83).
    """

    source: str
    key: tuple[str, ...]
    columns: ColumnChoice = ALL_COLUMNS
    keys_never_change: bool = False
    full_rows: bool = False
    complete_rows: bool = False
    key_is_unique: bool = False

    def refuse_narrower_key(self, announced: Collection[str]) -> None:
        """Refuse a change of a table whose announced key has columns that its key lacks: two rows may be one (G-83)."""
        if self.key_is_unique or not self.key:
            return
        if lacking := columns_lacking(self.key, announced):
            what = f"the key of the source has {shown(lacking)}, which is not in the key {shown([*self.key])}"
            raise Refusal("KEY_DIFFERS", f"{what}: rows of two keys would become one")


class TableNames:
    """The mirrored tables by name, ``schema.table``."""

    def __init__(self, mirrored: Iterable[str]) -> None:
        self._spelled = {_folded(name): name for name in mirrored}

    def meant_by(self, name: str) -> str | None:
        """The mirrored table whose name differs from this one at most in case, in blanks around it, or unseen."""
        return self._spelled.get(_folded(name))

    def refuse_other_case(self, name: str) -> None:
        """Refuse a change of a table that is mirrored but for the case of its name, instead of ignoring it (G-13)."""
        meant = self.meant_by(name)
        if meant is not None:
            raise Refusal("TABLE_NAME_DIFFERS", f"a change of {shown(name)}, and the mirror file says {shown(meant)}")


def _folded(name: str) -> str:
    """A name without what databases take no notice of: case, blanks at the end; and without what nobody sees."""
    if name.isascii():
        return ".".join(part.strip() for part in name.casefold().split("."))
    seen = (sign for sign in unicodedata.normalize("NFKC", name) if unicodedata.category(sign) != "Cf")
    return ".".join(part.strip() for part in "".join(seen).casefold().split("."))


class Damage(NamedTuple):
    """Bytes of a file in which a transport found no message: one dead letter, counted as one message.

    *place* is the byte offset in the file, *raw* what stands there, cut at 1 MB. *claims* is origin and place of the
    message that it was, where it still tells them.
    """

    origin: str
    place: int
    code: str
    reason: str
    raw: bytes | None
    claims: tuple[str, int] | None = None


class TableDamage(NamedTuple):
    """Damage in what belongs to one table: its changes are missing, so it has to stop, should it be mirrored.

    *is_sure*: the source itself says which table it is, not only the name of a folder.
    """

    table: str
    damage: Damage
    is_sure: bool = False


class Dispositions(NamedTuple):
    """How many messages ended how; each in exactly one of the last five, so these add up to ``messages``.

    An UPDATE that changes a key is one of ``changes``, although it makes two rows.
    """

    messages: int = 0
    changes: int = 0
    fragments: int = 0
    metadata: int = 0
    ignored: int = 0
    rejected: int = 0


BY_HAND = "(given by hand)"
"""Stands for the topic of what the mirror file gives: no topic has such a name (K-61)."""


class SourceSchema(NamedTuple):
    """A structure that the source announced in a message of its own, kept in the ledger.

    Ids are unique in a topic only (K-10), and empty when there is none. A larger *version* is newer (K-11). *document*
    is the announcement as JSON text.
    """

    topic: str
    schema_id: str
    table: str
    version: int
    document: str


USED = "(used)"
"""The document of a note, kept beside the structures, that a topic used an id which another one announced (K-85)."""


def is_described(schema: SourceSchema) -> bool:
    """Whether it is a structure, and no note."""
    return schema.document != USED


SERVER_UNTOLD = "?/"
"""Begins the name of a task whose server nothing tells: it is compared with its like alone."""


class Decoded(NamedTuple):
    """The rows of some messages, in their order, with their accounts, and what was seen beside them.

    Messages of a table that is not mirrored have no row, but a fact. *schemas* are announced structures.
    """

    rows: list[LogRow]
    counts: Dispositions
    schemas: Sequence[SourceSchema] = ()
    facts: Facts = NO_FACTS


class Waiting(NamedTuple):
    """Pieces that are not complete yet, or wait for a structure; *missing* says for what, as far as it is known."""

    missing: str = ""


class Unjoinable(NamedTuple):
    """Pieces that can never be joined: they become one dead letter."""

    row: LogRow


LoggedHalf = tuple[str, str | None]
"""What the log holds at a place: the operation of a change, and its key."""


class Decoder(ABC):
    """What a format offers to whoever reads messages: pure functions, here of messages that are independent."""

    @abstractmethod
    def decode(self, messages: Iterable[Any]) -> Decoded:
        """The rows of whole messages, and fragments for those that need others to be understood.

        A fragment's ``fragment_of`` names what it waits for; ``raw`` holds the message's bytes.
        """

    def cut(self, messages: Iterable[Any], size: int) -> Iterator[list[Any]]:
        """Cut messages into lists of about *size*, only where :meth:`decode` then gives the same as for all of them.

        A list of large messages is shorter, so that memory stays flat.
        """
        chunk: list[Any] = []
        held = 0
        for message in messages:
            chunk.append(message)
            held += len(getattr(message, "body", None) or b"")
            if len(chunk) >= size or held >= _LIST_BYTES:
                yield chunk
                chunk, held = [], 0
        if chunk:
            yield chunk

    def join(self, pieces: Sequence[LogRow]) -> Decoded | Waiting | Unjoinable:
        """Join the fragments of one identity, from any batches and in any order."""
        return Waiting()

    def late_rows(self, pieces: Sequence[LogRow], logged: Collection[LoggedHalf]) -> list[LogRow]:
        """The rows that the fragments of one identity add to what is logged at their position already; mostly none."""
        return []

    def incomplete(self, pieces: Sequence[LogRow], reason: str) -> list[LogRow]:
        """The dead letters of fragments that waited too long."""
        return []

    def again(self, origin: str, place: int, body: bytes, source: str | None) -> Any:
        """Make of a logged dead letter the message that :meth:`decode` takes; *source* is the letter's table."""
        return RawMessage(origin, place, body)


class Refusal(Exception):
    """A message that cannot become a change: stable code, a reason that says what is wrong, the key if it is known."""

    def __init__(self, code: str, reason: str, key: str | None = None) -> None:
        super().__init__(code, reason, key)
        self.code = code
        self.reason = reason
        self.key = key


def refused_row(origin: str, place: int, refusal: Refusal, raw: bytes | None) -> LogRow:
    """The dead letter of a message, still without table; its reason says what the bytes look like, if they show it."""
    reason = f"{refusal.reason}{_hint(refusal, raw or b'')}"
    return LogRow(REJECTED, origin, place, code=refusal.code, reason=reason, raw=raw)


def _hint(refusal: Refusal, raw: bytes) -> str:
    if isinstance(refusal.__cause__, UnicodeDecodeError):
        return f"; {looks_like(raw)}"
    if refusal.code != "MESSAGE_INVALID":
        return ""
    if all(name in raw for name in (b'"topic"', b'"partition"', b'"offset"')):
        return "; the line wraps a message with topic, partition and offset, as `layout: wrapped` reads it"
    if _BASE64.fullmatch(raw.strip()):
        return "; the message is a text in base64: send it decoded, or as `value` of wrapped lines"
    return ""


def damaged_row(damage: Damage) -> LogRow:
    """The dead letter of damaged bytes."""
    return LogRow(REJECTED, damage.origin, damage.place, code=damage.code, reason=damage.reason, raw=damage.raw)


def shown(value: object) -> str:
    """A value as a reason may quote it: escaped and short."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:100]}… ({len(text)} characters)"
