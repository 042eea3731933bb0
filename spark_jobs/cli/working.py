"""The commands that run jobs in this process: ticks, initial loads, deep checks, replays of dead letters and proofs."""

from __future__ import annotations

import argparse
import importlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from sqlalchemy import Engine

from open_mirroring.config import Mirror, load_mirror
from open_mirroring.config.tables import ProofExport
from open_mirroring.errors import MirroringError
from open_mirroring.ledger.auditing import Reason
from open_mirroring.operate.exit_codes import Exit, UsageError
from open_mirroring.operate.job_story import story
from open_mirroring.protocols.backfilling import Backfill, parse_interval
from open_mirroring.protocols.proving import ProofVerdict
from open_mirroring.reconciliation.joined_tables import ledger_of
from spark_jobs.cli.reporting import json_text, proved_text, request_of, tick_text
from spark_jobs.runtime.job import Job, exit_of_result
from spark_jobs.runtime.tasks import session_on_demand

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)


def tick(arguments: argparse.Namespace) -> Exit:
    """Run one tick: extract, gate, publish and reconcile."""
    return _ticked(None, arguments)


def backfill(arguments: argparse.Namespace) -> Exit:
    """Run a tick that first reads an interval of source time."""
    return _ticked(Backfill(parse_interval(arguments.start, arguments.end), arguments.reread), arguments)


def _ticked(asked: Backfill | None, arguments: argparse.Namespace) -> Exit:
    from spark_jobs.cli.tick import tick as run

    mirror, ledger = _opened(arguments)
    ticked = run(mirror, ledger, session_on_demand(mirror, "tick"), arguments.tables, asked)
    print(json_text(ticked.document()) if arguments.json else tick_text(ticked, arguments.file))
    return Exit(ticked.exit)


def initial_load(arguments: argparse.Namespace) -> Exit:
    """Load the first rows of every table that has an initial load.

    The exit code is "on hold" if tables wait and nothing was loaded.
    """
    loaded, done = _done(arguments)
    return Exit.ON_HOLD if done is Exit.DONE and loaded.held and not loaded.files else done


def done_by_job(arguments: argparse.Namespace) -> Exit:
    """Run the job of the command that *arguments* name, in this process."""
    return _done(arguments)[1]


def _done(arguments: argparse.Namespace) -> tuple[Any, Exit]:
    """Run the operation's job, print its result, and return it with the exit code."""
    job: Job = importlib.import_module(f"spark_jobs.{arguments.operation.job}").main
    if hasattr(arguments, "request"):
        arguments.request = request_of(arguments)
    result = job.done(*_opened(arguments), arguments)
    is_json = getattr(arguments, "json", False)
    print(json_text(result._asdict()) if is_json else "\n".join(story(job.name, result._asdict())))
    return result, exit_of_result(result)


def _opened(arguments: argparse.Namespace) -> tuple[Mirror, Engine]:
    """Load the mirror and open its ledger; ``arguments.tables`` becomes a list of known tables.

    Without patterns, a wrong table name is refused before a ledger is created.
    """
    mirror, named = load_mirror(arguments.file), getattr(arguments, "tables", None)
    if not mirror.has_patterns:
        chosen_tables(mirror, named)
    ledger = ledger_of(mirror)
    arguments.tables = chosen_tables(mirror, named)
    return mirror, ledger


def chosen_tables(mirror: Mirror, text: str | None) -> list[str] | None:
    """The tables named by ``--tables``, None without this option; raises ``ARGUMENT_INVALID`` for an unknown name."""
    if text is None:
        return None
    known = [table.source for table in mirror.tables]
    wanted = [text] if text in known else [name.strip() for name in text.split(",")]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise UsageError(f"the mirror has no table {unknown[0]!r}", f"choose from {known}")
    return wanted


def prove(arguments: argparse.Namespace) -> Exit:
    """Compare tables with the source; exit code 7 if a table differs, else 5 if a table could not be proved."""
    from spark_jobs.prove import ProofOptions
    from spark_jobs.prove import prove as run

    mirror, ledger = _opened(arguments)
    if arguments.routine and mirror.prove.cover_in_days is None:
        raise UsageError("`prove.cover_in_days` is not set, so no part is due", "set it, or leave --routine out")
    asked = ProofOptions(_exports(mirror, arguments), arguments.settle, arguments.looks, arguments.routine)
    if arguments.repair_plan is not None and arguments.repair_plan.exists():
        raise UsageError(f"{arguments.repair_plan} is there already", "name a new file")
    if arguments.correct and not (arguments.approved_by and arguments.why):
        raise UsageError("no one approves it", "add --approved-by NAME and --why TEXT")
    spark = session_on_demand(mirror, "prove")
    proved = run(mirror, ledger, spark, arguments.tables, asked)
    if arguments.correct:
        proved = proved._replace(tables=_correct(mirror, ledger, spark, proved.tables, arguments))
    print(json_text(proved._asdict()) if arguments.json else proved_text(proved.tables))
    if arguments.repair_plan is not None:
        _write_plan(arguments.repair_plan, mirror, proved.tables)
    return proved.exit


def _correct(
    mirror: Mirror,
    ledger: Engine,
    spark: SparkSession,
    tables: Mapping[str, Mapping[str, Any]],
    arguments: argparse.Namespace,
) -> Mapping[str, Mapping[str, Any]]:
    """Correct every table with differing keys, and publish; returns the proof results with what was done."""
    from spark_jobs.corrections import correct
    from spark_jobs.publish.changes import publish

    done: dict[str, Mapping[str, Any]] = dict(tables)
    for source, one in tables.items():
        if one["verdict"] != ProofVerdict.DIFFERENT:
            continue
        try:
            corrected = correct(mirror, ledger, spark, one["proof"], Reason(arguments.approved_by, arguments.why))
            said = corrected.waits or f"{corrected.keys} keys are in the change log as the source has them now"
        except MirroringError as error:
            said = str(error)
        log.info("%s: %s", source, said)
        done[source] = {**one, "correction": said, "reasons": [*one["reasons"], f"correction: {said}"]}
    publish(mirror, ledger, spark, [source for source in done if "correction" in done[source]])
    return done


def _exports(mirror: Mirror, arguments: argparse.Namespace) -> Mapping[str, ProofExport] | None:
    """The export of each table: ``FOLDER/<source>``, as a folder, or a file with the format as extension."""
    if arguments.export is None:
        return None
    found = {}
    for table in mirror.tables:
        folder = arguments.export.absolute() / table.source
        file = folder.with_name(f"{table.source}.{arguments.export_format}")
        settings = {"format": arguments.export_format, "path": str(folder if folder.is_dir() else file)}
        given = table.prove if isinstance(table.prove, ProofExport) else None
        try:
            types = {} if given is None else given.types
            found[table.source] = ProofExport.model_validate({**settings, "since": arguments.since, "types": types})
        except ValidationError as error:
            raise UsageError(error.errors()[0]["msg"], "fix --since") from None
    return found


def _write_plan(path: Path, mirror: Mirror, tables: Mapping[str, Mapping[str, Any]]) -> None:
    plan = {
        source: {"proof": one["proof"], "keys": one["keys"], "all_named": one["all_named"]}
        for source, one in tables.items()
        if one["keys"]
    }
    path.write_text(json_text({"mirror": mirror.name, "tables": plan}) + "\n", encoding="utf-8")
