"""Files of Event Hubs Capture as a transport."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from open_mirroring.changes.manifest import BoundRange
from open_mirroring.config import Mirror
from open_mirroring.config.source import GAP_TIMEOUT_MINUTES, InCapture
from open_mirroring.config.storage import place_of
from open_mirroring.errors import TerminalError
from open_mirroring.facts.read_places import Numbering
from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.schema import RawMessage
from spark_jobs.sources.contract.decoded import Damage
from spark_jobs.sources.transports.capture import SUFFIXES, holes, list_capture, read_capture
from spark_jobs.sources.transports.message_files import MessageFiles
from spark_jobs.sources.transports.source_files import (
    Listing,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class CaptureFiles(MessageFiles):
    """Files of Event Hubs Capture, each read completely. Files after a gap in their numbers wait (C-93)."""

    gap_timeout_minutes: int = GAP_TIMEOUT_MINUTES
    lists_all: bool = False
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    settles_after: ClassVar[int] = 960  # Capture writes its files at least every 15 minutes

    @classmethod
    def of(cls, mirror: Mirror, source: InCapture) -> CaptureFiles:
        return cls(place_of(mirror, source.path, source.connection), source.gap_timeout_minutes)

    @property
    def numbering(self) -> Numbering:
        return "rising"

    def list_files(self, bound: Mapping[str, int]) -> Listing:
        return super().list_files(bound) if self.lists_all else list_capture(self.path, bound)

    def unlimited(self) -> CaptureFiles:
        return replace(self, lists_all=True)

    def beyond(
        self, listed: Listing, bound: Mapping[str, int], unread: list[BoundRange]
    ) -> tuple[list[BoundRange], set[str]]:
        held = set[str]()
        for hole in holes(self.folder, listed.files, bound):
            minutes = (time.time() - min((self.folder / name).stat().st_mtime for name in hole.files)) / 60
            if minutes > self.gap_timeout_minutes:
                raise TerminalError(
                    "SOURCE_REWRITTEN",
                    f"{hole.what} of partition {hole.partition!r} are missing, and {hole.files[0]!r} waits for them "
                    f"since {minutes:.0f} minutes",
                    where=str(self.path),
                    way_out="copy the missing files to their places; if they are lost, so are changes: load the tables "
                    "again, with a new ledger and change log (docs: *Start over*)",
                )
            what = hole.partition, hole.what, len(hole.files)
            log.warning("partition %r: %s are missing; %d files wait for them", *what)
            held.update(hole.files)
        return [BoundRange(one.name, 0, one.end) for one in unread if one.name not in held], held

    def messages(self, folder: Place, bound: BoundRange) -> Iterator[RawMessage | Damage]:
        return read_capture(folder, bound.name, bound.end)
