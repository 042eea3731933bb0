"""May the next number be intended? The ledger, the listing and the target's status of one table, compared.

A pure and total function: every combination has one verdict, STOP before HOLD before PASS. It repairs nothing; what
the target's documentation permits to repair, it names (F-40). It is only as true as its facts, so whoever gathers
them (I22, I21):

* reads the ledger's row before and after the listing and begins again when its version moved;
* takes a STOP for real only when a second listing agrees, since a listing is no snapshot;
* gives the present time only to decide what the service may have purged and how old a backlog is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple

from open_mirroring.landing_zone.layout import METADATA_FILE
from open_mirroring.landing_zone.listing import ListedItem, Stage
from open_mirroring.publishing import INCARNATION_CHANGED, METADATA_CHANGED

FOREIGN_ITEM, LEDGER_BEHIND, REAPPEARED, CONTENT_CHANGED = (
    "FOREIGN_ITEM",
    "LEDGER_BEHIND",
    "REAPPEARED",
    "CONTENT_CHANGED",
)
GAP, LAST_FILE_MISSING, MISSING, TABLE_FAILED = "GAP", "LAST_FILE_MISSING", "MISSING", "TABLE_FAILED"
PAUSED, THROTTLED, STATUS_UNKNOWN = "PAUSED", "THROTTLED", "STATUS_UNKNOWN"
BACKLOG, LOAD_PENDING = "BACKLOG", "LOAD_PENDING"
