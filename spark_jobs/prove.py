"""Spark job: compares the source's tables with the mirrored ones, row by row.

``spark-submit spark_jobs/prove.py MIRROR.yaml [--tables a,b]``, or :func:`prove` in a running session.
:mod:`open_mirroring.protocols.proving` decides when a key certainly differs. Source and target are only read; the
findings are kept in the ledger.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import uuid4

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from sqlalchemy import Engine

from open_mirroring.changes.log_position import LogPosition, not_below
from open_mirroring.config import Mirror, Table
from open_mirroring.config.tables import ProofExport
from open_mirroring.errors import MirroringError, TerminalError, TransientError
from open_mirroring.fault_points import reach
from open_mirroring.landing_zone.schema import LandingColumn
from open_mirroring.ledger.columns import verify_columns
from open_mirroring.ledger.proofs import ProofLedger, RecordedProof
from open_mirroring.ledger.reading import LedgerReader, TableState
from open_mirroring.operate.exit_codes import Exit, UsageError
from open_mirroring.protocols.proving import (
    SHOWN_KEYS,
    DifferingKey,
    Kind,
    Position,
    Progress,
    Proof,
    ProofVerdict,
    common_type,
    differing_cells,
    verdict_of,
    why_behind,
)
from open_mirroring.protocols.verdicts import Finding
from open_mirroring.reconciliation.inspection import declare_tables, inspect_mirror
from spark_jobs.changelog.change_log import paths_of
from spark_jobs.changelog.schema import CHANGE
from spark_jobs.proof.keys import differing_keys, read_sums
from spark_jobs.proof.mirrored_files import Target, TargetTables
from spark_jobs.proof.rows import KEYS_SCHEMA, HashKeys, Shape
from spark_jobs.proof.sides import Source, check_errors, kept, source_side
from spark_jobs.proof.source_ends import ends_of, settle_seconds
from spark_jobs.runtime.job import job_main

log = logging.getLogger(__name__)

_STAYS = ["k1", "k2"]
_MOST_AT_ONCE = 8
_NOWHERE = Position(0, None)


class Proved(NamedTuple):
    """What a run proved, by source table."""

    tables: Mapping[str, Mapping[str, Any]]

    @property
    def exit(self) -> Exit:
        """A difference for certain, then what is not proved; 0 only when all are equal."""
        verdicts = {table["verdict"] for table in self.tables.values()}
        if ProofVerdict.DIFFERENT in verdicts:
            return Exit.NOT_EQUAL
        return Exit.ON_HOLD if ProofVerdict.UNPROVEN in verdicts else Exit.DONE


class Asked(NamedTuple):
    """Options of a run: *exports* by source table override the mirror file; None: as the mirror file says."""

    exports: Mapping[str, ProofExport] | None = None
    settle_seconds: float | None = None
    looks: int | None = None


@dataclass
class _Case:
    """One table while it is being proved."""

    table: Table
    state: TableState
    proof: Proof
    gone: frozenset[str] = frozenset()
    source: Source | None = None
    shape: Shape | None = None
    cells: frozenset[int] = frozenset()
    base: Position = _NOWHERE
    base_state: TableState | None = None
    left: DataFrame | None = None
    left_count: int = 0
    behind: str = ""
    counts: Counter[Kind] = field(default_factory=Counter)
    columns: Counter[str] = field(default_factory=Counter)
    keys: list[DifferingKey] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


def prove(
    mirror: Mirror,
    ledger: Engine,
    spark: SparkSession,
    only: Sequence[str] | None = None,
    asked: Asked | None = None,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> Proved:
    """Compare every table (of *only*, if given) with its source, and keep what was found in the ledger.

    A table that cannot be compared is unproven, with a code that says why; the others go on.

    Raises:
        TerminalError: ``TABLE_UNKNOWN``, ``TABLES_UNNAMED``, ``TABLES_MISSING``; ledger and mirror file do not agree.
        TransientError: the ledger or the landing zone does not answer.
    """
    ids = declare_tables(mirror, ledger)
    if unknown := sorted(set(only or ()) - ids.keys()):
        raise UsageError("TABLE_UNKNOWN", f"the mirror has no tables {unknown}", way_out=f"choose from {sorted(ids)}")
    with TargetTables(mirror) as targets:
        return _Proving(mirror, ledger, spark, asked or Asked(), targets, sleep).run(only)


class _Proving:
    def __init__(
        self,
        mirror: Mirror,
        ledger: Engine,
        spark: SparkSession,
        asked: Asked,
        targets: TargetTables,
        sleep: Callable[[float], None],
    ) -> None:
        self._mirror, self._ledger, self._spark, self._asked, self._targets = mirror, ledger, spark, asked, targets
        self._sleep = sleep
        self._reader = LedgerReader(ledger, mirror.name)
        self._log_root = mirror.resolve(mirror.change_log)
        self._findings: Mapping[str, Finding] = {}
        self._looks = asked.looks or mirror.prove.looks
        self._settle = settle_seconds(mirror) if asked.settle_seconds is None else asked.settle_seconds

    def run(self, only: Sequence[str] | None) -> Proved:
        cases = self._first_looks(only)
        looking = [case for case in cases if case.left is not None]
        ends: Mapping[str, int] | str | None = None
        for _ in range(1, self._looks):
            if not looking:
                break
            log.info("%d tables have keys that differ: another look in %s s", len(looking), self._settle)
            self._sleep(self._settle)
            # What was committed before the last look has reached the place where it is read by now.
            ends = self._ends() if ends is None or isinstance(ends, str) else ends
            behind = ends if isinstance(ends, str) else why_behind(ends, self._progress())
            for case in looking:
                case.behind = behind
            if behind:
                log.info("not yet: %s", behind)
                continue
            self._look_at(looking, self._second_look)
            looking, ends = [case for case in looking if case.left is not None], None
        return Proved({case.table.source: self._concluded(case) for case in cases})

    def _first_looks(self, only: Sequence[str] | None) -> list[_Case]:
        states = self._reader.tables()
        gone = self._reader.gone_columns(states.values())
        cases = []
        for table in self._mirror.tables:
            if only is None or table.source in only:
                state = states[table.source]
                dropped = frozenset(column.column for column in gone.get(state.id, ()))
                cases.append(_Case(table, state, Proof(ProofVerdict.UNPROVEN, _NOWHERE, ""), dropped))
        self._look_at(cases, self._first_look)
        return cases

    def _look_at(self, cases: Sequence[_Case], look: Callable[[_Case], None]) -> None:
        """Look at several tables at a time, because planning of small tables leaves the cores idle."""
        self._findings = inspect_mirror(self._mirror, self._ledger, record=False)
        at_once = min(_MOST_AT_ONCE, max(2, self._spark.sparkContext.defaultParallelism))
        with ThreadPoolExecutor(at_once) as pool:
            list(pool.map(lambda case: self._looked(case, look), cases))

    def _first_look(self, case: _Case) -> None:
        if case.state.load_state == "pending":
            raise TerminalError("LOAD_PENDING", "its initial load is not complete", way_out="run it to its end")
        if case.state.reset is not None:
            raise TerminalError("RESET_OPEN", f"it is in a reset: {case.state.reset}", way_out="let it come to its end")
        export = (self._asked.exports or {}).get(case.table.source)
        case.source = source_side(self._spark, self._mirror, case.table, export)
        target = self._target(case)
        case.shape = _shape(case, target)
        log.info("%s: comparing with %s", case.table.source, case.source.text)
        sums = [read_sums(side, case.shape) for side in (case.source, target)]
        cells = differing_cells(*sums)
        case.cells = frozenset(cells)
        case.proof = replace(
            case.proof,
            at=case.base,
            source=case.source.text,
            target_version=target.version,
            rows_source=sum(one.rows for one in sums[0].values()),
            rows_target=sum(one.rows for one in sums[1].values()),
            cells=case.shape.ranges * case.shape.buckets,
            cells_differing=len(cells),
            looks=1,
        )
        if target.version is None:
            case.reasons.append("there is no such table at the target")
            if not case.state.row.confirmed:
                raise TerminalError("TARGET_ABSENT", "nothing of it was published yet", way_out="run a tick first")
        if cells:
            case.left = self._differing(case, target)
            case.left_count = case.left.count()
            self._forget_if_none(case)

    def _target(self, case: _Case) -> Target:
        """Pin the newest version of the target, after noting which batches it shows at least."""
        case.state = self._reader.tables(case.table.source)[case.table.source]
        row = case.state.row
        files = self._reader.published(case.state.id, row.generation)
        target = Target(self._spark, self._targets.path(case.state.folder))
        finding = self._findings.get(case.table.source)
        # The last file alone in its folder tells nothing (F-35): whether it is applied, the table's newest change does.
        applied = row.confirmed if finding is None or not finding.backlog.files else finding.applied
        open_files = [
            file
            for file in files
            if file.number > applied or target.changed is None or file.confirmed_at > target.changed
        ]
        batch = min([row.published_batch, *(file.batch_from for file in open_files)])
        case.base, case.base_state = Position(batch, self._highest(case.state, batch)), case.state
        return target

    def _highest(self, state: TableState, batch: int) -> str | None:
        epochs = self._reader.epochs([state.id]).get(state.id, {})
        seen = self._reader.highest(state.source, batch)
        known = [LogPosition.parse(epochs[e], text) for e, text in seen.items() if epochs.get(e, -1) >= 0]
        return f"{max(known).epoch}:{max(known).text}" if known else None

    def _differing(self, case: _Case, target: Target) -> DataFrame:
        assert case.source is not None and case.shape is not None
        shape = case.shape
        work = HashKeys(shape, case.cells)
        ranges = {cell // shape.buckets for cell in case.cells}
        frames = [kept(side, side.frame(shape, work, KEYS_SCHEMA, ranges)) for side in (case.source, target)]
        for frame in frames:
            check_errors(frame)
        found = differing_keys(*frames, keyed=bool(shape.keys)).persist()
        found.count()
        for frame in frames:
            frame.unpersist()
        return found

    def _looked(self, case: _Case, look: Callable[[_Case], None]) -> None:
        """Look at one table; an error becomes its result, and the other tables go on."""
        try:
            look(case)
            return
        except MirroringError as error:
            failure = error
        except (PySparkException, Py4JError) as error:
            what = str(error).splitlines()[0][:300]
            failure = TransientError("PROOF_FAILED", f"Spark failed: {what}", way_out="prove it again")
        self._fail(case, failure)

    def _second_look(self, case: _Case) -> None:
        before, base_state = case.base, case.base_state
        assert case.left is not None and case.shape is not None and base_state is not None
        target = self._target(case)
        if case.state.row.generation != base_state.row.generation:
            raise TerminalError("TABLE_RESET", "the table was reset while it was compared", way_out="prove it again")
        known = case.gone | {column.name for column in case.shape.columns}
        if new := {column.name for column in target.columns} - known:
            raise TransientError(
                "COLUMNS_CHANGED", f"the target has got the columns {sorted(new)} meanwhile", way_out="prove it again"
            )
        still = case.left.select(*_STAYS).join(self._differing(case, target), _STAYS, "inner").persist()
        moved = self._moved(case, before, base_state)
        case.proof = replace(case.proof, looks=case.proof.looks + 1)
        if moved is None:
            certain, case.left = still.limit(0), still
        else:
            certain = still.join(moved, "key", "left_anti")
            case.left = still.join(moved, "key", "left_semi").persist()
        self._take(case, certain)
        case.left_count = case.left.count()
        self._forget_if_none(case)

    def _moved(self, case: _Case, since: Position, at: TableState) -> DataFrame | None:
        """The keys with a logged change that the target did not have for certain; None: any key may be one."""
        source, committed = case.table.source, self._reader.mirror().committed
        columns = F.col("key")
        epochs = self._reader.epochs([at.id]).get(at.id, {})
        conditions = [F.col("batch") > since.batch]
        contents = list(self._reader.contents({source: since.batch}, committed).get(source, ()))
        reaching: dict[str, str] = {}
        if at.row.published_position is not None:
            reaching |= not_below(at.row.published_position, epochs)
        if case.source is not None and case.source.since is not None:
            if self._dropped_reaches(source, case.source.since):
                return None  # the log no longer tells which keys were changed since the export
            reaching |= {epoch: case.source.since for epoch, ordinal in epochs.items() if ordinal >= 0}
        if reaching:
            contents += self._reader.history(source, committed, reaching)
            conditions += [(F.col("epoch") == epoch) & (F.col("pos") >= text) for epoch, text in reaching.items()]
        files = sorted({file for part in contents for file in part.files})
        if not files:
            return self._spark.createDataFrame([], "key string")
        if not case.table.key:
            return None
        rows = self._spark.read.parquet(*paths_of(self._log_root, files))
        some = conditions[0]
        for other in conditions[1:]:
            some = some | other
        return rows.where((F.col("kind") == CHANGE) & (F.col("tbl") == source) & some).select(columns).distinct()

    def _dropped_reaches(self, source: str, since: str) -> bool:
        horizon = self._reader.mirror_horizon()
        dropped = 0 if horizon is None else horizon.dropped
        return dropped > 0 and any(text >= since for text in self._reader.highest(source, dropped).values())

    def _take(self, case: _Case, certain: DataFrame) -> None:
        """Count the keys that differ for certain, and name the first of them."""
        assert case.shape is not None
        names = [column.name for column in case.shape.columns]
        lines = certain.groupBy("kind").agg(F.sum("times").alias("times")).collect()
        case.counts.update({Kind(line["kind"]): int(line["times"]) for line in lines})
        for line in certain.select(F.explode("columns").alias("at")).groupBy("at").count().collect():
            case.columns[names[line["at"]]] += line["count"]
        shown = SHOWN_KEYS - len(case.keys)
        for line in certain.orderBy("key").limit(shown).collect() if shown > 0 else ():
            columns = tuple(names[at] for at in line["columns"])
            case.keys.append(DifferingKey(line["key"], Kind(line["kind"]), columns))

    def _forget_if_none(self, case: _Case) -> None:
        if not case.left_count:
            case.left = None

    def _progress(self) -> Progress:
        state = self._reader.mirror()
        return Progress(self._reader.bound(), state.open_batch, self._reader.open_fragment_count())

    def _ends(self) -> Mapping[str, int] | str:
        """How far the source's changes reach, after everything of a look was read; a text where nobody can say."""
        try:
            return ends_of(self._mirror, self._ledger, self._spark)
        except MirroringError as error:
            return f"nothing tells how far the source's changes go: {error.code}"

    def _fail(self, case: _Case, error: MirroringError) -> None:
        log.warning("%s cannot be proved: %s", case.table.source, error)
        case.proof = replace(case.proof, at=case.base, code=error.code)
        case.reasons.append(f"{error.code}: {error.what}{f' ({error.where})' if error.where else ''}")
        case.left = None

    def _concluded(self, case: _Case) -> Mapping[str, Any]:
        """The proof of a table, kept in the ledger."""
        unproven = case.left_count if case.left is not None else 0
        if unproven:
            case.reasons.append(
                case.behind or f"{unproven} keys differ, and changes of them are on their way or came meanwhile"
            )
        proof = replace(
            case.proof,
            verdict=verdict_of(sum(case.counts.values()), unproven, case.proof.code),
            counts=dict(case.counts),
            columns=dict(sorted(case.columns.items())),
            keys=tuple(case.keys),
            unproven=unproven,
            reasons=tuple(case.reasons),
            proved_at=datetime.now(UTC),
        )
        recorded = RecordedProof(str(uuid4()), case.state.id, case.state.row.generation, proof)
        reach("prove.looked")
        ProofLedger(self._ledger).record(recorded)
        reach("prove.recorded")
        if proof.verdict is ProofVerdict.EQUAL:
            log.info("%s: equal, %d rows", case.table.source, proof.rows_source)
            if case.shape is not None:
                # Only what was compared: a column that came after the look is not verified by it.
                verify_columns(self._ledger, case.state.id, [column.name for column in case.shape.columns])
        return {"proof": recorded.id, **proof.document()}


def _shape(case: _Case, target: Target) -> Shape:
    """The columns of both sides, each in the type that holds the values of both.

    Raises:
        TerminalError: ``TYPES_DIFFER``, ``COLUMN_CASE``.
    """
    assert case.source is not None
    source = {column.name: column.type for column in case.source.columns}
    # What the source has dropped cannot be compared, and does not make two tables different (G-50).
    there = {column.name: column.type for column in target.columns if column.name not in case.gone - source.keys()}
    columns = []
    for name in [*source, *(name for name in there if name not in source)]:
        both = [types[name] for types in (source, there) if name in types]
        kind = common_type(both[0], both[-1])
        if kind is None:
            raise TerminalError(
                "TYPES_DIFFER",
                f"column {name!r} is {both[0]} at the source and {both[-1]} at the target",
                way_out="a changed type needs a reload",
            )
        columns.append(LandingColumn(name, kind))
    folded = Counter(column.name.casefold() for column in columns)
    if twins := [column.name for column in columns if folded[column.name.casefold()] > 1]:
        raise TerminalError(
            "COLUMN_CASE", f"columns {twins} differ in case only", way_out="spell them alike at source and target"
        )
    case.reasons += [f"the target has no column {name!r}" for name in source if there and name not in there]
    case.reasons += [f"the source has no column {name!r}" for name in there if name not in source]
    split = case.source.split
    if missing := [name for name in case.table.key if name not in source]:
        raise TerminalError("KEY_MISSING", f"the source has no key columns {missing}", way_out="mend `key`")
    if split is None:
        return Shape(tuple(columns), tuple(case.table.key))
    return Shape(tuple(columns), tuple(case.table.key), split.column, split.borders)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tables", help="only these source tables, separated by commas")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry for ``spark-submit``; exit code 7 says that some table is not equal, 5 that some could not be proved."""

    def work(mirror: Mirror, ledger: Engine, spark: SparkSession, arguments: argparse.Namespace) -> Proved:
        proved = prove(mirror, ledger, spark, arguments.tables.split(",") if arguments.tables else None)
        for source, one in proved.tables.items():
            for key in one["keys"]:
                log.warning("%s: %s: %s %s", source, key["kind"], key["key"], ", ".join(key["columns"]))
        # The report goes to where other tasks read it: counts, no keys.
        return Proved({s: {name: v for name, v in one.items() if name != "keys"} for s, one in proved.tables.items()})

    return job_main("prove", argv, work, _add_arguments)


if __name__ == "__main__":
    sys.exit(main())
