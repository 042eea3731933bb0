"""The command ``prove``: compares the source's tables with the mirrored tables."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pyspark.sql import SparkSession
from sqlalchemy import Engine

from open_mirroring.config import Mirror, load_mirror
from open_mirroring.config.tables import ProofExport
from open_mirroring.errors import MirroringError
from open_mirroring.ledger.auditing import Reason
from open_mirroring.operate.exit_codes import Exit, UsageError
from open_mirroring.protocols.proving import ProofVerdict
from spark_jobs.cli.reporting import json_text, proved_text
from spark_jobs.cli.working import ledger_and_tables
from spark_jobs.runtime.session import build_session

log = logging.getLogger(__name__)


def prove(arguments: argparse.Namespace) -> Exit:
    """Compare with the source; 7 when a table is not equal, 5 when some could not be proved."""
    from spark_jobs.prove import ProofOptions
    from spark_jobs.prove import prove as run

    mirror = load_mirror(arguments.file)
    ledger, only = ledger_and_tables(mirror, arguments.tables)
    asked = ProofOptions(_exports(mirror, arguments), arguments.settle, arguments.looks)
    if arguments.repair_plan is not None and arguments.repair_plan.exists():
        raise UsageError("FILE_EXISTS", f"{arguments.repair_plan} is there already", way_out="name a new file")
    if arguments.correct and not (arguments.approved_by and arguments.why):
        raise UsageError("APPROVAL_MISSING", "nobody approves it", way_out="add --approved-by NAME and --why TEXT")
    log.info("starting Spark")
    spark = build_session(f"open-mirroring {mirror.name}")
    proved = run(mirror, ledger, spark, only, asked)
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
    """Correct every table that has a differing key; the result by table."""
    from spark_jobs.corrections import correct
    from spark_jobs.publish_changes import publish

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
    """The export of each table: ``FOLDER/<source>``, a folder or a file with the format's ending."""
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
            raise UsageError("SINCE_INVALID", error.errors()[0]["msg"], way_out="mend --since") from None
    return found


def _write_plan(path: Path, mirror: Mirror, tables: Mapping[str, Mapping[str, Any]]) -> None:
    plan = {
        source: {"proof": one["proof"], "keys": one["keys"], "all_named": one["all_named"]}
        for source, one in tables.items()
        if one["keys"]
    }
    path.write_text(json_text({"mirror": mirror.name, "tables": plan}) + "\n", encoding="utf-8")
