"""Lets a run wait for another run that took over its work; else two runs could keep discarding each other's work."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress

from sqlalchemy.exc import OperationalError

CHANGED_MEANWHILE = "CHANGED_MEANWHILE"
"""Another run, of this or another deployment with the same ledger, was faster, and its sealed result counts."""
FIRST_PAUSE, POLL, PATIENCE = 0.5, 0.5, 20.0
"""Seconds: before the first check, between checks, and how long a run waits the first time it is overtaken."""


class GivingWay:
    """Waits for the other run, each time at most twice as long as before, so that one of two runs finishes."""

    def __init__(self) -> None:
        self._patience = PATIENCE

    def wait(self, is_busy: Callable[[], bool]) -> None:
        """Return once *is_busy* returns False, or after a limited time, because the other run may have been killed."""
        time.sleep(FIRST_PAUSE * random.uniform(0.5, 1.5))
        until = time.monotonic() + self._patience
        self._patience *= 2
        while time.monotonic() < until:
            with suppress(OperationalError):  # the ledger does not answer; the next request reports it
                if not is_busy():
                    return
            time.sleep(POLL)
