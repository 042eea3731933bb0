"""Checks that what a valid mirror file names is there: folders, object storage, ledger, connections.

Brokers and source databases are not called. The check writes an empty trial object into the change log's object storage
and deletes the object again. The object remains only if the deletion fails.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from sqlalchemy import create_engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError

from open_mirroring.config import connections
from open_mirroring.config.models import Mirror
from open_mirroring.config.problems import Problem, SettingPath
from open_mirroring.config.section import StoredPlace
from open_mirroring.config.source import InFolder, refuse_unstreamed
from open_mirroring.config.storage import storage_place, stream_from
from open_mirroring.config.tables import ExportLoad, JdbcLoad, Table, TableEntry
from open_mirroring.errors import MirroringError, TerminalError
from open_mirroring.storage.address import is_address

_CONNECT_SECONDS = 5


def check_mirror(mirror: Mirror) -> list[Problem]:
    """Find what would stop the mirror's first run: missing inputs, read-only folders, unset connections.

    Brokers and source databases are not called.
    """
    found = _salt(mirror), _source(mirror), _writable(mirror), _ledger(mirror), _entries(mirror)
    return [problem for problems in found for problem in problems]


def _salt(mirror: Mirror) -> Iterator[Problem]:
    try:
        mirror.salt()
    except TerminalError as error:
        yield mirror.problem_of(("hash", "salt"), error)


def _source(mirror: Mirror) -> Iterator[Problem]:
    source = mirror.source
    unset = [one for name, used in source.connections.items() for one in _connection(mirror, ("source", name), used)]
    yield from unset
    if not isinstance(source, InFolder) or unset:
        return
    if is_address(source.path):
        yield from _storage(mirror, ("source", "path"), source.path, source.connection)
        return
    path = mirror.resolve(source.path)
    if not _readable(path):
        next_step = "mount or create the folder, or fix `source.path`; the folder may be empty, but it must exist"
        yield mirror.problem(("source", "path"), "PLACE_MISSING", f"{path} is absent, or cannot be read", next_step)


def _writable(mirror: Mirror) -> Iterator[Problem]:
    zone, log = mirror.landing_zone, mirror.change_log
    if isinstance(log, StoredPlace):
        yield from _stored(mirror, ("change_log",), log, written=True)
    if isinstance(zone.tables, StoredPlace):
        yield from _stored(mirror, ("landing_zone", "tables"), zone.tables, written=False)
    folders: dict[SettingPath, str] = {("landing_zone", "path"): zone.path} if zone.store == "local" else {}
    if isinstance(log, str):
        folders[("change_log",)] = log
    for setting, text in folders.items():
        if reason := _why_not_writable(mirror.resolve(text)):
            next_step = "give the user of this process the right to write to this folder, or choose another folder"
            yield mirror.problem(setting, "ACCESS_DENIED", reason, next_step)


def _ledger(mirror: Mirror) -> Iterator[Problem]:
    try:
        url = make_url(mirror.ledger_url())
    except TerminalError as error:
        yield mirror.problem_of(("ledger",), error)
        return
    if url.drivername == "sqlite":
        file = Path(url.database or "")
        reason = _why_no_sqlite(file) if file.exists() else _why_not_writable(file.parent)
        next_step = "choose a place where this process can create a SQLite file, or name a PostgreSQL database"
    else:
        reason = _why_no_postgresql(url.render_as_string(False), f"{url.host}:{url.port or 5432}")
        next_step = "start the database, or fix host, port, database and login of the connection"
    if reason:
        yield mirror.problem(("ledger",), "UNREACHABLE", reason, next_step)


def _entries(mirror: Mirror) -> Iterator[Problem]:
    for index, table in enumerate(mirror.entries):
        # An export for a proof may be made just before the proof.
        for name, load in (("initial_load", table.initial_load), ("prove", table.prove)):
            if isinstance(load, ExportLoad):
                yield from _export(mirror, ("tables", index, name), load, table)
            elif isinstance(load, JdbcLoad):
                yield from _connection(mirror, ("tables", index, name, "connection"), load.connection)


def _export(mirror: Mirror, setting: SettingPath, load: ExportLoad, table: TableEntry) -> Iterator[Problem]:
    path = mirror.resolve(load.path)
    if is_address(load.path):
        yield from _storage(mirror, (*setting, "path"), load.path, load.connection)
    elif not _readable(path) or (path.is_dir() and not any(path.iterdir())):
        what = f"{path} does not exist, cannot be read, or is empty"
        next_step = "put the export into this folder, or fix `path`"
        yield mirror.problem((*setting, "path"), "PLACE_MISSING", what, next_step)
    try:
        stream_from(mirror, load)
    except MirroringError as error:
        yield mirror.problem_of((*setting, "stream_from"), error)
    wanted = table.chosen.of(load.types) if isinstance(table, Table) else load.types
    try:
        refuse_unstreamed(mirror.source, [(name, load.types[name]) for name in wanted], "")
    except MirroringError as error:
        yield mirror.problem_of((*setting, "types"), error)


def _connection(mirror: Mirror, setting: SettingPath, name: str) -> Iterator[Problem]:
    try:
        connections.resolve(name)
    except TerminalError as error:
        yield mirror.problem_of(setting, error)


def _storage(mirror: Mirror, setting: SettingPath, text: str, connection: str | None) -> Iterator[Problem]:
    try:
        place = storage_place(text, connections.resolve(connection or ""))
        if place.is_file() or next(place.store.objects(place.key), None) is not None or not place.key:
            return
    except MirroringError as error:
        yield mirror.problem_of(setting, error)
        return
    what, next_step = f"nothing is below {place}", "fix the path, or wait until the first file is there"
    yield mirror.problem(setting, "PLACE_MISSING", what, next_step)


def _stored(mirror: Mirror, setting: SettingPath, stored: StoredPlace, *, written: bool) -> Iterator[Problem]:
    """Check that a place can be listed; if it is *written*, also that an object can be created and deleted."""
    doing = "listed"
    try:
        place = storage_place(stored.path, connections.resolve(stored.connection))
        place.store.folders(place.key)
        if written:
            trial, doing = place / f"_check-{uuid4().hex}", "written"
            # The object's name is unique: it can only exist if the answer to its creation was lost and the call was
            # retried.
            with suppress(FileExistsError):
                trial.create(b"")
            doing = "deleted"
            trial.store.delete(trial.key)
    except MirroringError as error:
        problem = mirror.problem_of(setting, error)
        yield problem if doing == "listed" else problem._replace(what=f"nothing can be {doing} there: {problem.what}")


def _readable(path: Path) -> bool:
    return (path.is_file() or path.is_dir()) and os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0))


def _why_not_writable(folder: Path) -> str:
    nearest = next(place for place in (folder, *folder.parents) if place.exists())
    if not nearest.is_dir():
        return f"{nearest} is not a folder"
    return "" if os.access(nearest, os.W_OK | os.X_OK) else f"{nearest} is not writable"


def _why_no_sqlite(file: Path) -> str:
    if not file.is_file() or not os.access(file, os.R_OK | os.W_OK) or _why_not_writable(file.parent):
        return f"{file} is not a file that can be read and written, or no journal can be written in its folder"
    try:
        connection = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=_CONNECT_SECONDS)
        try:
            connection.execute("PRAGMA schema_version").fetchone()
        finally:
            connection.close()
    except sqlite3.Error as error:
        return f"{file} cannot be opened as a SQLite database: {error}"
    return ""


def _why_no_postgresql(url: str, address: str) -> str:
    # The driver's message may name user and options, so only the kind of failure is shown.
    engine = create_engine(url, connect_args={"connect_timeout": _CONNECT_SECONDS})
    try:
        with engine.connect():
            return ""
    except (DBAPIError, UnicodeError) as error:
        return f"the database at {address} does not answer as asked ({type(error).__name__})"
    finally:
        engine.dispose()
