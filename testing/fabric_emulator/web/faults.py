"""Faults for tests: what goes wrong, and for which calls."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

Kind = Literal[
    "unavailable_before",
    "unavailable_after",
    "throttled",
    "forbidden",
    "dropped_before",
    "dropped_after",
    "delayed",
    "duplicated",
    "slow",
    "stale_listing",
    "repeated_listing",
    "rejected_headers",
    "token_expired",
    "in_use",
]

VERBS = ("create", "append", "flush", "rename", "list", "read", "properties", "delete", "token", "status", "database")
"""The kinds of calls. The first eight go to the store; ``status`` are the two status calls of the Fabric REST API,
``database`` its other calls."""


@dataclass
class Fault:
    """What goes wrong, and with which calls.

    ======================  ========================================================================================
    ``unavailable_before``  503 ``ServerBusy``, nothing done
    ``unavailable_after``   503 ``ServerBusy``, but the request was carried out (O-08)
    ``throttled``           429 with ``Retry-After: <seconds>``, nothing done (R-04)
    ``forbidden``           403: this login has not the right, nothing done (R-08)
    ``dropped_before``      the connection ends without an answer, nothing done
    ``dropped_after``       the connection ends without an answer, but the request was carried out (O-08)
    ``delayed``             the connection ends without an answer, the request is carried out at ``Faults.release``
    ``duplicated``          the request is carried out twice, the first answer is given; together with ``delayed``
                            the second time is at ``Faults.release``
    ``slow``                *seconds* pass before the request is carried out
    ``stale_listing``       the listing is the one given last for the same folder (empty when there was none)
    ``repeated_listing``    every entry of the listing comes twice
    ``rejected_headers``    *headers* are ignored and named in ``x-ms-rejected-headers`` (O-03)
    ``token_expired``       401, as when the token had just expired
    ``in_use``              409 ``PathInUse`` (assumed), nothing done: the service is reading there (F-73)
    ======================  ========================================================================================

    *verb* is one of ``VERBS`` or ``*``; *path* a shell pattern for the decoded path of the request (in a rename: the
    target); the fault strikes *times* times (None: always), each time with *probability*, after letting *skip*
    matching calls pass.
    """

    kind: Kind
    verb: str = "*"
    path: str = "*"
    times: int | None = 1
    probability: float = 1.0
    skip: int = 0
    seconds: float = 0.0
    headers: tuple[str, ...] = ("if-none-match",)

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind) or self.verb not in ("*", *VERBS):
            raise ValueError(f"there is no fault {self.kind!r} of {self.verb!r}")


class Faults:
    """The faults of one server, and the count of its calls."""

    def __init__(self, seed: int = 0) -> None:
        self._lock = threading.Lock()
        self._random = random.Random(seed)
        self._faults: list[Fault] = []
        self._calls: Counter[str] = Counter()
        self._struck: Counter[str] = Counter()
        self._delayed: list[Callable[[], int]] = []
        self.latency = 0.0
        """The minimum duration of every call in seconds."""

    def add(self, fault: Fault) -> None:
        """Activate a fault."""
        with self._lock:
            self._faults.append(replace(fault))

    def clear(self) -> None:
        """Remove all faults; delayed requests stay delayed."""
        with self._lock:
            self._faults.clear()
            self.latency = 0.0

    def waiting(self) -> list[dict[str, Any]]:
        """The faults that may still occur."""
        with self._lock:
            return [asdict(fault) for fault in self._faults]

    def struck(self) -> dict[str, int]:
        """How often a fault of each kind has occurred."""
        with self._lock:
            return dict(self._struck)

    def calls(self) -> dict[str, int]:
        """The number of requests of each verb since the start or :meth:`reset_calls`."""
        with self._lock:
            return dict(self._calls)

    def reset_calls(self) -> None:
        """Count from zero again."""
        with self._lock:
            self._calls.clear()
            self._struck.clear()

    def delay(self, effect: Callable[[], int]) -> None:
        """Postpone the effect of a request, which returns its HTTP status, until :meth:`release`."""
        with self._lock:
            self._delayed.append(effect)

    def release(self) -> list[int]:
        """Carry out the delayed requests, in order, and return their statuses."""
        with self._lock:
            delayed, self._delayed = self._delayed, []
        return [effect() for effect in delayed]

    def strike(self, verb: str, path: str) -> list[Fault]:
        """Count a call and return its faults."""
        with self._lock:
            self._calls[verb] += 1
            found = [replace(fault) for fault in list(self._faults) if self._strikes(fault, verb, path)]
            self._struck.update(fault.kind for fault in found)
            return found

    def _strikes(self, fault: Fault, verb: str, path: str) -> bool:
        if fault.verb not in ("*", verb) or not fnmatchcase(path, fault.path):
            return False
        if fault.skip > 0:
            fault.skip -= 1
            return False
        if fault.probability < 1.0 and self._random.random() >= fault.probability:
            return False
        if fault.times is not None:
            fault.times -= 1
            if fault.times <= 0:
                self._faults.remove(fault)
        return True
