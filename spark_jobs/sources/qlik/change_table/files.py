"""Finds the data files of change tables in a file target, and reads their rows.

Files are ``<schema>.<table>__ct/<time>.csv|json|parquet[.gz]``, perhaps in a folder per partition; a ``.dfm`` appears
next to a finished one (T-40 to T-42). Public source: Qlik help, *File target*.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from open_mirroring.changes.manifest import BoundFile, BoundRange, FileVersion
from open_mirroring.config import Mirror
from open_mirroring.config.source import HEADER_PREFIX, TABLE_SUFFIX, UTF8, ChangeTablesInFolder
from open_mirroring.config.storage import place_of
from open_mirroring.errors import TerminalError
from open_mirroring.protocols.backfilling import Interval
from open_mirroring.protocols.table_stops import LOAD_UNREAD
from open_mirroring.storage.object_path import Place
from spark_jobs.sources.contract.announced import Announced, Note
from spark_jobs.sources.contract.decoded import Damage, Refusal, TableDamage, shown
from spark_jobs.sources.contract.source import Chosen, Format, Found, MessageTransport, Seen, Survey
from spark_jobs.sources.contract.table_names import TableNames
from spark_jobs.sources.qlik.change_table.blocks import TextBlock, cut_blocks
from spark_jobs.sources.qlik.change_table.metadata_versions import (
    Metadata,
    metadata_digest,
    of_data_file,
    of_data_files,
)
from spark_jobs.sources.qlik.change_table.rows import (
    MASK,
    OPERATION,
    SEQUENCE,
    ChangeColumn,
    ChangeRow,
    Structure,
    column_type,
    header_name,
)
from spark_jobs.sources.qlik.change_table.survey import ExistingTable, survey_files
from spark_jobs.sources.qlik.data_files import has_binary, is_said_empty, read_texts
from spark_jobs.sources.qlik.dfm import DATA_SUFFIXES, SUFFIX, Dfm, check_file, metadata_file, read_dfm, stem
from spark_jobs.sources.transports.file_times import files_bound_before, files_within
from spark_jobs.sources.transports.source_files import (
    MAX_RAW,
    Listing,
    as_bound,
    bound_so_far,
    is_read,
    is_rewritten,
    left_behind,
    list_source_files,
    may_be_rewritten,
    open_source,
    side_by_side,
    versions_of,
    why_unread,
)
from spark_jobs.sources.transports.source_folders import SourceFile

NOT_STORED = Note("there is a full load of the table, and no change table yet")
LOAD_FILE = "LOAD"
"""The prefix of a full load's files."""
_WORTH_BYTES = 2**18
"""Smaller files are decoded row by row: decoding as columns has a fixed cost."""


@dataclass(frozen=True)
class ChangeFiles(MessageTransport):
    """The folder of a file target.

    Args:
        suffix: the suffix of change table folders (T-01).
        prefix: the prefix of header columns (T-02).
        unloaded: those of them without an initial load.
        timeout_hours: how long a file may wait for its other half (T-42).
        files: the state of the files when they were bound; used in object storage only.
        encoding: the encoding of text files without a byte order mark (T-46).
    """

    describes_tables: ClassVar[bool] = True
    empty_range_is_damage: ClassVar[bool] = True
    path: Place
    suffix: str = TABLE_SUFFIX
    prefix: str = HEADER_PREFIX
    tables: tuple[str, ...] = ()
    timeout_hours: float = 24
    files: Mapping[str, BoundFile] = field(default_factory=dict)
    unloaded: tuple[str, ...] = ()
    encoding: str = UTF8

    @classmethod
    def of(cls, mirror: Mirror, source: ChangeTablesInFolder) -> ChangeFiles:
        """The folder of a mirror file's source."""
        mirrored = tuple(".".join(table.source_name) for table in mirror.tables)
        unloaded = tuple(".".join(table.source_name) for table in mirror.tables if table.initial_load is None)
        path, hours = place_of(mirror, source.path, source.connection), source.fragment_timeout_hours
        how = (source.table_suffix, source.header_prefix, mirrored, hours)
        return cls(path, *how, unloaded=unloaded, encoding=source.encoding)

    def find(self, spark: Any, bound: Mapping[str, int], seen: Seen | None = None) -> Found:
        known = None if seen is None else seen(bound)
        return find_files(self.path, bound, self.suffix, known, self.timeout_hours, self.tables, self.unloaded)

    def within(self, ranges: Iterable[BoundRange], interval: Interval) -> list[BoundRange]:
        return files_within(self.path, ranges, interval)

    def bound_before(self, ranges: Iterable[BoundRange], interval: Interval) -> Chosen:
        return files_bound_before(self.path, ranges, interval)

    def survey(self) -> Survey:
        unread = list_source_files(self.path, (*DATA_SUFFIXES, SUFFIX), was_read=True).unread
        return survey_files(_described_tables(self.path, self.suffix), self.tables, self.suffix, self.prefix, unread)

    def announced(self, form: Format, most: int, spark: Callable[[], Any]) -> Iterator[Announced]:
        loads = _full_loads(self.path)
        for folder, dfm in _last_metadata(self.path, self.suffix):
            table = folder.name[: -len(self.suffix)] if dfm is None or "." not in dfm.table else dfm.table
            beside = folder.with_name(folder.name[: -len(self.suffix)] or folder.name)
            path, load = loads.pop(beside, ("", None))
            described = next((one for one in (dfm, load) if one is not None), None)
            if described is None or "." not in table:
                continue
            # Its metadata files may lack the key; those of the full load describe the source table itself.
            key = described.key or (() if load is None else load.key)
            for told in form.announced([ChangeRow(folder.name, 0, structure_of(described, table), ())]):
                yield told._replace(key=key or None, load=_settings_of(path))
        for path, load in loads.values():
            for told in form.announced([ChangeRow(path, 0, structure_of(load, load.table), ())]):
                yield told._replace(key=load.key or None, notes=(NOT_STORED,), load=_settings_of(path))

    def pinned(
        self, bound: Callable[[], Mapping[str, int]], files: Callable[[], Mapping[str, BoundFile]]
    ) -> ChangeFiles:
        if isinstance(self.path, Path):
            return self
        return replace(self, files={n: one._replace(seen=of_data_file(one.seen)) for n, one in files().items()})

    def _as_bound(self, bound: BoundRange) -> Place:
        return as_bound(self.path, bound, self.files.get(bound.name))

    def read(self, bound: BoundRange) -> Iterator[ChangeRow | TableDamage | Damage]:
        return read_file(self._as_bound(bound), bound, self.suffix, self.prefix, self.tables, self.encoding)

    def blocks(self, bound: BoundRange) -> Iterator[TextBlock | TableDamage] | None:
        if bound.end < _WORTH_BYTES:
            return None
        folder, how = self._as_bound(bound), (self.suffix, self.prefix, self.tables, self.encoding)
        return cut_file(self.prefix, read_batches(folder, bound, *how))


def find_files(
    root: Place,
    bound: Mapping[str, int],
    suffix: str = TABLE_SUFFIX,
    seen: Mapping[str, FileVersion] | None = None,
    timeout_hours: float = 24,
    mirrored: Collection[str] = (),
    unloaded: Collection[str] = (),
) -> Found:
    """Finished data files of change tables that were never bound, and files that have to wait.

    A data file is finished when its metadata file exists and is complete JSON (T-42). One with an unknown kind of name,
    or that waited too long, is a damage of its table. One that was written since it was bound, or whose metadata file
    was, is bound again completely (G-32). *unloaded* tables have no initial load: rows of a full load are refused.
    """
    everything = list_source_files(root, (*DATA_SUFFIXES, SUFFIX), was_read=bool(bound))
    listed = _in_change_tables(root, everything, suffix)
    described = {stem(file.name): file for file in listed.files if file.name.lower().endswith(SUFFIX)}
    data = {file.name: file for file in listed.files if not file.name.lower().endswith(SUFFIX)}
    beside = {name: described[stem(name)] for name in data if stem(name) in described}
    fresh = list(_fresh(root, data, beside, bound, seen))
    ready = side_by_side(root, lambda f: f.name in beside and _is_complete(root / beside[f.name].name), fresh)
    ranges = [BoundRange(file.name, 0, file.size) for file, is_ready in zip(fresh, ready, strict=True) if is_ready]
    empty = {name for name in listed.waiting if is_said_empty(root / name)}
    waiting = [name for name in (*listed.waiting, *listed.unfinished) if name not in empty]
    waiting += [file.name for file, is_ready in zip(fresh, ready, strict=True) if not is_ready]
    never = [name for name in waiting if name not in bound and name not in listed.unfinished]
    ranges += [BoundRange(name, 0, 0) for name in never if _is_overdue(root, name, described, timeout_hours)]
    # A waiting file does not count as seen: it may change, and is read when its metadata file is complete.
    known = [data[name] for name in data.keys() - {*waiting}]
    versions = versions_of(root, known, bound, ranges, None if seen is None else of_data_files(seen))
    versions |= _with_metadata(root, [file.name for file in known if file.name in beside], beside, versions, seen or {})
    ranges += [BoundRange(file.name, 0, file.size) for file in listed.unknown if file.size and file.name not in bound]
    waiting += [described[name].name for name in described.keys() - {stem(n) for n in (*data, *empty)}]
    overdue = left_behind(root, [n for n in waiting if n not in listed.waiting or stem(n) in described], ranges)
    names = [file.name for file in everything.files]
    refused = {table: _unread(table, file) for table, file in _unread_loads(root, names, unloaded)}
    refused |= {table: _elsewhere(table, at, suffix) for table, at in _elsewhere_alone(root, names, suffix, mirrored)}
    return Found(ranges, sorted(waiting), versions=versions, refused=refused, overdue=overdue, unread=listed.unread)


def _in_change_tables(root: Place, listed: Listing, suffix: str) -> Listing:
    def is_in_one(name: str) -> bool:
        return change_folder(root, name, suffix) is not None

    return Listing(
        [file for file in listed.files if is_in_one(file.name)],
        [name for name in listed.waiting if is_in_one(name)],
        [file for file in listed.unknown if is_in_one(file.name)],
        [name for name in listed.unfinished if is_in_one(name)],
        unread=listed.unread,
    )


def _fresh(
    root: Place,
    data: Mapping[str, SourceFile],
    beside: Mapping[str, SourceFile],
    bound: Mapping[str, int],
    seen: Mapping[str, FileVersion] | None,
) -> Iterator[SourceFile]:
    own = None if seen is None else of_data_files(seen)
    for name, file in data.items():
        start = bound_so_far(root, name, file.size, bound)
        if (
            file.size != start
            or may_be_rewritten(file, start, own)
            or is_rewritten(root, file, start, own)
            or (seen and name in beside and Metadata.of(seen.get(name)).is_another(root, beside[name]))
        ):
            yield file


def _with_metadata(
    root: Place,
    names: Iterable[str],
    beside: Mapping[str, SourceFile],
    versions: Mapping[str, FileVersion],
    seen: Mapping[str, FileVersion],
) -> dict[str, FileVersion]:
    own = {**of_data_files(seen), **versions}
    other = [
        name
        for name in names
        if name in versions or (name in seen and Metadata.of(seen[name]).version != beside[name].version)
    ]
    digests = side_by_side(root, lambda name: metadata_digest(root / beside[name].name), other)
    return {n: Metadata(beside[n].version, digest).behind(own[n]) for n, digest in zip(other, digests, strict=True)}


def _elsewhere_alone(
    root: Place, files: Collection[str], suffix: str, mirrored: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Mirrored tables whose only change table folder has another suffix, and that folder (T-62)."""
    own = {table_of_folder(root, name, suffix).lower() for name in files} - {""}
    last = {
        name.rpartition("/")[0]: name
        for name in files
        if name.lower().endswith(SUFFIX)
        and change_folder(root, name, suffix) is None
        and not name.rpartition("/")[2].upper().startswith(LOAD_FILE)
    }
    names = TableNames(mirrored)
    for folder, name in sorted(last.items()):
        with suppress(Refusal, OSError):
            dfm = read_dfm((root / name).read_bytes())
            headers = {wanted for wanted in (SEQUENCE, OPERATION) for one in dfm.names if one.lower().endswith(wanted)}
            table = names.meant_by(dfm.table)
            if table in mirrored and headers == {SEQUENCE, OPERATION} and not _is_there(dfm.table, own):
                yield str(table), folder


def _is_there(table: str, folders: Collection[str]) -> bool:
    return any(_are_one(table.lower(), folder) for folder in folders)


def _elsewhere(table: str, folder: str, suffix: str) -> TerminalError:
    return TerminalError(
        "TABLE_NAME_DIFFERS",
        f"the folder {folder!r} holds changes of it, and its name does not end with {suffix!r}: nothing of it is read",
        where=f"table {table}",
        way_out="set `table_suffix` to what the folders of the task's change tables end with",
    )


def _unread_loads(root: Place, files: Iterable[str], unloaded: Collection[str]) -> Iterator[tuple[str, str]]:
    for name in files:
        folders, file = [root.name, *PurePosixPath(name).parts[:-1]], PurePosixPath(name).name
        if not (file.upper().startswith(LOAD_FILE) and file.lower().endswith(SUFFIX)):
            continue
        for table in unloaded:
            if _are_one(table.lower(), folders[-1].lower()):
                with suppress(Refusal, OSError):
                    dfm = read_dfm((root / name).read_bytes())
                    if dfm.table == table and dfm.records:
                        yield table, name


def _unread(table: str, file: str) -> TerminalError:
    return TerminalError(
        LOAD_UNREAD,
        f"the task wrote rows of it in a full load ({file!r}), and it has no initial load: they are read by nothing",
        where=f"table {table}",
        way_out="give it an initial load with the format qlik-full-load, and reset it",
    )


def read_file(
    root: Place,
    bound: BoundRange,
    suffix: str = TABLE_SUFFIX,
    prefix: str = HEADER_PREFIX,
    mirrored: Collection[str] = (),
    encoding: str = UTF8,
) -> Iterator[ChangeRow | TableDamage | Damage]:
    """The rows of one bound file, in order; *place* counts them from 0.

    A file that is damaged or contradicts its metadata file, which names the table, ends with a damage of that.
    """
    for found in read_batches(root, bound, suffix, prefix, mirrored, encoding):
        if isinstance(found, TextBlock):
            yield from found.messages(np.arange(found.size))
        else:
            yield found


def read_batches(
    root: Place,
    bound: BoundRange,
    suffix: str = TABLE_SUFFIX,
    prefix: str = HEADER_PREFIX,
    mirrored: Collection[str] = (),
    encoding: str = UTF8,
) -> Iterator[TextBlock | TableDamage]:
    """As :func:`read_file`, with the rows in blocks."""
    path = root / bound.name
    names = TableNames(mirrored)
    table, is_sure = table_of_folder(root, bound.name, suffix), False
    place = 0
    try:
        if not is_read(bound.name, DATA_SUFFIXES):
            raise Refusal("FILE_UNKNOWN", why_unread(bound.name, DATA_SUFFIXES))
        if not bound.end:
            raise Refusal("FILE_INCOMPLETE", "its metadata file, or its content, did not come in time")
        if isinstance(path, Path) and path.is_file() and path.stat().st_size < bound.end:
            what = f"the file was bound with {bound.end} bytes and has {path.stat().st_size} now"
            raise Refusal("FILE_DAMAGED", what)
        with open_source(metadata_file(path)) as file:
            content = file.read()
        dfm = read_dfm(content)
        if "." in dfm.table:
            if names.meant_by(dfm.table) is None and names.meant_by(table) is not None:
                what = f"the metadata file speaks of {shown(dfm.table)}, which is not mirrored, in the folder of "
                raise Refusal("FILE_DAMAGED", what + shown(table))
            table, is_sure = dfm.table, True
        elif "." not in table:
            table = dfm.table or table
            for one in mirrored:
                if _are_one(table.lower(), one.lower()):
                    what = f"neither the metadata file nor the folder names the schema of {shown(table)}"
                    table = one
                    raise Refusal("FILE_DAMAGED", what)
        _check(dfm, root, bound.name, suffix)
        structure = structure_of(dfm, table, binary_mask=has_binary(path, _spelled(dfm, prefix + MASK)))
        headers = [column.name for column in dfm.columns if header_name(column.name, prefix) is not None]
        for batch in read_texts(path, dfm, headers, encoding):
            yield TextBlock(bound.name, place, structure, batch)
            place += batch.num_rows
    except Refusal as refusal:
        yield TableDamage(table, Damage(bound.name, place, refusal.code, refusal.reason, _beginning(path)), is_sure)


def cut_file(prefix: str, found: Iterable[TextBlock | TableDamage]) -> Iterator[TextBlock | TableDamage]:
    """Blocks of a file, split so that no ``change_seq`` is divided, and then its damage."""
    cut: list[TextBlock] = []
    add: Callable[[pa.RecordBatch | None], None] | None = None
    damage: TableDamage | None = None
    for one in found:
        if isinstance(one, TableDamage):
            damage = one
            continue
        add = add or cut_blocks(one.origin, one.structure, prefix, cut.append)
        add(one.texts)
        yield from cut
        cut.clear()
    if add is not None:
        add(None)
    yield from cut
    if damage is not None:
        yield damage


def _is_overdue(root: Place, name: str, described: Mapping[str, SourceFile], timeout_hours: float) -> bool:
    if not name.lower().endswith(DATA_SUFFIXES):
        return False
    path = root / name
    found = path.stat()
    since = [found.st_mtime]
    if not found.st_size:
        if stem(name) not in described:
            return False  # nothing shows that it should have content
        since.append((root / described[stem(name)].name).stat().st_mtime)
    return time.time() - max(since) > timeout_hours * 3600


def structure_of(dfm: Dfm, table: str, *, binary_mask: bool = False) -> Structure:
    """The structure of a change table in a metadata file."""
    columns = [
        ChangeColumn(column.name, column_type(column.type, column.length, column.precision, column.scale))
        for column in dfm.columns
    ]
    return Structure(table, tuple(columns), binary_mask, dfm.key, dfm.task)


def _spelled(dfm: Dfm, column: str) -> str:
    """The metadata file's spelling of a column: targets may change the case of header columns (T-02)."""
    return next((name for name in dfm.names if name.lower() == column.lower()), column)


def change_folder(root: Place, name: str, suffix: str) -> str | None:
    """The change table folder of a file: its own, or the one around its partition (T-40)."""
    folders = [root.name, *PurePosixPath(name).parts[:-1]]
    return next((folder for folder in reversed(folders) if folder.lower().endswith(suffix.lower())), None)


def table_of_folder(root: Place, name: str, suffix: str) -> str:
    """The table in the name of a change table folder; empty outside of one."""
    return (change_folder(root, name, suffix) or suffix)[: -len(suffix)]


def _check(dfm: Dfm, root: Place, name: str, suffix: str) -> None:
    check_file(dfm, PurePosixPath(name).name)
    folder = change_folder(root, name, suffix)
    if dfm.target and folder not in (dfm.target, dfm.target.partition(".")[2]):
        raise Refusal("FILE_DAMAGED", f"the metadata file speaks of {dfm.target!r} in the folder of {folder!r}")
    if not dfm.target and dfm.table and not _are_one(dfm.table.lower(), table_of_folder(root, name, suffix).lower()):
        what = f"the metadata file names no target, and speaks of {dfm.table!r} in the folder of {folder!r}"
        raise Refusal("FILE_DAMAGED", what)


def _are_one(one: str, other: str) -> bool:
    """Whether two names may be one table, because one of them lacks its schema."""
    if ("." in one) == ("." in other):
        return one == other
    return one.rpartition(".")[2] == other.rpartition(".")[2]


def _is_complete(path: Place) -> bool:
    """Whether a metadata file is completely written: then it is one JSON value, valid or not."""
    try:
        json.loads(path.read_bytes())
    except (ValueError, OSError, RecursionError):
        return False
    return True


def _beginning(path: Place) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(MAX_RAW)
    except OSError:
        return None


def _described_tables(root: Place, suffix: str) -> Iterator[ExistingTable]:
    for folder, dfm in _last_metadata(root, suffix):
        folder_table = folder.name[: -len(suffix)]
        if dfm is None:
            yield ExistingTable((folder_table,), ())
        else:
            yield ExistingTable((dfm.table if "." in dfm.table else folder_table,), tuple(dfm.names))


def _last_metadata(root: Place, suffix: str) -> Iterator[tuple[Place, Dfm | None]]:
    last: dict[str, str] = {}
    for file in list_source_files(root, (SUFFIX,), was_read=True).files:
        folder = change_folder(root, file.name, suffix)
        if folder is not None:
            last[folder] = file.name
    for folder, name in last.items():
        place = next((one for one in (root / name).parents if one.name == folder), root)
        try:
            yield place, read_dfm((root / name).read_bytes())
        except (Refusal, OSError):
            yield place, None


def _full_loads(root: Place) -> dict[Place, tuple[str, Dfm]]:
    found = dict[Place, tuple[str, Dfm]]()
    for file in list_source_files(root, (SUFFIX,), was_read=True).files:
        path = root / file.name
        if path.name.upper().startswith(LOAD_FILE) and path.parent != root:
            with suppress(Refusal, OSError):
                dfm = read_dfm(path.read_bytes())
                if "." in dfm.table:
                    found[path.parent] = (str(path.parent), dfm)
    return found


def _settings_of(path: str) -> tuple[tuple[str, str], ...]:
    return (("format", "qlik-full-load"), ("path", path), ("stream_from", "beginning")) if path else ()
