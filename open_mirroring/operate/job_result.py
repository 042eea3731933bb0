"""What a job leaves for whoever started it: one JSON document in a file, never lines to be found among others.

The starter names the file in the job's environment. What is printed beside it is for people: another library's chatter,
or a line cut by a log, changes nothing of what the starter learns.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

RESULT_FILE = "OPEN_MIRRORING_RESULT"
"""The environment variable that names the file; without it nothing is left."""


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
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return JobResult()
    error = document.get("error")
    return JobResult(document.get("report"), None if error is None else (error[0], error[1]))


def _leave(document: Mapping[str, Any]) -> None:
    file = os.environ.get(RESULT_FILE)
    if file:
        Path(file).write_text(json.dumps(document, default=str), encoding="utf-8")
