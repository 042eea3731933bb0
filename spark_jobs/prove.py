"""Spark job ``prove``: compares tables of the source with the mirrored tables, row by row, and changes neither.

``spark-submit spark_jobs/prove.py MIRROR.yaml [--tables a,b]``, or :func:`prove` in a running Spark session.
:mod:`open_mirroring.protocols.proving` decides when a key counts as different.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Engine

from open_mirroring.changes.column_notes import ColumnNote
from open_mirroring.changes.log_position import LogPosition, not_below
from open_mirroring.codes import next_step_of
from open_mirroring.config import Mirror, Table
from open_mirroring.config.storage import log_place
from open_mirroring.config.tables import ProofExport
from open_mirroring.errors import MirroringError, TerminalError, TransientError
from open_mirroring.fault_points import reach
from open_mirroring.landing_zone.opening import open_store
from open_mirroring.landing_zone.schema import LandingColumn
from open_mirroring.ledger.columns import verify_columns
from open_mirroring.ledger.extract_ledger import ExtractLedger
from open_mirroring.ledger.proofs import ProofLedger, RecordedProof
from open_mirroring.ledger.reading import LedgerReader, TableState
from open_mirroring.operate.exit_codes import Exit, UsageError
from open_mirroring.operate.mirror_view import plain
from open_mirroring.operate.operations import ROUTINE
from open_mirroring.operate.words import amount, pace, verified_words
from open_mirroring.protocols.coverage import Rotation, Verified
from open_mirroring.protocols.proving import (
    SHOWN_KEYS,
    CellSum,
    DifferingKey,
    Kind,
    Position,
    Proof,
    ProofVerdict,
    common_type,
    differing_cells,
    why_behind,
)
from open_mirroring.protocols.verdicts import Finding
from open_mirroring.reconciliation.inspection import declare_tables, inspect_mirror, zone_address
from open_mirroring.storage.object_path import Place
from spark_jobs.proof.histories import CONTENTS, LogOfHistory, contradictions
from spark_jobs.proof.keys import LoggedChanges, differing_keys, read_sums
from spark_jobs.proof.mirrored_files import Target, table_place, tables_place
from spark_jobs.proof.published_rows import published_rows, whose_fault
from spark_jobs.proof.routine import Scope, keys_to_ask
from spark_jobs.proof.rows import HashKeys, OfKeys, Shape, are_asked_by_key
from spark_jobs.proof.sides import Source, hashed_source, proof_source, source_side, source_unnamed
from spark_jobs.runtime.job import TABLES, Job
from spark_jobs.runtime.tasks import is_of_spark
from spark_jobs.sources.registry import transport_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_MOST_KEYS = 250_000
"""At most so many differing keys of a table are looked at again; the driver holds them in memory."""
_AT_ONCE = min(8, max(2, os.cpu_count() or 1))
_NOWHERE = Position(0, None)


class Proved(NamedTuple):
    """The results of a run by source table, as JSON values."""

    tables: Mapping[str, Mapping[str, Any]]

    @property
    def exit(self) -> Exit:
        """The exit code: 7 if a table differs, else 5 if a table could not be proved, else 0: all tables are equal."""
        verdicts = {table["verdict"] for table in self.tables.values()}
        if ProofVerdict.DIFFERENT in verdicts:
            return Exit.NOT_EQUAL
        return Exit.ON_HOLD if ProofVerdict.UNPROVEN in verdicts else Exit.DONE


class ProofOptions(NamedTuple):
    """Options of a proof; None means the setting in the mirror file. *exports* are by source table.

    If *is_routine*, the proof compares what is due by ``prove.cover_in_days`` in the mirror file, else all rows.
    """

    exports: Mapping[str, ProofExport] | None = None
    settle_seconds: float | None = None
    looks: int | None = None
    is_routine: bool = False


@dataclass
class _Case:
    """One table while it is being proved."""

    table: Table
    state: TableState
    gone: frozenset[str]
    proof: Proof
    scope: Scope
    source: Source | None = None
    shape: Shape | None = None
    cells: frozenset[int] = frozenset()
    base: Position = _NOWHERE
    left: pa.Table | None = None
    beyond: bool = False
    counts: Counter[Kind] = field(default_factory=Counter)
    columns: Counter[str] = field(default_factory=Counter)
    keys: list[DifferingKey] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def prove(
    mirror: Mirror,
    ledger: Engine,
    spark: SparkSession,
    only: Sequence[str] | None = None,
    asked: ProofOptions | None = None,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> Proved:
    """Compare every table (only those in *only*, if given) with its source, and record the results in the ledger.

    A table that cannot be compared gets the result UNPROVEN, with a code and reason, and its last proof is kept; the
    other tables are still compared. Raises ``ARGUMENT_INVALID`` if *only* or *asked* is wrong; ``CONFIG_INVALID`` if no
    table can be compared; ``PLACE_MISSING`` if the place of the mirrored tables is not found; and the errors of ledger
    and landing zone.
    """
    ids = declare_tables(mirror, ledger)
    if unknown := sorted(set(only or ()) - ids.keys()):
        raise UsageError(f"the mirror has no tables {unknown}", f"choose from {sorted(ids)}")
    asked = asked or ProofOptions()
    chosen = [table for table in mirror.tables if only is None or table.source in only]
    if chosen and not any(proof_source(table, (asked.exports or {}).get(table.source)) for table in chosen):
        raise source_unnamed([table.source for table in chosen])
    return _Proving(mirror, ledger, spark, asked, tables_place(mirror), sleep).run(only)


class _Proving:
    def __init__(
        self,
        mirror: Mirror,
        ledger: Engine,
        spark: SparkSession,
        asked: ProofOptions,
        tables: Place,
        sleep: Callable[[float], None],
    ) -> None:
        self._mirror, self._ledger, self._spark, self._asked, self._tables = mirror, ledger, spark, asked, tables
        self._sleep = sleep
        self._reader, self._extracted = LedgerReader(ledger, mirror.name), ExtractLedger(ledger, mirror.name)
        self._log_root = log_place(mirror)
        self._findings: Mapping[str, Finding] = {}
        self._noted: Mapping[str, Sequence[ColumnNote]] = {}
        self._behind = ""
        self._looks = asked.looks or mirror.prove.looks
        self._now = datetime.now(UTC)
        said = mirror.prove.settle_seconds if asked.settle_seconds is None else asked.settle_seconds
        self._settle = transport_of(mirror).settles_after if said is None else said

    def run(self, only: Sequence[str] | None) -> Proved:
        states = self._reader.tables()
        gone = self._reader.gone_columns(states.values())
        before = ProofLedger(self._ledger).newest(state.id for state in states.values())
        self._noted = self._reader.unverified_columns(states.values())
        cases = []
        for table in self._mirror.tables:
            if only is None or table.source in only:
                state = states[table.source]
                dropped = frozenset(column.column for column in gone.get(state.id, ()))
                scope = Scope(self._now, before.get(state.id))
                cases.append(_Case(table, state, dropped, Proof(_NOWHERE, ""), scope))
        self._look_at(cases, self._first_look)
        looking = [case for case in cases if case.left is not None]
        ends: Mapping[str, int] | None = None
        for _ in range(1, self._looks):
            if not looking:
                break
            log.info("%d tables have keys that differ: another look in %s s", len(looking), self._settle)
            self._sleep(self._settle)
            # What was committed before the last look has arrived by this time where it is read.
            try:
                ends = transport_of(self._mirror).ends(self._spark, self._extracted.bound()) if ends is None else ends
                waiting, open_batch = len(self._extracted.open_fragments()), self._reader.mirror().open_batch
                self._behind = why_behind(ends, self._reader.bound(), open_batch, waiting)
            except MirroringError as error:
                self._behind = f"how far the source's changes go is unknown: {error.code}"
            if self._behind:
                log.info("not yet: %s", self._behind)
                continue
            self._look_at(looking, self._second_look)
            looking, ends = [case for case in looking if case.left is not None], None
        proved = {case.table.source: self._concluded(case) for case in cases}
        return Proved(proved | {case.table.source: self._concluded(case) for case in self._histories(only)})

    def _histories(self, only: Sequence[str] | None) -> list[_Case]:
        """Compare histories with their tables, again as long as changes are on their way; a routine those that are due.

        A history is read as a whole, so a routine compares it once in ``prove.cover_in_days``.
        """
        states, days = self._reader.tables(), self._mirror.prove.cover_in_days
        before = ProofLedger(self._ledger).newest(state.id for state in states.values())
        cases = []
        for table in self._mirror.tables:
            if (history := table.history_table) is None or (only is not None and table.source not in only):
                continue
            state, ranges = states[history.source], None
            if self._asked.is_routine and days is not None and (last := before.get(state.id)) is not None:
                is_young = last.proof.proved_at and self._now - last.proof.proved_at < timedelta(days=days - 1)
                ranges = frozenset[int]() if is_young and last.proof.verdict is ProofVerdict.EQUAL else None
            scope = Scope(self._now, before.get(state.id), ranges=ranges)
            cases.append(_Case(history, state, frozenset(), Proof(_NOWHERE, ""), scope))
        left, self._behind = [case for case in cases if not case.scope.is_idle], ""
        for look in range(self._looks):
            if look and left:
                self._sleep(self._settle)
            self._look_at(left, self._look_at_history)
            left = [case for case in left if case.left is not None]
        return cases

    def _look_at_history(self, case: _Case) -> None:
        owner = next(table for table in self._mirror.tables if table.history_table == case.table)
        current = replace(case, table=owner, state=self._reader.tables(owner.source)[owner.source])
        _refuse_unready(current.state)
        _refuse_unready(case.state)
        table, history = self._target(current), self._target(case, CONTENTS)
        shape = Shape(_columns_of_both(table.columns, history.columns), tuple(owner.key))
        found = contradictions(table, history, shape, has_versions=bool(case.table.key), most=_MOST_KEYS + 1)
        if case.left is not None:
            found = found.filter(pc.is_in(found["key"], value_set=case.left["key"].combine_chunks()))
        case.beyond = found.num_rows > _MOST_KEYS
        case.base = min(current.base, case.base, key=lambda at: at.batch)
        logged = LogOfHistory(self._spark, self._reader, self._log_root, current.state, case.state)
        wrong = logged.explain(found.slice(0, _MOST_KEYS), shape, case.base.batch)
        case.left = wrong.moving or None
        case.counts.update(Kind(kind) for kind in wrong.kinds.values())
        case.keys += [DifferingKey(key, Kind(kind)) for key, kind in sorted(wrong.kinds.items())]
        case.keys[SHOWN_KEYS:] = []
        case.reasons += wrong.reasons
        case.proof = replace(
            case.proof,
            at=case.base,
            source=f"the mirrored table {owner.target}",
            target_version=history.version,
            rows_source=table.rows,
            rows_target=history.rows,
            looks=case.proof.looks + 1,
        )

    def _look_at(self, cases: Sequence[_Case], look: Callable[[_Case], None]) -> None:
        """Look at several tables at the same time, because small tables alone would leave processor cores idle."""
        self._findings = inspect_mirror(self._mirror, self._ledger, record=False)
        begun = time.monotonic()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            looked = pool.map(lambda case: self._looked(case, look), cases)
            for done, (case, _) in enumerate(zip(cases, looked, strict=True), 1):
                seconds = time.monotonic() - begun
                rows = sum(one.proof.rows_source or 0 for one in cases[:done])
                log.info(
                    "%s: looked at, %d of %d tables, %d rows/s%s",
                    *(case.table.source, done, len(cases), rows / max(seconds, 0.001)),
                    pace(done, len(cases), seconds),
                )

    def _first_look(self, case: _Case) -> None:
        _refuse_unready(case.state)
        export = (self._asked.exports or {}).get(case.table.source)
        streamed = self._reader.streamed_types(case.state.id)
        borders = None if export is not None else case.scope.borders
        source = source_side(self._spark, self._mirror, case.table, export, case.gone, streamed, borders)
        target = self._target(case)
        case.source = self._as_published(source, case.state)
        case.shape = _shape(case, target)
        self._choose(case, target)
        if case.scope.is_idle:
            return
        log.info("%s: comparing with %s", case.table.source, case.source.text)
        part, keys = case.scope.part(case.shape), case.scope.keys
        sums: list[Mapping[int, CellSum]] = [{}, {}]
        if case.scope.ranges != frozenset():
            sums = [read_sums(self._spark, side, case.shape, part) for side in (case.source, target)]
        cells = differing_cells(*sums)
        case.cells = frozenset(cells)
        case.scope = case.scope.looked(sums[0], case.shape, target.rows, case.base, case.state.row.published_position)
        asked = 0 if keys is None else keys.values.num_rows
        case.proof = replace(
            case.proof,
            at=case.base,
            source=case.source.text,
            target_version=target.version,
            rows_source=asked + sum(one.rows for one in sums[0].values()),
            rows_target=asked + sum(one.rows for one in sums[1].values()),
            cells=(case.shape.ranges if part is None else len(part.ranges)) * case.shape.buckets,
            cells_differing=len(cells),
            looks=1,
        )
        if target.version is None:
            case.reasons.append("there is no such table at the target")
            if not case.state.row.confirmed:
                raise TerminalError("PROOF_FAILED", "nothing of it was published yet", next_step="run a tick first")
        found = self._differing(case, target, HashKeys(case.shape, case.cells, part)) if cells else None
        if asked:
            of_keys = self._differing(case, target, HashKeys(case.shape, None, keys))
            # A key of a range that is due may have changed, too.
            again = None if found is None else pc.is_in(of_keys["key"], value_set=found["key"].combine_chunks())
            found = of_keys if found is None else pa.concat_tables([found, of_keys.filter(pc.invert(again))])
        if found is not None:
            case.beyond = found.num_rows > _MOST_KEYS
            case.left = found.slice(0, _MOST_KEYS) or None

    def _choose(self, case: _Case, target: Target) -> None:
        """Choose what of a table is compared."""
        assert case.source is not None and case.shape is not None
        days = self._mirror.prove.cover_in_days
        if days is None or (self._asked.exports or {}).get(case.table.source) is not None:
            return
        case.scope = case.scope.covering(case.source.split)
        known = case.scope.known
        if known is not None and self._reader.mirror().dropped > known.batch:
            return  # the change log no longer has all changes since the last proof
        if self._asked.is_routine:
            keys = keys_to_ask(self._spark, self._reader, self._log_root, case.state, case.source, case.scope)
            rotation = Rotation(timedelta(days=days), self._mirror.prove.runs_from(self._now))
            case.scope = case.scope.chosen(rotation, case.shape, keys, target.rows)

    def _as_published(self, source: Source, state: TableState) -> Source:
        """Hash the source's columns as in the published files. Raises ``TABLE_REDECLARED`` for another salt."""
        # If the mirror file no longer hashes a column, its source has its own type: then the types differ.
        there = {column.name for column in source.columns if column.type == "string"}
        salted = {name: check for name, check in state.columns.salted.items() if name in there}
        if not salted:
            return source
        salt = self._mirror.salt()
        if salt is None or {*salted.values()} != {salt.check}:
            what = f"the columns {sorted(salted)} are published as hashes with another salt than the mirror file's"
            raise TerminalError("TABLE_REDECLARED", what, next_step=next_step_of("TABLE_REDECLARED"))
        return hashed_source(source, sorted(salted), salt)

    def _target(self, case: _Case, contents: Collection[str] = ()) -> Target:
        """Open the newest version of the target, and note up to which batch it certainly has all changes."""
        case.state = self._reader.tables(case.table.source)[case.table.source]
        row = case.state.row
        files = self._reader.published(case.state.id, row.generation)
        target = Target(self._spark, table_place(self._tables, case.state.folder), case.state.columns.renamed, contents)
        finding = self._findings.get(case.table.source)
        # A last file that is alone in its folder may be applied or not (F-35): the newest change of the table shows it.
        applied = row.confirmed if finding is None or not finding.backlog.files else finding.applied
        open_files = [
            file
            for file in files
            if file.number > applied or target.changed is None or file.confirmed_at > target.changed
        ]
        batch = min([row.published_batch, *(file.batch_from for file in open_files)])
        epochs = self._reader.epochs([case.state.id]).get(case.state.id, {})
        seen = self._reader.highest(case.state.source, batch)
        known = [LogPosition.parse(epochs[e], text) for e, text in seen.items() if epochs.get(e, -1) >= 0]
        case.base = Position(batch, f"{max(known).epoch}:{max(known).text}" if known else None)
        return target

    def _differing(self, case: _Case, target: Target, work: HashKeys) -> pa.Table:
        """The keys that differ; at a second look, only those that differed at the first are compared."""
        assert case.source is not None
        return differing_keys(self._spark, (case.source, target), work, case.left, _MOST_KEYS + 1)

    def _looked(self, case: _Case, look: Callable[[_Case], None]) -> None:
        """Look at one table; an error becomes its result, and the other tables go on."""
        try:
            look(case)
            return
        except MirroringError as error:
            failure = error
        except Exception as error:
            if not is_of_spark(error):
                raise
            what = str(error).splitlines()[0][:300]
            failure = TransientError("PROOF_FAILED", f"Spark failed: {what}", next_step="prove it again")
        log.warning("%s cannot be proved: %s", case.table.source, failure)
        case.proof = replace(case.proof, at=case.base, code=failure.code)
        case.reasons.append(f"{failure.code}: {failure.what}{f' ({failure.where})' if failure.where else ''}")
        case.left = None

    def _second_look(self, case: _Case) -> None:
        before, state_before = case.base, case.state
        assert case.left is not None and case.shape is not None
        target = self._target(case)
        if case.state.row.generation != state_before.row.generation:
            raise TerminalError(
                "CHANGED_MEANWHILE", "the table was reset while it was compared", next_step="prove it again"
            )
        known = case.gone | {column.name for column in case.shape.columns}
        if new := {column.name for column in target.columns} - known:
            raise TransientError(
                "CHANGED_MEANWHILE",
                f"the target has got the columns {sorted(new)} meanwhile",
                next_step="prove it again",
            )
        work = HashKeys(case.shape, case.cells, case.scope.part(case.shape))
        if case.scope.keys is not None:
            work = HashKeys(case.shape, None, OfKeys.of(case.left["key"].combine_chunks(), case.shape))
        still = self._differing(case, target, work)
        moved = self._moved(case, still, before, state_before)
        case.proof = replace(case.proof, looks=case.proof.looks + 1)
        in_flight = (
            pa.array([True] * still.num_rows, pa.bool_()) if moved is None else pc.is_in(still["key"], value_set=moved)
        )
        self._take(case, still.filter(pc.invert(in_flight)))
        case.left = still.filter(in_flight) or None

    def _moved(self, case: _Case, keys: pa.Table, since: Position, at: TableState) -> pa.Array | None:
        """Those of *keys* with a logged change that the target may not have had; None: any key may have one."""
        source = case.table.source
        epochs = self._reader.epochs([at.id]).get(at.id, {})
        reaching: dict[str, str] = {}
        if at.row.published_position is not None:
            reaching |= not_below(at.row.published_position, epochs)
        if case.source is not None and case.source.since is not None:
            dropped = self._reader.mirror().dropped
            reached = self._reader.highest(source, dropped).values() if dropped else ()
            if any(text >= case.source.since for text in reached):
                return None  # the change log no longer shows which keys were changed since the export
            reaching |= {epoch: case.source.since for epoch, ordinal in epochs.items() if ordinal >= 0}
        changes = LoggedChanges.since(self._reader, self._log_root, source, since.batch, reaching)
        if changes.files and not case.table.key:
            return None
        return changes.keys(self._spark, keys["key"].combine_chunks())

    def _take(self, case: _Case, certain: pa.Table) -> None:
        """Count the keys that certainly differ, and list the first of them."""
        assert case.shape is not None
        names = [column.name for column in case.shape.columns]
        for line in certain.group_by("kind").aggregate([("times", "sum")]).to_pylist():
            case.counts[Kind(line["kind"])] += line["times_sum"]
        for line in pc.value_counts(pc.list_flatten(certain["columns"])).to_pylist():
            case.columns[names[line["values"]]] += line["counts"]
        shown = max(0, SHOWN_KEYS - len(case.keys))
        for line in certain.sort_by("key").slice(0, shown).to_pylist():
            columns = tuple(names[at] for at in line["columns"])
            case.keys.append(DifferingKey(line["key"], Kind(line["kind"]), columns))

    def _concluded(self, case: _Case) -> Mapping[str, Any]:
        """The result for one table, which is also recorded in the ledger."""
        before = case.scope.before
        if case.scope.is_idle and before is not None:
            log.info("%s: nothing is due", case.table.source)
            return self._reported(before, case, is_known=True)
        unproven = 0 if case.left is None else case.left.num_rows
        if unproven:
            case.reasons.append(
                self._behind or f"{unproven} keys differ, and changes of them are on their way or came meanwhile"
            )
        if case.beyond:
            unproven += 1
            case.reasons.append(f"more than {_MOST_KEYS} keys differ; the others were not looked at again")
        case.reasons += self._reasons_of_difference(case)
        proof = replace(
            case.proof,
            counts=dict(case.counts),
            columns=dict(sorted(case.columns.items())),
            keys=tuple(case.keys),
            unproven=unproven,
            reasons=tuple(case.reasons),
            proved_at=datetime.now(UTC),
        )
        is_decided = not proof.code and not case.beyond and len(proof.keys) == proof.differing
        is_decided &= not unproven or (case.scope.asks and not self._behind)
        differing = {cell // case.shape.buckets for cell in case.cells} if case.shape is not None else ()
        coverage = case.scope.after(proof, differing, is_decided=is_decided)
        recorded = RecordedProof(str(uuid4()), case.state.id, case.state.row.generation, proof, coverage)
        reach("prove.looked")
        if proof.looks:
            # Where nothing was compared, an earlier proof is still the last one.
            ProofLedger(self._ledger).record(recorded)
        reach("prove.recorded")
        if proof.verdict is ProofVerdict.EQUAL:
            log.info("%s: equal, %d rows", case.table.source, proof.rows_source)
            if case.shape is not None and case.scope.ranges is None:
                # Only what was compared: what came, or was noted, after the first look is not verified by it.
                compared = {column.name for column in case.shape.columns}
                notes = [one for one in self._noted.get(case.state.id, ()) if one.column in compared or one.is_of_many]
                verify_columns(self._ledger, case.state.id, notes)
        return self._reported(recorded, case, is_known=case.scope.is_known(proof))

    def _reported(self, recorded: RecordedProof, case: _Case, *, is_known: bool) -> Mapping[str, Any]:
        proof, settings, now = recorded.proof, self._mirror.prove, datetime.now(UTC)
        verified = Verified.of(recorded.coverage, now, settings.cover_in_days, settings.alert_after_days)
        said = None if verified is None else {**plain(verified), "text": verified_words(verified, now)}
        keys = [{**key._asdict(), "kind": str(key.kind)} for key in proof.keys]
        scope, ranges = case.scope, 1 if case.shape is None else case.shape.ranges
        part = "all rows" if scope.ranges is None else f"{len(scope.ranges)} of {ranges} ranges"
        part += "" if scope.keys is None else f" and {amount(scope.keys.values.num_rows, 'key')}"
        more = {"part": part, "verified": said, "is_known": is_known}
        return {"proof": recorded.id, **proof.document(), **more, "keys": keys}

    def _reasons_of_difference(self, case: _Case) -> list[str]:
        """Whether the service or what is before it changed the rows that differ, as far as our files tell."""
        source, shape, state = case.source, case.shape, case.state
        if source is None or shape is None or not case.keys or state.text is not None:
            return []
        if not are_asked_by_key(source.columns, state.keys, state.columns.salted):
            return []
        named = [one.key for one in case.keys]
        keys = OfKeys.of(pa.array(named, pa.string()), shape)
        files = self._reader.published(state.id, state.row.generation)
        try:
            ours = published_rows(self._spark, open_store(zone_address(self._mirror)), state, files, keys)
            return whose_fault(ours, source, keys, named)
        except MirroringError as error:
            return [f"the published files were not compared: {error.code}"]


def _refuse_unready(state: TableState) -> None:
    """Refuse a table that is not complete yet, or being rebuilt. Raises ``LOAD_PENDING``, ``RESET_OPEN``."""
    if state.start.load_state == "pending":
        raise TerminalError(
            "LOAD_PENDING", "its initial load is not complete", next_step="run the initial load to its end"
        )
    if state.reset is not None:
        raise TerminalError(
            "RESET_OPEN", f"it is in a reset: {state.reset}", next_step="wait until the reset has ended"
        )


def _columns_of_both(one: Iterable[LandingColumn], other: Iterable[LandingColumn]) -> tuple[LandingColumn, ...]:
    """The columns of both sides, each in the type that holds the values of both. Raises ``SCHEMA_CHANGED``."""
    ours, theirs = ({column.name: column.type for column in side} for side in (one, other))
    columns = []
    for name in [*ours, *(name for name in theirs if name not in ours)]:
        both = [types[name] for types in (ours, theirs) if name in types]
        kind = common_type(both[0], both[-1])
        if kind is None:
            raise TerminalError(
                "SCHEMA_CHANGED",
                f"column {name!r} is {both[0]} at the source and {both[-1]} at the target",
                next_step="a changed type needs a reload",
            )
        columns.append(LandingColumn(name, kind))
    return tuple(columns)


def _shape(case: _Case, target: Target) -> Shape:
    """The columns of both sides, each in the type that holds the values of both."""
    assert case.source is not None
    source = {column.name: column.type for column in case.source.columns}
    # What the source has dropped cannot be compared, and does not make two tables different (G-60).
    there = {column.name: column.type for column in target.columns if column.name not in case.gone - source.keys()}
    columns = _columns_of_both(*([LandingColumn(*one) for one in side.items()] for side in (source, there)))
    folded = Counter(column.name.casefold() for column in columns)
    if twins := [column.name for column in columns if folded[column.name.casefold()] > 1]:
        raise TerminalError(
            "COLUMN_NAME_INVALID",
            f"columns {twins} differ in case only",
            next_step="spell them alike at source and target",
        )
    case.reasons += [f"the target has no column {name!r}" for name in source if there and name not in there]
    case.reasons += [f"the source has no column {name!r}" for name in there if name not in source]
    split = case.source.split
    if missing := [name for name in case.table.key if name not in source]:
        raise TerminalError("KEY_INVALID", f"the source has no key columns {missing}", next_step="correct `key`")
    if split is None:
        return Shape(columns, tuple(case.table.key))
    return Shape(columns, tuple(case.table.key), split.column, split.borders)


def _prove(mirror: Mirror, ledger: Engine, spark: SparkSession, arguments: argparse.Namespace) -> Proved:
    proved = prove(mirror, ledger, spark, arguments.tables, ProofOptions(is_routine=arguments.routine))
    for source, one in proved.tables.items():
        for key in one["keys"]:
            log.warning("%s: %s: %s %s", source, key["kind"], key["key"], ", ".join(key["columns"]))
    # The report goes to where other tasks read it: counts, no keys.
    return Proved({s: {name: v for name, v in one.items() if name != "keys"} for s, one in proved.tables.items()})


main = Job("prove", _prove, (TABLES, ROUTINE))


if __name__ == "__main__":
    sys.exit(main())
