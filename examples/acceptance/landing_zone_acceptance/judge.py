"""The judge of a landing zone and its mirrored table. It knows the source, and nothing of the writer."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from landing_zone_acceptance.source import TABLE, Row, Source
from landing_zone_acceptance.wire import Call, is_data_file

_MARKER = "__rowMarker__"
_PROCESSED = ("_ProcessedFiles", "_FilesReadyToDelete")
_NUMBER = re.compile(r"[0-9]{20}")


class Verdict(IntEnum):
    """The scale, from best to worst. Of a writer's trials the worst one counts."""

    RIGHT = 0
    """The mirrored table equals the source."""
    BLOCKS = 1
    """It is behind the source, and the writer reports that: no row is wrong, and an operator knows."""
    LOSES = 2
    """Changes are missing, and the writer reports success."""
    DOUBLES = 3
    """Rows are there twice, or were never in the source."""
    OVERWRITES = 4
    """A published file changed, or its number was used again: what the service has read is not known any more."""

    def __str__(self) -> str:
        return "blocks and says so" if self is Verdict.BLOCKS else self.name.lower()


class Judge:
    """Looks at one landing zone while a writer works, and compares its table with the source at the end.

    Attributes:
        breaches: what the zone's rules forbid and has been seen, in plain words. A breach is a remark and no verdict:
            if it does harm, the table shows it.
        foreign: rows that an exercise published itself.
    """

    def __init__(self, zone: Path, tables: Path, source: Source) -> None:
        self._zone, self._table, self._source = zone, tables / "dbo" / TABLE, source
        self._seen: dict[PurePosixPath, str] = {}
        self._overwritten: list[str] = []
        self._keys: dict[PurePosixPath, object] = {}
        self.breaches: dict[str, None] = {}
        self.foreign: list[Row] = []

    def look(self, call: Call | None = None) -> None:
        """Note the data files and metadata that are in the zone, after *call*."""
        if call is not None and call.verb == "delete" and call.what == "folder":
            # A deleted folder drops its table: what is published there afterwards is another one.
            for known in [path for path in self._seen if path.is_relative_to(call.path)]:
                del self._seen[known]
            self._keys.pop(PurePosixPath(call.path), None)
        for file, place in self._files():
            content = file.read_bytes()
            if not content:
                self._breach("an empty file under a final name")
                continue
            digest = hashlib.sha256(content).hexdigest()
            if self._seen.setdefault(place, digest) != digest:
                self._overwritten.append(place.name)
                self._seen[place] = digest
        for metadata in self._zone.rglob("_metadata.json"):
            self._look_at_keys(metadata)

    def verdict(self, *, says_so: bool) -> tuple[Verdict, str]:
        """The verdict, and what it rests on; *says_so* if the writer reports that it is not up to date."""
        self.look()
        self._look_at_sequence()
        if self._overwritten:
            return Verdict.OVERWRITES, f"file {int(self._overwritten[0].partition('.')[0])} changed"
        mirrored, wanted = Counter(map(_frozen, self._mirrored())), Counter(map(_frozen, self._source.rows()))
        if mirrored == wanted:
            return (Verdict.BLOCKS, "nothing is missing yet") if says_so else (Verdict.RIGHT, "")
        missing, extra = wanted - mirrored, mirrored - wanted
        known = {_frozen(row) for row in self._source.ever()}
        if says_so:
            known |= {_frozen({**dict.fromkeys(self._source.columns), **row}) for row in self.foreign}
        wrong = [row for row, times in extra.items() if times > 1 or row in wanted or row not in known]
        if wrong:
            return Verdict.DOUBLES, f"{len(wrong)} rows are there twice or never existed"
        what = f"{missing.total()} rows missing, {extra.total()} out of date"
        return (Verdict.BLOCKS if says_so else Verdict.LOSES), what

    def _files(self) -> list[tuple[Path, PurePosixPath]]:
        found = []
        for file in self._zone.rglob("*"):
            place = PurePosixPath(file.relative_to(self._zone))
            place = PurePosixPath(*(part for part in place.parts if part not in _PROCESSED))
            if is_data_file(place) and file.is_file():
                found.append((file, place))
        return found

    def _mirrored(self) -> list[Row]:
        if not DeltaTable.is_deltatable(str(self._table)):
            return []
        rows = pa.table(DeltaTable(str(self._table)).scan()).to_pylist()
        return [{name: row.get(name) for name in self._source.columns} for row in rows]

    def _look_at_keys(self, metadata: Path) -> None:
        folder = PurePosixPath(metadata.parent.relative_to(self._zone))
        try:
            document = {name.lower(): value for name, value in json.loads(metadata.read_bytes()).items()}
        except ValueError:  # incomplete, as while it is uploaded
            return
        keys = document.get("keycolumns")
        if not keys:
            self._breach("no keyColumns in _metadata.json")
        elif self._keys.setdefault(folder, keys) != keys:
            self._breach(f"keyColumns changed to {keys}")

    def _look_at_sequence(self) -> None:
        numbers: dict[PurePosixPath, list[int]] = {}
        for file, _ in self._files():
            if file.stat().st_size:
                self._look_at_marker(file)
        for place in self._seen:
            if _NUMBER.fullmatch(place.stem):
                numbers.setdefault(place.parent, []).append(int(place.stem))
        for found in numbers.values():
            if absent := set(range(1, max(found) + 1)) - set(found):
                self._breach(f"number {min(absent)} is missing")

    def _look_at_marker(self, file: Path) -> None:
        if file.suffix != ".parquet":
            return
        try:
            table = pq.read_table(file)
        except pa.ArrowInvalid:
            self._breach("a file that is no Parquet")
            return
        if _MARKER not in table.column_names:
            return
        if table.column_names[-1] != _MARKER:
            self._breach(f"{_MARKER} is not the last column")
        if odd := set(table.column(_MARKER).to_pylist()) - {0, 1, 2, 4}:
            self._breach(f"{_MARKER} holds {sorted(map(str, odd))}")

    def _breach(self, what: str) -> None:
        self.breaches[what] = None


def _frozen(row: Row) -> tuple[object, ...]:
    return tuple(row.values())


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict that counts."""
    return max(verdicts, default=Verdict.RIGHT)
