"""Builds Airflow asset events and OpenLineage datasets for the tables that a task published.

An asset event promises two things: the files *first_number* to *number* of a table are in the landing zone, and these
files contain exactly the changes up to *batch*. An event does not promise that Fabric has applied the files. Files that
failed attempts of the task published are included. No file is reported by two events. Public source: OpenLineage,
*Naming conventions*.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias

from open_mirroring.config import Mirror
from open_mirroring.errors import MirroringError
from open_mirroring.landing_zone.onelake_address import PUBLIC_ENDPOINT

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

    from open_mirroring.ledger.reading import LedgerReader

T = TypeVar("T")
Mark = list[int]
"""A table's generation (a reset begins the next) and its last published file's number; a list, for JSON."""


class PublishedFiles(NamedTuple):
    """The files of one table that one run published.

    *first_number* and *number* are the numbers of the first and last file, *rows* is the number of rows in all files,
    *first_position* and *last_position* are the log positions of the first and last change.
    """

    table: str
    generation: int
    first_number: int
    number: int
    rows: int
    first_position: str
    last_position: str
    batch: int


def asset_alias(mirror: str) -> AssetAlias:
    """The Airflow asset alias of a mirror, for the ``outlets`` of the tasks that publish files.

    A publishing task sends an asset event through this alias for each table with new files.
    """
    return AssetAlias(f"open-mirroring/{mirror}", group="open-mirroring")


def table_asset(mirror: str, target: str) -> Asset:
    """The asset of a mirrored table: ``open-mirroring://<mirror>/<schema>/<table>``."""
    uri = f"open-mirroring://{mirror}/{quote(target)}"
    return Asset(name=uri, uri=uri, group="open-mirroring")


def table_assets(mirror: Mirror) -> dict[str, Asset]:
    """The Airflow assets of all mirrored tables of a mirror; the keys are the names of the source tables."""
    return {table.source: table_asset(mirror.name, table.target) for table in mirror.targets}


def lineage(mirror: Mirror, source: str) -> dict[str, str]:
    """The extra fields of an asset event: mirror, source and target of the table *source*, without secrets."""
    target = next(table.target for table in mirror.targets if table.source == source)
    zone = mirror.landing_zone
    return {
        "mirror": mirror.name,
        "source": f"{mirror.source.format} over {mirror.source.transport}: {mirror.source.place}",
        "target": f"{zone.store}: {zone.place}: {target}",
    }


def marks(ledger: LedgerReader) -> dict[str, Mark]:
    """For each source table its generation at the target and the number of its last published file."""
    return {source: [state.row.generation, state.row.confirmed] for source, state in ledger.tables().items()}


def published_since(ledger: LedgerReader, before: Mapping[str, Mark], tables: Iterable[str]) -> list[PublishedFiles]:
    """The files of *tables* published after :func:`marks` returned *before*; omits tables without new files."""
    found = []
    states = ledger.tables()
    for source in sorted(set(tables) & states.keys()):
        state = states[source]
        generation, confirmed = before.get(source, [state.row.generation, 0])
        above = confirmed if generation == state.row.generation else 0
        # One query for each table that moved; the others cost nothing.
        files = ledger.published(state.id, state.row.generation, above) if state.row.confirmed > above else []
        if files:
            found.append(
                PublishedFiles(
                    source,
                    state.row.generation,
                    files[0].number,
                    files[-1].number,
                    sum(file.rows for file in files),
                    files[0].first_position,
                    files[-1].last_position,
                    max(file.batch_to for file in files),
                )
            )
    return found


class Attempts:
    """Finds the files that attempts of one Airflow task published and that no asset event has reported yet.

    Between attempts, Airflow's task state store keeps the files of failed attempts, and the file numbers at the start
    of the last attempt. So files that a killed attempt published are found, too. *tables* maps source tables to their
    assets. *owed* are files that an earlier task of the same run published, and that this task has to report.
    """

    _KEY = "attempts"

    def __init__(
        self, ledger: LedgerReader, store: Any, tables: Collection[str], owed: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        self._ledger, self._store, self._tables = ledger, store, tables
        kept = store.get(self._KEY) or {"owed": list(owed)}
        left = [PublishedFiles(**document) for document in kept.get("owed", ())]
        self._owed = [one for one in left if one.table in tables]
        self._before: Mapping[str, Mark] = kept["before"] if "before" in kept else marks(ledger)
        store.set(self._KEY, {"owed": kept.get("owed", []), "before": self._before})

    def of(
        self, attempt: Callable[[], T], report: Callable[[Sequence[PublishedFiles]], None] = lambda _: None
    ) -> tuple[T, list[PublishedFiles]]:
        """Runs *attempt*; returns its result and the files that no asset event has reported yet.

        *report* is called with these files even if *attempt* fails.
        """
        try:
            done = attempt()
        except Exception:
            with suppress(MirroringError):  # a ledger that does not answer now is asked by the next attempt
                report(self.published())
            raise
        report(published := self.published())
        return done, published

    def published(self) -> list[PublishedFiles]:
        """All published files that no asset event has reported yet.

        The files are also stored for the task's next attempt, in case this attempt fails.
        """
        found = _joined([*self._owed, *published_since(self._ledger, self._before, self._tables)])
        self._store.set(self._KEY, {"owed": [one._asdict() for one in found]})
        return found

    def forget(self) -> None:
        """Deletes the stored files, because asset events have reported all of them."""
        self._store.set(self._KEY, {"owed": []})


def _joined(pieces: Iterable[PublishedFiles]) -> list[PublishedFiles]:
    """The same, where pieces of a table that follow each other are one: no other run published in between."""
    found: list[PublishedFiles] = []
    for piece in sorted(pieces):
        if found and found[-1][:2] == piece[:2] and found[-1].number + 1 == piece.first_number:
            first = found.pop()
            rows = first.rows + piece.rows
            piece = piece._replace(first_number=first.first_number, rows=rows, first_position=first.first_position)
        found.append(piece)
    return found


def operator_lineage(mirror: Mirror, published: Sequence[PublishedFiles]) -> OperatorLineage[Any, Any]:
    """OpenLineage inputs (source tables), and outputs (mirrored tables with row and file counts)."""
    # The provider is no requirement: whoever calls this is the provider itself.
    from airflow.providers.common.compat.openlineage.facet import (
        Dataset,
        OutputDataset,
        OutputStatisticsOutputDatasetFacet,
    )
    from airflow.providers.openlineage.extractors import OperatorLineage

    targets = {table.source: table.target for table in mirror.targets}
    source = f"open-mirroring://{mirror.name}/source"
    read, written = [], []
    for one in published:
        namespace, name = _mirrored(mirror, targets[one.table])
        counted = OutputStatisticsOutputDatasetFacet(rowCount=one.rows, fileCount=one.number - one.first_number + 1)
        read.append(Dataset(namespace=source, name=one.table))
        written.append(OutputDataset(namespace=namespace, name=name, outputFacets={"outputStatistics": counted}))
    return OperatorLineage(inputs=read, outputs=written)


def _mirrored(mirror: Mirror, target: str) -> tuple[str, str]:
    zone = mirror.landing_zone
    if zone.store == "onelake":
        host = PUBLIC_ENDPOINT.removeprefix("https://")
        return f"abfss://{zone.workspace}@{host}", f"{zone.item}/Tables/{target}"
    return "file", f"{mirror.resolve(zone.path)}/{target}"
