"""Decides what a lost ledger contained, from the files' footers and the change log's records. Pure functions.

A table whose state cannot be fully known is stopped with ``LEDGER_UNKNOWN``; the other tables continue. The newest file
of a table stays in the table's folder (F-35). The footer of this file describes its publication and the table's state
at that time, but not whether all files of the publication were published. So the publication is planned again from the
change log and compared with the files (:func:`judge_last`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from open_mirroring.changes.history_names import logged_as
from open_mirroring.landing_zone.data_file import Footer
from open_mirroring.landing_zone.schema import LandingColumn
from open_mirroring.landing_zone.standing import Standing
from open_mirroring.protocols.publishing import Work

REBUILT = "rebuilt"
"""The kind of the one publication that replaces all from before the ledger was lost."""


class FoundFile(NamedTuple):
    """A numbered file of a table, in any of the table's folders; *footer* is None if the file has no footer of ours."""

    number: int
    size: int
    etag: str
    footer: Footer | None
    columns: tuple[LandingColumn, ...] = ()


@dataclass(frozen=True)
class FoundTable:
    """What the landing zone shows of a table: the id in its marker file (None if not ours), and its numbered files."""

    source: str
    incarnation: str | None
    marker_etag: str
    files: tuple[FoundFile, ...] = ()
    is_text: bool = False


@dataclass(frozen=True)
class FoundLog:
    """The change log's newest batch, and for each table the batches with rows of the table.

    Batches up to *dropped* may be gone from the change log.
    """

    newest: int
    holding: Mapping[str, frozenset[int]]
    dropped: int = 0


class NewTable(NamedTuple):
    """A table without any published or logged row, which begins as a new table.

    If its folder has a marker file (`_incarnation.json`), the table keeps it; *incarnation* is None without one.
    """

    incarnation: str | None
    marker_etag: str


class UnknownTable(NamedTuple):
    """A table that stays stopped; *why* is what cannot be known about the table.

    If *log_from* is above 0, the change log may lack rows of the table in batches up to *log_from*. Then the table's
    rows can only be restored by an initial load.
    """

    why: str
    table_id: str | None = None
    generation: int = 1
    confirmed: int = 0
    log_from: int = 0


@dataclass(frozen=True)
class KnownTable:
    """A table whose state is known except for its last publication, which has to be compared with the change log.

    *last* are the files of the last publication that still exist. *standing* is the table's state when these files
    were staged. Fabric has applied and removed the files up to number *purged* (F-36).
    """

    found: FoundTable
    newest: FoundFile
    footer: Footer
    last: tuple[FoundFile, ...]
    standing: Standing
    purged: int

    @property
    def before(self) -> tuple[FoundFile, ...]:
        """The files that still exist of the publications before the last one."""
        return self.found.files[: -len(self.last)]

    @property
    def work(self) -> Work:
        """The changes that the table's last publication contained."""
        return Work("changes", self.footer.batch_to, "", self.standing.position_from, self.standing.position_to)


Decision = NewTable | UnknownTable | KnownTable


def decide(mirror: str, found: FoundTable, log: FoundLog) -> Decision:
    """Decide what can be known about a table; its last publication must still be compared with the change log."""
    holding = log.holding.get(logged_as(found.source), frozenset())
    if not found.files:
        if not holding:
            return NewTable(found.incarnation, found.marker_etag)
        where = "no folder" if found.incarnation is None else "no file in its folder"
        return UnknownTable(f"changes of it are logged, and there is {where}: it may have been in a reset")
    if found.is_text:
        return UnknownTable("its files are delimited text, which does not say what it is of", log_from=log.newest)
    newest = found.files[-1]
    footers = [one.footer for one in found.files]
    lives = {(one.mirror, one.table_id, one.generation) if one else None for one in footers}
    footer = newest.footer
    if footer is None or len(lives) > 1 or footer.mirror != mirror:
        return UnknownTable("not all files in its folder are of one life of this table", log_from=log.newest)
    table_id, generation, standing = footer.table_id, footer.generation, Standing.of(footer.standing)

    def unknown(why: str) -> UnknownTable:
        return UnknownTable(why, table_id, generation, newest.number, _log_from(generation, standing, log))

    if found.incarnation is None:
        return unknown("its folder has no marker of ours")
    if footer.kind == "load":
        return unknown("its newest file is of its initial load, and does not say whether it is the last one of it")
    if footer.batch_to > log.newest:
        return unknown(f"its newest file is of batch {footer.batch_to}, and the log ends at batch {log.newest}")
    if any(batch <= log.dropped for batch in holding):
        return unknown(f"maintenance has dropped batches up to {log.dropped}, and what that decided is lost")
    if standing is None:
        return unknown("its newest file is of another version, and does not say how the table was")
    if standing.untyped:
        return unknown(f"{standing.untyped} of its changes could not be typed, and only the ledger named them")
    if standing.former:
        return unknown(f"{standing.former} columns of earlier rows are read otherwise, and only the ledger noted how")
    last = tuple(one for one in found.files if one.footer and one.footer.first_number == footer.first_number)
    if missing := {*range(last[0].number, newest.number)} - {one.number for one in last}:
        return unknown(f"number {min(missing)} of its last publication is missing, between others that are there")
    return KnownTable(found, newest, footer, last, standing, found.files[0].number - 1)


def _log_from(generation: int, standing: Standing | None, log: FoundLog) -> int:
    """The batch up to which the log may lack rows of the table; 0 if the log has all of them."""
    all_logged = generation == 1 and standing is not None and standing.loaded_columns is None and not standing.log_from
    return 0 if all_logged else log.newest


def judge_last(table: KnownTable, planned: Sequence[tuple[str, int]], log: FoundLog) -> int | UnknownTable:
    """Compare a table's last publication with the files that would be planned from the change log now.

    *planned* has a pair of digest and row count for each of the planned files. Returns how many of the planned files
    were published: if fewer files than planned exist, the rest was not published. Returns an UnknownTable if a
    published file differs from the planned one.
    """
    first = table.footer.first_number
    for number, *_, footer, _ in table.last:
        sealed = footer and (footer.digest, footer.rows)
        if sealed and (number >= first + len(planned) or planned[number - first] != sealed):
            what = f"for number {number} the change log now gives other rows"
            return unknown_last(table, f"{what}: settings, columns or the log have changed since", log)
    return table.newest.number - first + 1


def unknown_last(table: KnownTable, why: str, log: FoundLog) -> UnknownTable:
    """Build the decision for a table whose last publication cannot be compared with the change log."""
    life = table.footer.table_id, table.footer.generation
    return UnknownTable(why, *life, table.newest.number, _log_from(life[1], table.standing, log))
