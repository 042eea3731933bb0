"""Copies one version of a mirrored table from OneLake or an object storage to local disk, where Spark reads it.

The copy of OneLake uses the calls and the login of the landing zone, so there is no second driver and no second secret.
It takes disk space and time for one download of the table.

Public source: the Delta protocol: a version is the log up to its commit, and its data are the files that the log names.
A writer may remove files that its newest version no longer names, so a copy that meets a missing file begins again.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from open_mirroring.errors import TransientError
from open_mirroring.landing_zone.layout import DEFAULT_SCHEMA, split_table_folder
from open_mirroring.landing_zone.onelake_address import OneLakeZone
from open_mirroring.landing_zone.onelake_store import OneLakeStore
from open_mirroring.landing_zone.store import ObjectInfo
from open_mirroring.storage.object_path import ObjectPath

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


@contextmanager
def copied_stored_table(root: ObjectPath, folder: str) -> Iterator[Path | None]:
    """As :func:`copied_table`, of the tables below a place in object storage.

    Raises:
        TransientError: ``TABLE_CHANGES``; what the storage says.
        TerminalError: what the storage says.
    """
    with tempfile.TemporaryDirectory(prefix="open_mirroring-table-") as place:
        local = Path(place) / "table"
        yield local if any(_copy(_StoredFiles(root / path), local) for path in _paths(folder)) else None


class TableFiles(Protocol):
    """The files of a table, as far as a copy needs them."""

    def list(self, folder: str) -> Iterable[ObjectInfo]:
        """All of them."""
        ...

    def fetch(self, path: str) -> AbstractContextManager[Path | None]:
        """One of them as a local file; None when it is gone."""
        ...


class _StoredFiles:
    """Those below a place in object storage."""

    def __init__(self, place: ObjectPath) -> None:
        self._place = place

    def list(self, folder: str) -> Iterable[ObjectInfo]:
        place = self._place
        return [ObjectInfo(place.relative(one.name), one.size, one.etag) for one in place.store.objects(place.key)]

    @contextmanager
    def fetch(self, path: str) -> Iterator[Path | None]:
        with tempfile.NamedTemporaryFile(prefix="open_mirroring-") as copy:
            try:
                with (self._place / path).open() as content:
                    shutil.copyfileobj(content, copy, 2**23)
            except FileNotFoundError:
                yield None
                return
            copy.flush()
            yield Path(copy.name)


def _places(zone: OneLakeZone, folder: str) -> Iterator[OneLakeStore]:
    for path in _paths(folder):
        yield OneLakeStore(replace(zone, path=f"Tables/{path}"))


def _paths(folder: str) -> list[str]:
    """Where the table may be: without a schema it comes into the default one, or lies at the top (F-03)."""
    schema, table = split_table_folder(folder)
    return [f"{DEFAULT_SCHEMA}/{table}", table] if schema is None else [f"{schema}/{table}"]


def _copy(store: TableFiles, local: Path) -> bool:
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


def _fetched(store: TableFiles, paths: Iterable[str], local: Path) -> bool:
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
