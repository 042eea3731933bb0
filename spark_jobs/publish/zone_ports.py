"""Carries out the publish protocol's requests to the landing zone."""

from __future__ import annotations

import logging
from uuid import uuid4

from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.fault_points import reach
from open_mirroring.landing_zone import layout
from open_mirroring.landing_zone.data_file import read_footer
from open_mirroring.landing_zone.delimited_text import bytes_digest
from open_mirroring.landing_zone.store import LandingZoneStore, RenameOutcome, create_complete, read_marker
from open_mirroring.ledger.reading import TableState
from open_mirroring.protocols import publishing as protocol

log = logging.getLogger(__name__)


class ZonePorts:
    """Carries out requests for files of one table at a time; an unknown outcome of a request is reported as unknown."""

    def __init__(self, store: LandingZoneStore, mirror: str = "") -> None:
        self._store, self._mirror = store, mirror

    def answer(self, table: TableState, request: protocol.Request) -> protocol.Reply:
        """Carry out a request; the reply is ``Unknown`` if the landing zone did not answer."""
        try:
            return self._answer(table, request)
        except TransientError as error:
            log.warning("%s: %s", table.source, error)
            return protocol.Unknown(error)

    def _answer(self, table: TableState, request: protocol.Request) -> protocol.Reply:
        folder = table.folder
        match request:
            case protocol.CreateMarker(incarnation):
                self._create_complete(
                    table, layout.INCARNATION_FILE, layout.incarnation_document(incarnation, self._mirror)
                )
                return protocol.Answered()
            case protocol.ReadMarker():
                marker = read_marker(self._store, folder)
                return protocol.Marker(marker.incarnation, marker.etag)
            case protocol.CreateMetadata():
                content = layout.metadata_document(table.landed_keys, table.metadata_properties)
                self._create_complete(table, layout.METADATA_FILE, content)
                return protocol.Answered()
            case protocol.ReadMetadata():
                found = self._store.read(f"{folder}/{layout.METADATA_FILE}")
                # Metadata that are not what we wrote stop this table; the others go on.
                same = found is not None and layout.describes(found.data, table.landed_keys, table.metadata_properties)
                return protocol.Metadata(same)
            case protocol.Rename(number, file):
                final = f"{folder}/{layout.file_name(number, table.extension)}"
                renamed = self._store.rename(file.object_name, final, source_etag=file.etag)
                if renamed is RenameOutcome.REFUSED:
                    return protocol.RenameRefused()
                reach("publish.renamed")
                return protocol.Renamed()
            case protocol.Probe(place, number, file):
                return self._probe(table, place, number, file)
            case protocol.Sweep(generation, confirmed):
                sweep_staging(self._store, folder, generation, confirmed)
                return protocol.Answered()
            case _:
                raise ValueError(f"{request} is not a request to a store")

    def _create_complete(self, table: TableState, name: str, content: bytes) -> None:
        """Create a file of the folder if it is absent, in one step: readers never see half of it (F-10, F-38)."""
        # What a crash leaves behind is in staging, under a number below every other, and is removed.
        staged = f"{layout.staging_folder(table.folder, table.row.generation)}/0.{uuid4().hex}{name}"
        create_complete(self._store, f"{table.folder}/{name}", content, staged=staged)

    def _probe(
        self, table: TableState, place: protocol.FilePlace, number: int, file: protocol.StagedFile
    ) -> protocol.Seen:
        if place is protocol.FilePlace.SOURCE:
            found = self._store.stat(file.object_name)
            return protocol.Seen() if found is None else protocol.Seen(found.etag, file.digest)
        folder, name = table.folder, layout.file_name(number, table.extension)
        if place is protocol.FilePlace.FINAL:
            paths = [f"{folder}/{name}"]
        else:
            paths = [*layout.processed_paths(folder, place.value, name)]
        for path in paths:
            info = self._store.stat(path)
            if info is not None:
                return protocol.Seen(info.etag, self._digest(path, text=table.text is not None))
        return protocol.Seen()

    def _digest(self, path: str, *, text: bool) -> str | None:
        with self._store.fetch(path) as local:
            if local is None:
                raise TransientError(
                    "CHANGED_MEANWHILE", f"{path!r} was moved while it was read", next_step="it is read again"
                )
            if text:
                return bytes_digest(local)
            try:
                footer = read_footer(local)
            except TerminalError:
                return None  # not a file of ours: the protocol stops with what it sees, CONFLICT
        return None if footer is None else footer.digest


def sweep_staging(store: LandingZoneStore, folder: str, generation: int, confirmed: int) -> int:
    """Remove staged objects of file numbers up to *confirmed*; returns the number of removed objects.

    Staged objects of later file numbers are kept, because an open publication may still need them.
    """
    swept = 0
    for info in store.list(layout.staging_folder(folder, generation)):
        # What a crash left of an object begins with the object's name, so that it is swept like the object.
        first_number = info.path.rpartition("/")[2].partition(".")[0]
        if first_number.isascii() and first_number.isdigit() and int(first_number) <= confirmed:
            store.delete(info.path)
            swept += 1
    return swept
