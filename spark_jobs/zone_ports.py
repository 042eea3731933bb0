"""The publish protocol's requests to the landing zone, answered by a store."""

from __future__ import annotations

import logging

from open_mirroring import publishing as protocol
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.fault_points import reach
from open_mirroring.landing_zone import layout
from open_mirroring.landing_zone.data_file import read_footer
from open_mirroring.landing_zone.store import LandingZoneStore, Renamed
from open_mirroring.ledger.reading import TableState

log = logging.getLogger(__name__)


class ZonePorts:
    """Answers one table's store requests; an unknown outcome is said to be unknown, never guessed."""

    def __init__(self, store: LandingZoneStore) -> None:
        self._store = store

    def answer(self, table: TableState, request: protocol.Request) -> protocol.Reply:
        """The reply of the store; ``Unknown`` when it did not tell."""
        try:
            return self._answer(table, request)
        except TransientError as error:
            log.warning("%s: %s", table.source, error)
            return protocol.Unknown()

    def _answer(self, table: TableState, request: protocol.Request) -> protocol.Reply:
        folder = table.folder
        match request:
            case protocol.CreateMarker(incarnation):
                self._store.create(f"{folder}/{layout.INCARNATION_FILE}", layout.incarnation_document(incarnation))
                return protocol.Answered()
            case protocol.ReadMarker():
                marker = self._store.read(f"{folder}/{layout.INCARNATION_FILE}")
                return protocol.Marker(None if marker is None else layout.incarnation_of(marker))
            case protocol.CreateMetadata():
                self._create_metadata(table)
                return protocol.Answered()
            case protocol.ReadMetadata():
                metadata = self._store.read(f"{folder}/{layout.METADATA_FILE}")
                return protocol.Metadata(metadata is not None and layout.key_columns_of(metadata) == table.keys)
            case protocol.Rename(number, file):
                final = f"{folder}/{layout.file_name(number)}"
                renamed = self._store.rename(file.object_name, final, source_etag=file.etag)
                if renamed is Renamed.REFUSED:
                    return protocol.Refused()
                reach("publish.renamed")
                return protocol.Renamed()
            case protocol.Probe(place, number, file):
                return self._probe(folder, place, number, file)
            case protocol.Sweep(generation, confirmed):
                self._sweep(folder, generation, confirmed)
                return protocol.Answered()
            case _:
                raise ValueError(f"{request} is no request to a store")

    def _create_metadata(self, table: TableState) -> None:
        # By a name that is ignored and a rename, so that the service never reads half a file.
        staged = f"{table.folder}/_new{layout.METADATA_FILE}.{table.row.incarnation}"
        self._store.create(staged, layout.metadata_document(table.keys))
        info = self._store.stat(staged)
        if info is not None:
            self._store.rename(staged, f"{table.folder}/{layout.METADATA_FILE}", source_etag=info.etag)

    def _probe(self, folder: str, place: protocol.Place, number: int, file: protocol.StagedFile) -> protocol.Seen:
        if place is protocol.Place.SOURCE:
            found = self._store.stat(file.object_name)
            return protocol.Seen() if found is None else protocol.Seen(found.etag, file.digest)
        name = layout.file_name(number)
        if place is protocol.Place.FINAL:
            paths = [f"{folder}/{name}"]
        else:
            # The processed folders lie in the table's folder or at the zone's root: both are read.
            paths = [f"{folder}/{place.value}/{name}", f"{place.value}/{folder}/{name}"]
        for path in paths:
            info = self._store.stat(path)
            if info is not None:
                return protocol.Seen(info.etag, self._digest(path))
        return protocol.Seen()

    def _digest(self, path: str) -> str | None:
        local = self._store.fetch(path)
        if local is None:
            raise TransientError("FILE_MOVED", f"{path!r} was moved while it was read", way_out="it is read again")
        try:
            footer = read_footer(local)
        except TerminalError:
            return None  # not a file of ours: the protocol stops with what it sees, CONFLICT
        return None if footer is None else footer.digest

    def _sweep(self, folder: str, generation: int, confirmed: int) -> None:
        for info in self._store.list(layout.staging_folder(folder, generation)):
            first_number = info.path.rpartition("/")[2].partition(".")[0]
            if first_number.isdigit() and int(first_number) <= confirmed:
                self._store.delete(info.path)
