"""Leaves the result of a job for whoever started it: one JSON document in a file that the job's environment names.

It is never a line of output, which other messages could change. Where the starter cannot read the job's disk, the
document goes into the ledger, with the exit code, under a name that the starter chose.
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
"""The environment variable that names the file; without it nothing is left."""
_KEPT = timedelta(days=7)
"""Whoever started a job reads its end within minutes."""


class JobResult(NamedTuple):
    """The end of a job: its *report*, or code and text of the *error* that ended it; neither of one that was killed."""

    report: dict[str, Any] | None = None
    error: tuple[str, str] | None = None


def leave_report(report: Mapping[str, Any]) -> None:
    """Leave the report of a job that came to its end."""
    _leave({"report": report})


def leave_error(code: str, text: str) -> None:
    """Leave the error that ended a job."""
    _leave({"error": [code, text]})


def read_result(file: Path) -> JobResult:
    """What a job has left in a file; nothing of one that ended before its own code could say why."""
    return _parsed(_text(file))


def record_end(ledger: Engine, run: str, mirror: str, exit_code: int, file: Path) -> None:
    """Keep how a job ended, and what it left in a file, under the name that its starter chose; old ends go."""
    now = datetime.now(UTC)
    row = {"run": run, "mirror": mirror, "ended_at": now, "exit_code": exit_code, "result": _text(file)}
    with ledger.begin() as db:
        db.execute(t.job_end.delete().where(t.job_end.c.ended_at < now - _KEPT))
        upsert(db, t.job_end, [row], keys=["run"], update=["ended_at", "exit_code", "result"])


def recorded_end(ledger: Engine, run: str) -> tuple[int, JobResult] | None:
    """Exit code and result of a job; None of one that never came to its end."""
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
