"""Reads the open dead letters in the change log, and finds those that a second reading covers.

DuckDB opens only files of batches that have dead letters.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from sqlalchemy import Engine

from open_mirroring.changes.manifest import (
    LETTERS_SHOWN,
    REASON,
    BoundRange,
    LetterPlace,
    SeenLetter,
    bounded_letters,
)
from open_mirroring.codes import Trait, having
from open_mirroring.config import Mirror
from open_mirroring.config.storage import log_place
from open_mirroring.ledger.dead_letters import is_counted, recount, settled_letters
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.ledger.tables import grouped
from open_mirroring.protocols.table_stops import KEY_CORRECTED

log = logging.getLogger(__name__)

_COUNTS = ("rejected", "refused", "expired")


class OpenLetter(NamedTuple):
    """An open dead letter with the reason; *rows* is how many rows it has in the change log.

    *hides_key* is whether the table of the dead letter is known, but the key of its row is not. *is_message* is whether
    the change log has the bytes of the message, so that the message can be decoded again. *key* is the key of its row,
    if known.
    """

    at: LetterPlace
    table: str | None
    hides_key: bool
    code: str
    epoch: str | None
    position: str | None
    is_message: bool
    rows: int
    reason: str = ""
    key: str | None = None


class LetterChoice(NamedTuple):
    """Selects dead letters; all given conditions must be met.

    *after* (inclusive) and *before* (exclusive) are positions in a stream (one enabling of streaming or one Qlik full
    load). If one of them is given, dead letters without a position are not selected.
    """

    code: str | None = None
    table: str | None = None
    after: str | None = None
    before: str | None = None
    at: LetterPlace | None = None

    def includes(self, letter: OpenLetter) -> bool:
        """Whether *letter* is selected."""
        own = (letter.at, letter.code, letter.table)
        if (self.at or letter.at, self.code or letter.code, self.table or letter.table) != own:
            return False
        if self.after is None and self.before is None:
            return True
        at = letter.position
        return at is not None and (self.after or "") <= at and (self.before is None or at < self.before)


def files_with_letters(reader: LedgerReader) -> list[str]:
    """The files of batches with dead letters, as far as the change log still has these batches."""
    dropped = reader.mirror().dropped
    batches = [manifest for number, manifest in reader.manifests().items() if number > dropped]
    with_letters = [one for one in batches if any(one.counts.get(count, 0) for count in _COUNTS)]
    return [str(file["path"]) for manifest in with_letters for file in manifest.files]


def read_open_letters(mirror: Mirror, ledger: Engine) -> list[OpenLetter]:
    """The open dead letters in the change log, in the order of batch, origin and place."""
    reader = LedgerReader(ledger, mirror.name)
    files = files_with_letters(reader)
    if not files:
        return []
    with_key = {table.source for table in mirror.tables if table.key}
    # Even if the new key is none (G-69).
    with_key |= {state.source for state in reader.tables().values() if state.stop_code == KEY_CORRECTED}
    settled = settled_letters(ledger, mirror.name)
    query = """SELECT batch, origin, place, any_value(tbl), bool_or(key IS NULL), min(code), any_value(epoch), min(pos),
                      bool_and(raw IS NOT NULL AND fragment_of IS NULL), count(*), any_value(reason),
                      CASE WHEN count(*) = 1 THEN any_value(key) END
               FROM logged WHERE kind = $kind GROUP BY ALL ORDER BY batch, origin, place"""
    from spark_jobs.changelog.reading import logged  # few runs find dead letters to read
    from spark_jobs.changelog.schema import REJECTED

    with logged(log_place(mirror), files) as db:
        rows = db.execute(query, {"kind": REJECTED}).fetchall()
    found = []
    for batch, origin, place, table, no_key, code, epoch, position, has_message, count, reason, key in rows:
        at = LetterPlace(batch, origin, place)
        if at not in settled:
            hides = no_key and table in with_key
            is_message = has_message and code not in having(Trait.OF_A_FILE)
            found.append(OpenLetter(at, table, hides, code, epoch, position, is_message, count, reason or "", key))
    return found


def untyped_letters(reader: LedgerReader, settled: Collection[LetterPlace]) -> list[OpenLetter]:
    """The dead letters that are changes with values that do not fit their columns, without the *settled* ones."""
    tables = {table.id: table.source for table in reader.tables().values()}
    found = []
    for r in (one for rejects in reader.rejected(tables).values() for one in rejects):
        known = (r["code"], r["epoch"], r["pos"], False, 1, r["reason"], r["key"])
        at = LetterPlace(r["batch"], r["origin"], r["place"])
        found.append(OpenLetter(at, tables[r["table_id"]], False, *known))
    return [letter for letter in found if letter.at not in settled]


def ensure_counted(mirror: Mirror, ledger: Engine) -> None:
    """Record the open dead letters of the change log in the ledger, unless the ledger has them.

    If the change log's files cannot be read, the error is logged, and the missing count is reported as a loss.
    """
    if is_counted(ledger, mirror.name):
        return
    import duckdb
    import pyarrow as pa

    committed = LedgerReader(ledger, mirror.name).mirror().committed
    try:
        found = read_open_letters(mirror, ledger)
    except (duckdb.Error, OSError, pa.ArrowException) as error:
        log.error("the dead letters of the change log cannot be counted: %s", type(error).__name__)
        return
    seen = grouped(
        (x.at.batch, SeenLetter(*x.at[1:], x.table, x.code, x.reason[:REASON], x.key, x.epoch, x.position))
        for x in found
    )
    bounded = {batch: bounded_letters(letters, LETTERS_SHOWN) for batch, letters in seen.items()}
    recount(ledger, mirror.name, committed, bounded)


def covered_by(
    ranges: Iterable[BoundRange], letters: Iterable[OpenLetter], counts_as_bound: Callable[[str], bool]
) -> list[OpenLetter]:
    """The dead letters whose message is in one of the *ranges*.

    *counts_as_bound* tells of a file or partition whether its offsets are message numbers. If they are not, only a
    range that begins at 0 certainly has the message.
    """
    by_name = grouped((bound.name, bound) for bound in ranges)

    def is_covered(at: LetterPlace) -> bool:
        its = by_name.get(at.origin, ())
        if counts_as_bound(at.origin):
            return any(bound.start <= at.place < bound.end for bound in its)
        return any(bound.start == 0 for bound in its)

    return [letter for letter in letters if is_covered(letter.at)]


def healed_tables(
    settled: Iterable[OpenLetter], left: Iterable[OpenLetter], hidden_again: Collection[str]
) -> list[str]:
    """The tables whose dead letters with an unreadable key are all *settled*: none is in *left* or *hidden_again*."""
    hidden = {letter.table for letter in left if letter.hides_key} | set(hidden_again)
    return sorted({letter.table for letter in settled if letter.hides_key and letter.table is not None} - hidden)
