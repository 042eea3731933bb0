"""Decides when Airflow tries a task again: after a transient error, and never after a terminal one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule

from open_mirroring.errors import TerminalError, TransientError

RETRIES = 2
_DELAY = timedelta(minutes=1)


def retry_policy() -> ExceptionRetryPolicy:
    """Terminal errors fail at once, transient ones are tried again; anything else follows the task's ``retries``."""
    return ExceptionRetryPolicy(
        [
            RetryRule(TerminalError, RetryAction.FAIL, reason="Trying again gives the same answer"),
            RetryRule(TransientError, RetryAction.RETRY, retry_delay=_DELAY, reason="May pass by itself"),
        ]
    )


def retrying() -> dict[str, Any]:
    """The arguments of a task that retries like this."""
    return {"retries": RETRIES, "retry_delay": _DELAY, "retry_policy": retry_policy()}
