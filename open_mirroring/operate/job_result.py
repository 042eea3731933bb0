"""Hands the result of a job to the process that started the job, as a JSON file that an environment variable names.

The result is not a line of output, because other output could be mixed with this line. A job on a cluster writes its
result and exit code into the ledger instead, under an id that the starting process chose.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Engine

from open_mirroring.ledger import tables as t
from open_mirroring.ledger.tables import upsert

RESULT_FILE = "OPEN_MIRRORING_RESULT"
"""The environment variable with the path of the result file; if it is not set, no result is written."""
_KEPT = timedelta(days=7)
"""How long results are kept in the ledger; the process that started a job reads them within minutes."""


class JobResult(NamedTuple):
    """The result of a job: its *report*, or the code and text of its *error*. Of a killed job both are None."""

    report: dict[str, Any] | None = None
    error: tuple[str, str] | None = None


def leave_report(report: Mapping[str, Any]) -> None:
    """Write the report of a job that ran to its end into the job's result file."""
    _leave({"report": report})


def leave_error(code: str, text: str) -> None:
    """Write the error that ended a job into the job's result file."""
    _leave({"error": [code, text]})


def read_result(file: Path) -> JobResult:
    """Read a job's result file. The result is empty if the job ended before it wrote the file."""
    return _parsed(_text(file))


def record_end(ledger: Engine, run: str, mirror: str, exit_code: int, file: Path) -> None:
    """Write a job's exit code and the content of its result file into the ledger, under the id *run*.

    Entries in the ledger that are older than a week are deleted.
    """
    now = datetime.now(UTC)
    row = {"run": run, "mirror": mirror, "ended_at": now, "exit_code": exit_code, "result": _text(file)}
    with ledger.begin() as db:
        db.execute(t.job_end.delete().where(t.job_end.c.ended_at < now - _KEPT))
        upsert(db, t.job_end, [row], keys=["run"], update=["ended_at", "exit_code", "result"])


def recorded_end(ledger: Engine, run: str) -> tuple[int, JobResult] | None:
    """Read the exit code and the result of the job *run* from the ledger; None if the job did not record its end."""
    query = sa.select(t.job_end.c.exit_code, t.job_end.c.result).where(t.job_end.c.run == run)
    with ledger.connect() as db:
        found = db.execute(query).tuples().one_or_none()
    return None if found is None else (found[0], _parsed(found[1]))


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""


def _parsed(text: str) -> JobResult:
    try:
        document = json.loads(text)
    except ValueError:
        return JobResult()
    error = document.get("error")
    return JobResult(document.get("report"), None if error is None else (error[0], error[1]))


def _leave(document: Mapping[str, Any]) -> None:
    file = os.environ.get(RESULT_FILE)
    if file:
        Path(file).write_text(json.dumps(document, default=str), encoding="utf-8")
