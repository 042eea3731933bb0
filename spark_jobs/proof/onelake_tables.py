"""Copies one version of a mirrored table from OneLake to local disk, where Spark reads it.

The copy uses the calls and the login of the landing zone, so there is no second driver and no second secret. It takes
disk space and time for one download of the table.

Public source: the Delta protocol: a version is the log up to its commit, and its data are the files that the log names.
A writer may remove files that its newest version no longer names, so a copy that meets a missing file begins again.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from open_mirroring.errors import TransientError
from open_mirroring.landing_zone.layout import DEFAULT_SCHEMA, split_table_folder
from open_mirroring.landing_zone.onelake_address import OneLakeZone
from open_mirroring.landing_zone.onelake_store import OneLakeStore
from open_mirroring.landing_zone.store import LandingZoneStore

_LOG = "_delta_log/"
_TRIES = 3
_AT_ONCE = 8


@contextmanager
def copied_table(zone: OneLakeZone, folder: str) -> Iterator[Path | None]:
    """A Delta table of the item's ``Tables``, as a local folder that is gone afterwards; None when there is none.

    Everything that the newest version needs was there at one moment, so the copy opens at that version or a newer one.

    Args:
        zone: the landing zone of the same item; its ``path`` is not used.
        folder: the table's folder in the landing zone.

    Raises:
        TransientError: ``TABLE_CHANGES`` when the table's files went faster than they could be read;
            what :class:`OneLakeStore` raises.
        TerminalError: what :class:`OneLakeStore` raises.
    """
    with tempfile.TemporaryDirectory(prefix="open_mirroring-table-") as place:
        local = Path(place) / "table"
        yield local if any(_copy(store, local) for store in _places(zone, folder)) else None


def _places(zone: OneLakeZone, folder: str) -> Iterator[OneLakeStore]:
    """Where the table may be: without a schema it comes into the default one, or lies at the top (F-03)."""
    schema, table = split_table_folder(folder)
    paths = [f"{DEFAULT_SCHEMA}/{table}", table] if schema is None else [f"{schema}/{table}"]
    for path in paths:
        yield OneLakeStore(replace(zone, path=f"Tables/{path}"))


def _copy(store: LandingZoneStore, local: Path) -> bool:
    """Copy the table below *store*; whether there is one."""
    for _ in range(_TRIES):
        listed = [info.path for info in store.list("")]
        log = [path for path in listed if path.startswith(_LOG)]
        if not log:
            return False
        # The log is listed before the data are read: what it names was there then, or is gone for good.
        if _fetched(store, log, local) and _fetched(store, [path for path in listed if path not in set(log)], local):
            return True
        shutil.rmtree(local, ignore_errors=True)
    raise TransientError(
        "TABLE_CHANGES",
        f"files of the table vanished during each of {_TRIES} copies",
        way_out="try again when the service has less to apply",
    )


def _fetched(store: LandingZoneStore, paths: Iterable[str], local: Path) -> bool:
    """Copy these objects; False when one of them is gone."""

    def fetch(path: str) -> bool:
        target = local / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with store.fetch(path) as copy:
            if copy is None:
                return False
            shutil.copyfile(copy, target)
            return True

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return all(pool.map(fetch, paths))
