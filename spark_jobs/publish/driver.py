"""Drives the publish protocol for many tables at once, for changes and for initial loads.

The jobs that publish changes and initial loads differ only in what is next for a table, and in how rows are staged
(:class:`TableWork`). All tables take each step of the protocol together: one transaction contains the ledger writes of
many tables, and one Spark job computes the rows of many tables.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple, Protocol

from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from open_mirroring.config import Mirror
from open_mirroring.errors import MirroringError, TerminalError, TransientError
from open_mirroring.fabric.partner_events import write_partner_events
from open_mirroring.fault_points import reach
from open_mirroring.landing_zone.opening import open_store
from open_mirroring.ledger.publish_ledger import PublishLedger, StagedDetails
from open_mirroring.ledger.reading import LedgerReader, TableState
from open_mirroring.protocols import publishing as protocol
from open_mirroring.protocols.driving import drive
from open_mirroring.reconciliation.inspection import zone_address
from spark_jobs.publish.fencing import ZoneFence
from spark_jobs.publish.zone_ports import ZonePorts
from spark_jobs.runtime.giving_way import CHANGED_MEANWHILE, GivingWay

log = logging.getLogger(__name__)

_REQUESTS_AT_ONCE = 32


class StagedWork(NamedTuple):
    """The staged files of a table, with details for the ledger such as columns and counts."""

    staged: protocol.Staged
    details: StagedDetails


Staging = StagedWork | protocol.CannotStage | MirroringError
"""The result of staging a table. An error leaves its intent open for a later run; `CannotStage` stops the table."""


class TableWork(Protocol):
    """What a job publishes, changes or initial loads: finds the next work of each table, and stages its files."""

    @property
    def kind(self) -> Literal["changes", "load"]:
        """The kind of intents (publications that the ledger recorded) that the job opens and finishes."""
        ...

    def find(self, tables: Mapping[str, TableState], rows: Mapping[str, protocol.TableRow]) -> Mapping[str, Any]:
        """The next :class:`~open_mirroring.protocols.publishing.Work` of each table, or why the table must stop."""
        ...

    def stage(self, tables: Mapping[str, TableState], intents: Mapping[str, protocol.Intent]) -> Mapping[str, Staging]:
        """Compute the rows of the tables' open *intents* (publications), and create their staged files."""
        ...


class PublicationDriver:
    """Carries out the publish protocol for many tables, with the ledger, the landing zone and a :class:`TableWork`.

    *clean* are tables without a left-over staged file; their folders are not listed again. By the table's name at the
    source: *made* has the file numbers that this run published, *postponed* the errors that left a table unfinished.
    *overtaken* are tables that another run took over (I20).
    """

    def __init__(self, mirror: Mirror, ledger: Engine, work: TableWork, clean: Collection[str] = ()) -> None:
        self._ledger = PublishLedger(ledger, mirror.name)
        self._mirror = mirror
        self._store = open_store(zone_address(mirror))
        self._ports = ZonePorts(self._store, mirror.name)
        self._fence = ZoneFence(self._store, ledger, mirror.name)
        self._claimed: set[tuple[str, int]] = set()
        self._work = work
        self._clean = frozenset(clean)
        self._tables: Mapping[str, TableState] = {}
        self._details: dict[str, StagedDetails] = {}
        self._reader, self._giving_way = LedgerReader(ledger, mirror.name), GivingWay()
        self._rows: dict[str, protocol.TableRow] = {}
        self._unanswered: set[str] = set()
        self.made: dict[str, list[int]] = {}
        self.postponed: dict[str, MirroringError] = {}
        self.overtaken: set[str] = set()

    def drive(self, tables: Sequence[TableState]) -> None:
        """Run every table's protocol to its end.

        An error that concerns one table goes into *postponed*. Raises an error if the ledger or the landing zone does
        not answer, or if another ledger claimed the landing zone; the next run then continues where this run ended.
        """
        self._tables = {state.id: state for state in tables}
        # A table without rows is never established: it must not cost these calls in every run.
        if tables and self._mirror.landing_zone.partner_events and not any(state.row.established for state in tables):
            write_partner_events(self._mirror, self._store)
        drive(
            {state.id: protocol.start() for state in tables},
            protocol.step,
            self._round,
            lambda table_id, state: self._is_over(table_id, state.request),
            silent=TransientError("UNREACHABLE", "the ledger does not answer", next_step="try again later"),
        )

    def _note_made(self, requests: Mapping[str, protocol.Request], replies: Mapping[str, protocol.Reply]) -> None:
        for table_id, reply in replies.items():
            confirms = isinstance(requests[table_id], protocol.Confirm)
            if isinstance(reply, protocol.Owned):
                before = self._rows.get(table_id, reply.row).confirmed
                if (confirms or table_id in self._unanswered) and reply.row.confirmed > before:
                    made = self.made.setdefault(self._tables[table_id].source, [])
                    made += range(before + 1, reply.row.confirmed + 1)
                self._rows[table_id] = reply.row
                self._unanswered.discard(table_id)
            elif confirms and isinstance(reply, protocol.Unknown):
                self._unanswered.add(table_id)

    def _give_way(self, replies: Mapping[str, protocol.Reply]) -> None:
        """Let another run finish the tables that it took over; each is logged once."""
        lost = sorted(self._tables[t].source for t, reply in replies.items() if isinstance(reply, protocol.Lost))
        if not lost:
            return
        if new := [source for source in lost if source not in self.overtaken]:
            what = "another run publishes these tables; this one waits, and goes on from what that one did"
            log.warning("%s: %s: %s", CHANGED_MEANWHILE, what, ", ".join(new))
        self.overtaken.update(lost)
        self._giving_way.wait(
            lambda: any(one.row.intent is not None for s, one in self._reader.tables().items() if s in lost)
        )

    def _is_over(self, table_id: str, request: protocol.Request) -> bool:
        if isinstance(request, protocol.Stage):
            intent = request.row.intent
            if intent is not None and intent.work.kind != self._work.kind:
                # Sealed files are the same to every job; rows are staged by the job whose work they are.
                source, kind = self._tables[table_id].source, intent.work.kind
                log.warning("%s: an intent of kind %r is open, which another job finishes", source, kind)
                return True
        return isinstance(request, protocol.Finished)

    def _round(self, requests: Mapping[str, protocol.Request]) -> dict[str, protocol.Reply]:
        replies: dict[str, protocol.Reply] = {}
        by_kind: dict[type, dict[str, Any]] = {}
        for table_id, request in requests.items():
            by_kind.setdefault(type(request), {})[table_id] = request
        for kind, group in by_kind.items():
            replies |= self._answer(kind, group)
        self._note_made(requests, replies)
        self._give_way(replies)
        return replies

    def _answer(self, kind: type, group: Mapping[str, Any]) -> Mapping[str, protocol.Reply]:
        try:
            if (written := self._write(kind, group)) is not None:
                return written
            if kind is protocol.Rename and (unseen := self._claim(group)):
                rest = {table_id: request for table_id, request in group.items() if table_id not in unseen}
                return {**dict.fromkeys(unseen, protocol.RenameRefused()), **(self._ask_store(rest) if rest else {})}
        except OperationalError as error:
            log.warning("the ledger did not answer: %s", type(error.orig).__name__)
            return dict.fromkeys(group, protocol.Unknown())
        except TransientError as error:
            log.warning("the landing zone was not claimed: %s", error)
            return dict.fromkeys(group, protocol.Unknown(error))
        if kind is protocol.FindWork:
            found = self._work.find({t: self._tables[t] for t in group}, {t: r.row for t, r in group.items()})
            refused = {t: one for t, one in found.items() if isinstance(one, protocol.CannotStage)}
            return {**{t: protocol.WorkFound(found.get(t)) for t in group if t not in refused}, **refused}
        if kind is protocol.Stage:
            return self._stage(group)
        return self._ask_store(group)

    def _claim(self, group: Mapping[str, protocol.Rename]) -> set[str]:
        """Claim the zone for publications whose first file is renamed next, by one call for all of them.

        Returns the tables whose numbers another ledger may have used: these are looked for before they are used.
        """
        intents = {table_id: self._rows[table_id].intent for table_id in group}
        begun = {(table_id, intent.first_number) for table_id, intent in intents.items() if intent is not None}
        begun -= self._claimed
        if not begun:
            return set()
        is_taken_over = self._fence.claim()
        self._claimed |= begun
        return {table_id for table_id, _ in begun if is_taken_over or table_id not in self._details}

    def _ask_store(self, group: Mapping[str, protocol.Request]) -> Mapping[str, protocol.Reply]:
        # Requests are of different tables and mostly wait: for the disk, or for a far store.
        replies: dict[str, protocol.Reply] = {}
        with ThreadPoolExecutor(min(len(group), _REQUESTS_AT_ONCE)) as pool:
            for table_id, answer in zip(group, pool.map(self._ask_one, group, group.values()), strict=True):
                if isinstance(answer, TerminalError):
                    self._postpone(table_id, answer)
                else:
                    replies[table_id] = answer
        return replies

    def _ask_one(self, table_id: str, request: protocol.Request) -> protocol.Reply | TerminalError:
        table = self._tables[table_id]
        if isinstance(request, protocol.Sweep) and table.source in self._clean:
            return protocol.Answered()
        try:
            return self._ports.answer(table, request)
        except TerminalError as error:
            return error

    def _postpone(self, table_id: str, error: MirroringError) -> None:
        source = self._tables[table_id].source
        log.error("%s is left for a later run: %s", source, error)
        self.postponed[source] = error

    def _stage(self, group: Mapping[str, protocol.Stage]) -> Mapping[str, protocol.Reply]:
        intents = {t: request.row.intent for t, request in group.items()}
        staged = self._work.stage(
            {t: self._tables[t] for t in group}, {t: intent for t, intent in intents.items() if intent is not None}
        )
        reach("publish.staged")
        replies: dict[str, protocol.Reply] = {}
        for table_id, outcome in staged.items():
            match outcome:
                case StagedWork(reply, details):
                    self._details[table_id] = details
                    replies[table_id] = reply
                case protocol.CannotStage():
                    replies[table_id] = outcome
                case _:
                    self._postpone(table_id, outcome)
        return replies

    def _write(self, kind: type, group: Mapping[str, Any]) -> Mapping[str, protocol.Reply] | None:
        """The replies if the requests are a write into the ledger, else None."""
        replies: Mapping[str, protocol.Reply] | None = None
        if kind is protocol.Acquire:
            replies = self._ledger.acquire(group)
        elif kind is protocol.Establish:
            replies = self._ledger.establish({t: (r.version, r.marker_etag) for t, r in group.items()})
        elif kind is protocol.Intend:
            replies = self._ledger.intend({t: (r.version, r.intent) for t, r in group.items()})
            reach("publish.intended")
        elif kind is protocol.Seal:
            replies = self._ledger.seal({t: (r.version, r.manifest, self._details[t]) for t, r in group.items()})
            reach("publish.sealed")
        elif kind is protocol.Confirm:
            reach("publish.all_renamed")
            replies = self._ledger.confirm({t: r.version for t, r in group.items()})
            reach("publish.confirmed")
        elif kind is protocol.Stop:
            for table_id, request in group.items():
                log.error("%s stops: %s: %s", self._tables[table_id].source, request.code, request.what)
            replies = self._ledger.stop({t: (r.version, r.code, r.what) for t, r in group.items()})
        return replies
