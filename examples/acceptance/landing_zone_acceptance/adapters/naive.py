"""A deliberately naive writer, to show that the suite finds faults."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

from landing_zone_acceptance.source import TABLE
from landing_zone_acceptance.writer import Adapter


class NaiveWriter(Adapter):
    """The fifty lines of ``naive_writer.py``, which read the source's database."""

    name: ClassVar[str] = "naive"

    def start(self) -> None:
        """There are no settings."""

    def command(self) -> list[str]:
        """Everything that it needs is an argument."""
        folder = f"{self.zone.path}/{TABLE}"
        zone = [self.zone.url, self.zone.workspace, folder, str(self.zone.certificate)]
        script = str(Path(__file__).with_name("naive_writer.py"))
        return [sys.executable, script, *zone, str(self.source.path), str(self.state / "state.json")]
