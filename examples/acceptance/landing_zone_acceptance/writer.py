"""The contract between the suite and a writer: what an adapter has to offer.

A writer is a program that the suite starts as a process of its own, so that it can be killed at any call. It reads the
source, or what its adapter makes of the source, and publishes into one landing zone over OneLake's DFS endpoint.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, NamedTuple

from landing_zone_acceptance.source import Change, Source


class Zone(NamedTuple):
    """The address of the landing zone, of the Fabric REST API and of the token endpoint, all at *url*.

    Any client id and secret get a token. *certificate* is the file that a client of *url* has to trust.
    """

    url: str
    workspace: str
    database: str
    certificate: Path
    tenant: str = "tenant"
    client: str = "client"
    secret: str = "secret"

    @property
    def path(self) -> str:
        """The landing zone as a path below the workspace."""
        return f"{self.database}/Files/LandingZone"


class Adapter(ABC):
    """One writer, set up to mirror the table ``orders`` of the source.

    It should write at most :attr:`rows_per_file` rows into a file, so that a batch has several files.

    Args:
        state: the folder for all that the writer remembers, and for its settings. The suite copies it to make a second
            publisher, and removes it to see what a writer does without its memory.
        feed: the folder for what the adapter makes of the source. It is never copied or removed.
    """

    name: ClassVar[str]
    rows_per_file: ClassVar[int] = 3

    def __init__(self, state: Path, feed: Path, zone: Zone, source: Source) -> None:
        self.state, self.feed, self.zone, self.source = state, feed, zone, source

    @abstractmethod
    def start(self) -> None:
        """Write the settings. The next run has no memory, and has to publish the rows that the source has.

        A writer that reads rows and changes from different places reads the rows by :meth:`Source.scan`.
        """

    def deliver(self, changes: Sequence[Change]) -> None:  # noqa: B027 - a writer that reads the source needs no more
        """Hand the writer new changes, if it does not read the source itself."""

    @abstractmethod
    def command(self) -> list[str]:
        """The command of one run, which ends by itself when all that is known has been published."""

    def environment(self) -> dict[str, str]:
        """The environment of a run."""
        return dict(os.environ)

    def says_so(self, code: int, output: str) -> bool:
        """Whether a run that ended so reports that the table is not up to date."""
        return code != 0
