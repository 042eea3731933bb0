"""Defines the decoder interface of formats, and its input and output.

A decoder is a pure function from messages to rows of the change log. It counts every message in exactly one of five
groups (see :class:`Dispositions`), so that no message is lost unnoticed.
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
    """The properties of a mirrored table that a decoder needs.

    Args:
        source: the table as the mirror file names it, ``schema.table``.
        key: key columns in the order of the mirror file; empty for a table that accepts only inserts.
        columns: the columns that may be read; the key columns are always among them (G-12).
        keys_never_change: the mirror file promises that no update changes a key; needed where updates do not show the
            previous key (T-60, K-70).
        full_rows: the mirror file promises that changes contain all columns (G-04).
        complete_rows: columns that a change leaves out get their values from earlier changes of the row (G-04).
        key_is_unique: the mirror file promises that its key is unique, even if the source's key has more columns
            (G-83).
    """

    source: str
    key: tuple[str, ...]
    columns: ColumnChoice = ALL_COLUMNS
    keys_never_change: bool = False
    full_rows: bool = False
    complete_rows: bool = False
    key_is_unique: bool = False

    def refuse_narrower_key(self, announced: Collection[str]) -> None:
        """Raises a Refusal if the source's key *announced* has columns that the mirror file's key lacks (G-83).

        Two rows of the source could become one row of the target.
        """
        if self.key_is_unique or not self.key:
            return
        if lacking := columns_lacking(self.key, announced):
            what = f"the key of the source has {shown(lacking)}, which is not in the key {shown([*self.key])}"
            raise Refusal("KEY_DIFFERS", f"{what}: rows of two keys would become one")


class TableNames:
    """Finds mirrored tables by their name, ``schema.table``."""

    def __init__(self, mirrored: Iterable[str]) -> None:
        self._spelled = {_folded(name): name for name in mirrored}

    def meant_by(self, name: str) -> str | None:
        """The mirrored table whose name equals *name* but for case, outer blanks and invisible characters, or None."""
        return self._spelled.get(_folded(name))

    def refuse_other_case(self, name: str) -> None:
        """Raises a Refusal if :meth:`meant_by` finds a mirrored table for *name*.

        Call this method only for a *name* that no mirrored table has exactly. To ignore the changes under such a name
        could lose changes of the mirrored table (G-13).
        """
        meant = self.meant_by(name)
        if meant is not None:
            raise Refusal("TABLE_NAME_DIFFERS", f"a change of {shown(name)}, and the mirror file says {shown(meant)}")


def _folded(name: str) -> str:
    """A name without differences in case, outer blanks and invisible characters."""
    if name.isascii():
        return ".".join(part.strip() for part in name.casefold().split("."))
    seen = (sign for sign in unicodedata.normalize("NFKC", name) if unicodedata.category(sign) != "Cf")
    return ".".join(part.strip() for part in "".join(seen).casefold().split("."))


class Damage(NamedTuple):
    """Damaged bytes in a source file, in which no message could be found; they become one dead letter.

    *origin* is the file, *place* the byte offset in it, *raw* the bytes, cut at 1 MB. *claims* is the origin and place
    that the damaged message itself names, if the bytes still show them.
    """

    origin: str
    place: int
    code: str
    reason: str
    raw: bytes | None
    claims: tuple[str, int] | None = None


class TableDamage(NamedTuple):
    """Damage in a file that contains changes of one table: changes of the table are missing.

    A table that is mirrored by a key stops. *is_sure*: metadata of the source names the table, not only a folder's
    name.
    """

    table: str
    damage: Damage
    is_sure: bool = False


class Dispositions(NamedTuple):
    """Counts of messages by what became of them.

    Each message is in exactly one of the five groups, so the groups add up to ``messages``. An UPDATE that changes a
    key counts once in ``changes``, although it becomes two rows of the change log.
    """

    messages: int = 0
    changes: int = 0
    fragments: int = 0
    metadata: int = 0
    ignored: int = 0
    rejected: int = 0


BY_HAND = "(given by hand)"
"""The *topic* of a structure that comes from the mirror file, not from a topic; no topic has such a name (K-61)."""


class SourceSchema(NamedTuple):
    """The structure of a table (its columns and types) that a message of the source describes; kept in the ledger.

    *schema_id* is unique within its topic only (K-10), and empty if the source gives no id. A larger *version* is
    newer (K-11). *document* is the description as a JSON string.
    """

    topic: str
    schema_id: str
    table: str
    version: int
    document: str


USED = "(used)"
"""*document* of a record that is not a structure: the topic used a schema id that another topic announced (K-85)."""


def is_described(schema: SourceSchema) -> bool:
    """Whether *schema* describes a structure.

    False for a :data:`USED` record, which only says that a topic used an id.
    """
    return schema.document != USED


SERVER_UNKNOWN = "?/"
"""Prefix of the name of a Qlik task whose server is unknown; compared only with other names with this prefix."""


class Decoded(NamedTuple):
    """The result of decoding messages: rows of the change log in the messages' order, counts, structures, observations.

    *schemas* are the table structures that messages announced. *facts* are observations for the ledger, such as the
    number of messages of tables that are not mirrored: such messages have no row in the change log.
    """

    rows: list[LogRow]
    counts: Dispositions
    schemas: Sequence[SourceSchema] = ()
    facts: Facts = NO_FACTS


class Waiting(NamedTuple):
    """The result of a join if fragments are missing; *missing* describes the missing fragments, if known."""

    missing: str = ""


class Unjoinable(NamedTuple):
    """The result of a join if the fragments can never be joined: *row* is one dead letter for all of them."""

    row: LogRow


LoggedHalf = tuple[str, str | None]
"""A change that the log already contains: its operation and its key."""


class Decoder(ABC):
    """Decodes the messages of a format by pure functions.

    The methods that this class implements suit messages that can be decoded without other messages.
    """

    @abstractmethod
    def decode(self, messages: Iterable[Any]) -> Decoded:
        """Decodes messages to rows of the change log.

        A message that cannot be understood without other messages becomes a fragment: the fragment's ``fragment_of``
        identifies what it waits for, and ``raw`` contains the message's bytes.
        """

    def cut(self, messages: Iterable[Any], size: int) -> Iterator[list[Any]]:
        """Splits messages into lists of at most about *size* messages, which can be decoded one after the other.

        Messages that have to be decoded together stay in one list. Lists of large messages are shorter, to limit
        memory.
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
        """Joins fragments with the same ``fragment_of``, from any batches and in any order."""
        return Waiting()

    def late_rows(self, pieces: Sequence[LogRow], logged: Collection[LoggedHalf]) -> list[LogRow]:
        """Rows that late fragments add to a change that was decoded without them.

        All *pieces* have one ``fragment_of``. *logged* are the rows that the change log already has at the position of
        the pieces; only rows that *logged* lacks are returned.
        """
        return []

    def incomplete(self, pieces: Sequence[LogRow], reason: str) -> list[LogRow]:
        """The dead letters of fragments that waited too long; *reason* becomes the dead letters' reason."""
        return []

    def again(self, origin: str, place: int, body: bytes, source: str | None) -> Any:
        """Builds a message for :meth:`decode` from a dead letter that is to be read again; *source* is its table."""
        return RawMessage(origin, place, body)


class Refusal(Exception):
    """The error that a message cannot become a change: the message becomes a dead letter with *code* and *reason*.

    *key* is the key of the row that the change would have changed, if known.
    """

    def __init__(self, code: str, reason: str, key: str | None = None) -> None:
        super().__init__(code, reason, key)
        self.code = code
        self.reason = reason
        self.key = key


def refused_row(origin: str, place: int, refusal: Refusal, raw: bytes | None) -> LogRow:
    """The dead letter of a message that raised *refusal*; the dead letter names no table.

    The dead letter's reason also describes what the bytes look like, such as base64 text.
    """
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
    """A value as a string for messages: escaped, and shortened beyond 120 characters."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:100]}… ({len(text)} characters)"
