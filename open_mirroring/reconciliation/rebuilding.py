"""Decides what a lost ledger contained, from the files' footers and the change log's records. Pure functions.

A table that cannot be fully known is stopped with ``LEDGER_UNKNOWN``; the others continue. The newest file stays in the
folder (F-35), and its footer describes its publication and the table's state then. It does not show whether that
publication was complete; so it is planned again from the log and compared file by file (:func:`judge_last`).
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
    """A numbered file of a table, in any of its folders; *footer* is None if the file has none of ours."""

    number: int
    size: int
    etag: str
    footer: Footer | None
    columns: tuple[LandingColumn, ...] = ()


@dataclass(frozen=True)
class FoundTable:
    """What the landing zone shows of a table: its marker's id (None if it is not ours), and its numbered files."""

    source: str
    incarnation: str | None
    marker_etag: str
    files: tuple[FoundFile, ...] = ()
    is_text: bool = False


@dataclass(frozen=True)
class FoundLog:
    """The log's newest batch, and for each table the batches with its rows; those up to *dropped* may be gone."""

    newest: int
    holding: Mapping[str, frozenset[int]]
    dropped: int = 0


class NewTable(NamedTuple):
    """A table without any published or logged row, which begins as a new one; the marker is that in its folder."""

    incarnation: str | None
    marker_etag: str


class UnknownTable(NamedTuple):
    """A table that stays stopped; *why* is what cannot be known about it.

    If *log_from* is above 0, the log up to that batch may not contain all of the table's rows: only a load does.
    """

    why: str
    table_id: str | None = None
    generation: int = 1
    confirmed: int = 0
    log_from: int = 0


@dataclass(frozen=True)
class KnownTable:
    """A table of which all is known but its last publication, which has to be compared with the log.

    *last* are the files of that publication that still exist, *standing* is the table's state when they were staged.
    The service has applied and removed the files up to number *purged* (F-36).
    """

    found: FoundTable
    newest: FoundFile
    footer: Footer
    last: tuple[FoundFile, ...]
    standing: Standing
    purged: int

    @property
    def before(self) -> tuple[FoundFile, ...]:
        """The files of earlier publications that still exist."""
        return self.found.files[: -len(self.last)]

    @property
    def work(self) -> Work:
        """The changes that the last publication contained."""
        return Work("changes", self.footer.batch_to, "", self.standing.position_from, self.standing.position_to)


Decision = NewTable | UnknownTable | KnownTable


def decide(mirror: str, found: FoundTable, log: FoundLog) -> Decision:
    """Decide what can be known about a table; its last publication is still to be compared."""
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
    """Compare the last publication with the files that the log gives for it now.

    *planned* has their pairs of digest and row count. Returns how many of them were published: if fewer exist, the
    others were not.
    """
    first = table.footer.first_number
    for number, *_, footer, _ in table.last:
        sealed = footer and (footer.digest, footer.rows)
        if sealed and (number >= first + len(planned) or planned[number - first] != sealed):
            what = f"for number {number} the log gives other rows today"
            return unknown_last(table, f"{what}: settings, columns or the log have changed since", log)
    return table.newest.number - first + 1


def unknown_last(table: KnownTable, why: str, log: FoundLog) -> UnknownTable:
    """The decision for a table whose last publication cannot be compared."""
    life = table.footer.table_id, table.footer.generation
    return UnknownTable(why, *life, table.newest.number, _log_from(life[1], table.standing, log))
