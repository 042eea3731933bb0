"""Announces what a publishing task published: an event of each table's asset, and datasets of OpenLineage.

An event promises that the files *first_number* to *number* are in the landing zone, sealed and confirmed, and hold
exactly the log's changes up to *batch*; not that the target has applied them. It also covers what failed attempts of
its task published; none is sent twice. Public source: OpenLineage, *Naming conventions*.
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
"""Generation and highest confirmed number of a table; a list, because it is kept as JSON between attempts."""


class PublishedFiles(NamedTuple):
    """What one run published of one table; *rows* of all its new files, positions as the ledger writes them."""

    table: str
    generation: int
    first_number: int
    number: int
    rows: int
    first_position: str
    last_position: str
    batch: int


def asset_alias(mirror: str) -> AssetAlias:
    """The outlet of everything that publishes for a mirror; only tables with new files get an event through it."""
    return AssetAlias(f"open-mirroring/{mirror}", group="open-mirroring")


def table_asset(mirror: str, target: str) -> Asset:
    """The asset of a mirrored table: ``open-mirroring://<mirror>/<schema>/<table>``."""
    uri = f"open-mirroring://{mirror}/{quote(target)}"
    return Asset(name=uri, uri=uri, group="open-mirroring")


def table_assets(mirror: Mirror) -> dict[str, Asset]:
    """The assets of a mirror by source table."""
    return {table.source: table_asset(mirror.name, table.target) for table in mirror.targets}


def lineage(mirror: Mirror, source: str) -> dict[str, str]:
    """What an event says of the way of its rows: from which source to which table; no secrets."""
    target = next(table.target for table in mirror.targets if table.source == source)
    zone = mirror.landing_zone
    return {
        "mirror": mirror.name,
        "source": f"{mirror.source.format} over {mirror.source.transport}: {mirror.source.place}",
        "target": f"{zone.store}: {zone.place}: {target}",
    }


def marks(ledger: LedgerReader) -> dict[str, Mark]:
    """How far each table is confirmed, by source table."""
    return {source: [state.row.generation, state.row.confirmed] for source, state in ledger.tables().items()}


def published_since(ledger: LedgerReader, before: Mapping[str, Mark], tables: Iterable[str]) -> list[PublishedFiles]:
    """What was confirmed of these source tables since *before*; tables without new files are left out."""
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
    """What the attempts of one task published that no event has announced yet.

    Between attempts the task's state store keeps what failed ones published; of a killed one only where it began.
    *tables* have an asset; *owed* is what an earlier task of the run published and leaves to this one to announce.
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
        self, attempt: Callable[[], T], tell: Callable[[Sequence[PublishedFiles]], None] = lambda _: None
    ) -> tuple[T, list[PublishedFiles]]:
        """What *attempt* returns and what was published, of which *tell* hears even if the attempt fails."""
        try:
            done = attempt()
        except Exception:
            with suppress(MirroringError):  # a ledger that does not answer now is asked by the next attempt
                tell(self.published())
            raise
        tell(published := self.published())
        return done, published

    def published(self) -> list[PublishedFiles]:
        """All of it; ends the attempt that is under way."""
        found = _joined([*self._owed, *published_since(self._ledger, self._before, self._tables)])
        self._store.set(self._KEY, {"owed": [one._asdict() for one in found]})
        return found

    def forget(self) -> None:
        """Everything is announced."""
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
    """From each source table with new files to its mirrored table, with their rows."""
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
