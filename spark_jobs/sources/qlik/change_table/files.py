"""Finds the data files of change tables in the folder of a Qlik file target, and reads their rows.

Data files are ``<schema>.<table>__ct/<time>.csv|json|parquet[.gz]``, possibly in a folder for each partition. Qlik
writes a ``.dfm`` metadata file next to each finished data file (T-40 to T-42). Public source: Qlik help, *File target*.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
from open_mirroring.source_places.source_folders import SourceFile
from open_mirroring.storage.object_path import Place
from spark_jobs.sources.contract.decoded import Damage, Refusal, TableDamage, TableNames, shown
from spark_jobs.sources.contract.source import (
    Announced,
    Chosen,
    Format,
    Found,
    MessageTransport,
    Note,
    Seen,
    Survey,
    unread_text,
)
from spark_jobs.sources.qlik.change_table.blocks import TextBlock, cut_blocks
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
from spark_jobs.sources.qlik.data_files import has_binary, is_said_empty, read_texts
from spark_jobs.sources.qlik.dfm import DATA_SUFFIXES, SUFFIX, Dfm, check_file, metadata_file, read_dfm, stem
from spark_jobs.sources.transports.source_files import (
    MAX_RAW,
    as_bound,
    bound_so_far,
    files_bound_before,
    files_within,
    is_read,
    is_rewritten,
    left_behind,
    list_source_files,
    open_source,
    side_by_side,
    versions_of,
    why_unread,
)

NOT_STORED = Note("there is a full load of the table, and no change table yet")
LOAD_FILE = "LOAD"
"""The prefix of a full load's files."""
_BETWEEN = "|"
"""Separates, in the version of a data file, its own from version and digest of its metadata file (G-32)."""
_WORTH_BYTES = 2**18
"""Smaller files are decoded row by row: decoding as columns has a fixed cost."""


@dataclass(frozen=True)
class ChangeFiles(MessageTransport):
    """Lists and reads the change tables in the folder of a Qlik file target.

    Args:
        suffix: the suffix of change table folders, in any case (T-01, T-62).
        prefix: the prefix of header columns (T-02).
        unloaded: the mirrored tables that have no initial load.
        timeout_hours: how long a data file may wait for its metadata file, and a metadata file for its data file
            (T-42).
        files: the state of the files when the ledger assigned them to a batch; used in object storage only.
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
        mirrored = tuple(".".join(table.source_name) for table in mirror.tables)
        unloaded = tuple(".".join(table.source_name) for table in mirror.tables if table.initial_load is None)
        path, hours = place_of(mirror, source.path, source.connection), source.fragment_timeout_hours
        how = (source.table_suffix, source.header_prefix, mirrored, hours)
        return cls(path, *how, unloaded=unloaded, encoding=source.encoding)

    def find(self, spark: Any, bound: Mapping[str, int], seen: Seen | None = None) -> Found:
        """Lists unread data files of change tables, and files that are not ready.

        A data file is ready when its metadata file exists and is complete JSON (T-42). A file with an unknown suffix,
        or a file that waited too long, is damage of its table. A data file is read again if it or its metadata file
        has changed (G-32).
        """
        root, known = self.path, None if seen is None else seen(bound)
        everything = list_source_files(root, (*DATA_SUFFIXES, SUFFIX), was_read=bool(bound))
        found = [file for file in everything.files if self._folder(file.name)]
        unready = [name for name in everything.waiting if self._folder(name)]
        unfinished = [name for name in everything.unfinished if self._folder(name)]
        described = {stem(file.name): file for file in found if file.name.lower().endswith(SUFFIX)}
        data = {file.name: file for file in found if not file.name.lower().endswith(SUFFIX)}
        beside = {name: described[stem(name)] for name in data if stem(name) in described}
        fresh = [file for name, file in data.items() if self._is_fresh(file, beside.get(name), bound, known)]
        ready = side_by_side(root, lambda f: f.name in beside and _is_complete(root / beside[f.name].name), fresh)
        ranges = [BoundRange(file.name, 0, file.size) for file, is_ready in zip(fresh, ready, strict=True) if is_ready]
        empty = {name for name in unready if is_said_empty(root / name)}
        waiting = [name for name in (*unready, *unfinished) if name not in empty]
        waiting += [file.name for file, is_ready in zip(fresh, ready, strict=True) if not is_ready]
        never = [name for name in waiting if name not in bound and name not in unfinished]
        ranges += [BoundRange(name, 0, 0) for name in never if self._is_overdue(name, described)]
        # A waiting file does not count as seen: it may change, and is read when its metadata file is complete.
        versions = self._versions([data[name] for name in data.keys() - {*waiting}], beside, bound, ranges, known)
        unknown = [file for file in everything.unknown if self._folder(file.name)]
        ranges += [BoundRange(file.name, 0, file.size) for file in unknown if file.size and file.name not in bound]
        waiting += [described[name].name for name in described.keys() - {stem(n) for n in (*data, *empty)}]
        overdue = left_behind(root, [n for n in waiting if n not in unready or stem(n) in described], ranges)
        names = [file.name for file in everything.files]
        refused = dict([*self._unread_loads(names), *self._elsewhere(names)])
        return Found(
            ranges, sorted(waiting), versions=versions, refused=refused, overdue=overdue, unread=everything.unread
        )

    def within(self, ranges: Iterable[BoundRange], interval: Interval) -> list[BoundRange]:
        return files_within(self.path, ranges, interval)

    def bound_before(self, ranges: Iterable[BoundRange], interval: Interval) -> Chosen:
        return files_bound_before(self.path, ranges, interval)

    def survey(self) -> Survey:
        unread = list_source_files(self.path, (*DATA_SUFFIXES, SUFFIX), was_read=True).unread
        there = {}
        for folder, dfm in self._last_metadata():
            there[self._described(folder, dfm)] = () if dfm is None else [name.lower() for name in dfm.names]
        why = f"; {unread_text(unread)}" if unread else ""
        missing = [one for one in self.tables if one not in there]
        unseen = {one: f"no folder {one + self.suffix!r} has a file with its metadata file{why}" for one in missing}
        mask = (self.prefix + MASK).lower()
        return Survey(unseen, [one for one in self.tables if one in there and mask not in there[one]])

    def announced(self, form: Format, most: int, spark: Callable[[], Any]) -> Iterator[Announced]:
        loads = self._full_loads()
        for folder, dfm in self._last_metadata():
            table = self._described(folder, dfm)
            beside = folder.with_name(folder.name[: -len(self.suffix)] or folder.name)
            load = loads.pop(beside, None)
            described = dfm or load
            if described is None or "." not in table:
                continue
            # Its metadata files may lack the key; those of the full load describe the source table itself.
            key = described.key or (load.key if load else None) or None
            for each in form.announced([ChangeRow(folder.name, 0, structure_of(described, table), ())]):
                yield each._replace(key=key, load=_settings_of(beside) if load else ())
        for path, load in loads.items():
            for each in form.announced([ChangeRow(str(path), 0, structure_of(load, load.table), ())]):
                yield each._replace(key=load.key or None, notes=(NOT_STORED,), load=_settings_of(path))

    def pinned(
        self, bound: Callable[[], Mapping[str, int]], files: Callable[[], Mapping[str, BoundFile]]
    ) -> ChangeFiles:
        if isinstance(self.path, Path):
            return self
        return replace(self, files={n: one._replace(seen=_own(one.seen)) for n, one in files().items()})

    def read(self, bound: BoundRange) -> Iterator[ChangeRow | TableDamage | Damage]:
        """Reads the rows of one data file, in order; a row's *place* is its number in the file, from 0.

        If the file is damaged or contradicts its metadata file, damage of its table comes after the rows.
        """
        for found in self._batches(bound):
            if isinstance(found, TextBlock):
                yield from found.messages(np.arange(found.size))
            else:
                yield found

    def blocks(self, bound: BoundRange) -> Iterator[TextBlock | TableDamage] | None:
        return self.cut(self._batches(bound)) if bound.end >= _WORTH_BYTES else None

    def cut(self, found: Iterable[TextBlock | TableDamage]) -> Iterator[TextBlock | TableDamage]:
        """Splits the blocks of a data file so that rows of one ``change_seq`` stay together; damage comes last."""
        cut: list[TextBlock] = []
        add: Callable[[pa.RecordBatch | None], None] | None = None
        damage: TableDamage | None = None
        for one in found:
            if isinstance(one, TableDamage):
                damage = one
                continue
            add = add or cut_blocks(one.origin, one.structure, self.prefix, cut.append)
            add(one.texts)
            yield from cut
            cut.clear()
        if add is not None:
            add(None)
        yield from cut
        if damage is not None:
            yield damage

    def _batches(self, bound: BoundRange) -> Iterator[TextBlock | TableDamage]:
        path, names = as_bound(self.path, bound, self.files.get(bound.name)) / bound.name, TableNames(self.tables)
        table, is_sure, place = self._table_of_folder(bound.name), False, 0
        try:
            if not is_read(bound.name, DATA_SUFFIXES):
                raise Refusal("FILE_UNKNOWN", why_unread(bound.name, DATA_SUFFIXES))
            if not bound.end:
                raise Refusal("FILE_INCOMPLETE", "its metadata file, or its content, did not come in time")
            if isinstance(path, Path) and path.is_file() and path.stat().st_size < bound.end:
                what = f"the file had {bound.end} bytes when it was found, and has {path.stat().st_size} now"
                raise Refusal("FILE_DAMAGED", what)
            with open_source(metadata_file(path)) as file:
                dfm = read_dfm(file.read())
            if "." in dfm.table:
                if names.meant_by(dfm.table) is None and names.meant_by(table) is not None:
                    what = f"the metadata file describes {shown(dfm.table)}, which is not mirrored, in the folder of "
                    raise Refusal("FILE_DAMAGED", what + shown(table))
                table, is_sure = dfm.table, True
            elif "." not in table:
                table = dfm.table or table
                for one in self.tables:
                    if _are_one(table.lower(), one.lower()):
                        what = f"neither the metadata file nor the folder names the schema of {shown(table)}"
                        table = one
                        raise Refusal("FILE_DAMAGED", what)
            self._check(dfm, bound.name)
            mask = (self.prefix + MASK).lower()  # targets may change the case of header columns (T-02)
            masks = [name for name in dfm.names if name.lower() == mask]
            structure = structure_of(dfm, table, binary_mask=bool(masks) and has_binary(path, masks[0]))
            headers = [column.name for column in dfm.columns if header_name(column.name, self.prefix) is not None]
            for batch in read_texts(path, dfm, headers, self.encoding):
                yield TextBlock(bound.name, place, structure, batch)
                place += batch.num_rows
        except Refusal as refusal:
            yield TableDamage(table, Damage(bound.name, place, refusal.code, refusal.reason, _beginning(path)), is_sure)

    def _check(self, dfm: Dfm, name: str) -> None:
        check_file(dfm, PurePosixPath(name).name)
        folder = self._folder(name)
        if dfm.target and folder not in (dfm.target, dfm.target.partition(".")[2]):
            raise Refusal("FILE_DAMAGED", f"the metadata file describes {dfm.target!r} in the folder of {folder!r}")
        if not dfm.target and dfm.table and not _are_one(dfm.table.lower(), self._table_of_folder(name).lower()):
            what = f"the metadata file names no target, and describes {dfm.table!r} in the folder of {folder!r}"
            raise Refusal("FILE_DAMAGED", what)

    def _folder(self, name: str) -> str | None:
        """The change table folder of a file: its own, or the one around its partition (T-40)."""
        folders = [self.path.name, *PurePosixPath(name).parts[:-1]]
        return next((folder for folder in reversed(folders) if folder.lower().endswith(self.suffix.lower())), None)

    def _table_of_folder(self, name: str) -> str:
        return (self._folder(name) or self.suffix)[: -len(self.suffix)]

    def _is_fresh(
        self,
        file: SourceFile,
        beside: SourceFile | None,
        bound: Mapping[str, int],
        seen: Mapping[str, FileVersion] | None,
    ) -> bool:
        """Whether a data file is not bound completely, or it or its metadata file changed since."""
        known = (seen or {}).get(file.name)
        own = {} if known is None else {file.name: _own(known)}
        start = bound_so_far(self.path, file.name, file.size, bound)
        if file.size != start or is_rewritten(self.path, file, start, own) is not False:
            return True
        version, digest = _noted(known)
        # A metadata file of unchanged version is not opened.
        return bool(beside and digest and version != beside.version and digest != _digest(self.path / beside.name))

    def _versions(
        self,
        files: Sequence[SourceFile],
        beside: Mapping[str, SourceFile],
        bound: Mapping[str, int],
        ranges: Iterable[BoundRange],
        seen: Mapping[str, FileVersion] | None,
    ) -> dict[str, FileVersion]:
        """The versions to store of files, each with version and digest of its metadata file (G-32)."""
        known = seen or {}
        own = {name: _own(one) for name, one in known.items()}
        versions = versions_of(self.path, files, bound, ranges, None if seen is None else own)
        names = [file.name for file in files if file.name in beside]
        other = [n for n in names if n in versions or (n in known and _noted(known[n])[0] != beside[n].version)]
        digests = side_by_side(self.path, lambda name: _digest(self.path / beside[name].name), other)
        for name, digest in zip(other, digests, strict=True):
            one = versions.get(name) or own[name]
            versions[name] = one._replace(version=_BETWEEN.join((one.version, beside[name].version, digest)))
        return versions

    def _elsewhere(self, files: Collection[str]) -> Iterator[tuple[str, TerminalError]]:
        """Mirrored tables whose only change table folder has another suffix (T-62)."""
        own = {self._table_of_folder(name).lower() for name in files} - {""}
        last = [n for n in files if n.lower().endswith(SUFFIX) and self._folder(n) is None and not _is_of_load(n)]
        names = TableNames(self.tables)
        for folder, name in sorted({name.rpartition("/")[0]: name for name in last}.items()):
            dfm = self._dfm(name)
            table = None if dfm is None else names.meant_by(dfm.table)
            if dfm is None or table not in self.tables or any(_are_one(dfm.table.lower(), one) for one in own):
                continue
            if all(any(one.lower().endswith(wanted) for one in dfm.names) for wanted in (SEQUENCE, OPERATION)):
                what = f"the folder {folder!r} contains changes of it, but its name does not end with {self.suffix!r}"
                yield (
                    str(table),
                    TerminalError(
                        "TABLE_NAME_DIFFERS",
                        f"{what}: these changes are not read",
                        where=f"table {table}",
                        next_step="set `table_suffix` to what the folders of the task's change tables end with",
                    ),
                )

    def _unread_loads(self, files: Iterable[str]) -> Iterator[tuple[str, TerminalError]]:
        """Tables without an initial load of which a full load has rows (T-96)."""
        for name in (name for name in files if _is_of_load(name) and name.lower().endswith(SUFFIX)):
            folder = [self.path.name, *PurePosixPath(name).parts][-2]
            for table in self.unloaded:
                dfm = self._dfm(name) if _are_one(table.lower(), folder.lower()) else None
                if dfm is not None and dfm.table == table and dfm.records:
                    what = f"the task wrote a full load of the table ({name!r}), and it has no initial load"
                    yield (
                        table,
                        TerminalError(
                            LOAD_UNREAD,
                            f"{what}: these rows are not read",
                            where=f"table {table}",
                            next_step="give the table an initial load of format qlik-full-load, and reset it",
                        ),
                    )

    def _is_overdue(self, name: str, described: Mapping[str, SourceFile]) -> bool:
        """Whether a data file waited too long for its metadata file or, if empty, for the announced content."""
        if not name.lower().endswith(DATA_SUFFIXES):
            return False
        found = (self.path / name).stat()
        since = [found.st_mtime]
        if not found.st_size:
            if stem(name) not in described:
                return False  # nothing shows that it should have content
            since.append((self.path / described[stem(name)].name).stat().st_mtime)
        return time.time() - max(since) > self.timeout_hours * 3600

    def _dfm(self, name: str) -> Dfm | None:
        try:
            return read_dfm((self.path / name).read_bytes())
        except (Refusal, OSError):
            return None

    def _described(self, folder: Place, dfm: Dfm | None) -> str:
        return folder.name[: -len(self.suffix)] if dfm is None or "." not in dfm.table else dfm.table

    def _last_metadata(self) -> Iterator[tuple[Place, Dfm | None]]:
        """Each change table folder with its last metadata file; None if that cannot be read."""
        files = list_source_files(self.path, (SUFFIX,), was_read=True).files
        for folder, name in {self._folder(file.name): file.name for file in files}.items():
            if folder is not None:
                parents = (self.path / name).parents
                yield next((one for one in parents if one.name == folder), self.path), self._dfm(name)

    def _full_loads(self) -> dict[Place, Dfm]:
        """The full loads below a file target by folder, each with its last metadata file (T-40)."""
        found = dict[Place, Dfm]()
        for file in list_source_files(self.path, (SUFFIX,), was_read=True).files:
            folder = (self.path / file.name).parent
            dfm = self._dfm(file.name) if _is_of_load(file.name) and folder != self.path else None
            if dfm is not None and "." in dfm.table:
                found[folder] = dfm
        return found


def structure_of(dfm: Dfm, table: str, *, binary_mask: bool = False) -> Structure:
    """The structure of a change table, as the metadata file *dfm* describes it.

    *binary_mask*: the data file stores change masks as bytes instead of text.
    """
    columns = [
        ChangeColumn(column.name, column_type(column.type, column.length, column.precision, column.scale))
        for column in dfm.columns
    ]
    return Structure(table, tuple(columns), binary_mask, dfm.key, dfm.task)


def _is_of_load(name: str) -> bool:
    return name.rpartition("/")[2].upper().startswith(LOAD_FILE)


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


def _noted(seen: FileVersion | None) -> tuple[str, str]:
    """Version and digest of the metadata file in the record of a data file; empty if they are not there."""
    version, _, digest = ("" if seen is None else seen.version.partition(_BETWEEN)[2]).rpartition(_BETWEEN)
    return version, digest


def _own(seen: FileVersion) -> FileVersion:
    return seen._replace(version=seen.version.partition(_BETWEEN)[0])


def _digest(path: Place) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def _settings_of(folder: Place) -> tuple[tuple[str, str], ...]:
    return ("format", "qlik-full-load"), ("path", str(folder)), ("stream_from", "beginning")
