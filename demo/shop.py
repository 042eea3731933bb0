"""The two ends of the demo: the shop's database, and the service that applies the landing zone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from demo.failures import DemoFailed
from demo.judge import count_files
from demo.place import ROOT, DemoFolder, clean_environment
from demo.processes import Service
from demo.source_formats import CES, QLIK_CHANGE_TABLE, QLIK_KAFKA, SourceFormat

TOPIC = "shop"
"""The topic that the shop's messages go to."""

_APPLIED = re.compile(r"^applied (?P<table>\S+) (?P<number>[0-9]+) ", re.MULTILINE)
_FAILED = re.compile(r"^failed .*$", re.MULTILINE)
_COMMAND_LIMIT = 120.0


class Shop:
    """The source database: every call is one command of the workload generator.

    Args:
        place: where it lives.
        seed: decides everything that ever happens in the shop.
        source_format: how its changes leave it.
        broker: the address of the broker, where the format needs one; its topic :data:`TOPIC` must be there.
    """

    def __init__(self, place: DemoFolder, seed: int, source_format: SourceFormat = CES, broker: str = "") -> None:
        self._place, self._seed, self._format = place, seed, source_format
        self._ways = {
            CES: ["--capture", str(place.capture)],
            QLIK_CHANGE_TABLE: ["--change-files", str(place.target)],
            QLIK_KAFKA: ["--kafka", broker, "--topic", TOPIC],
        }
        self._delivered = 0.0

    def open(self) -> dict[str, Any]:
        """Creates the database, with rows for which there are no change events; returns its report."""
        return self._command("init", "--seed", str(self._seed))

    def hand_over(self) -> str:
        """Delivers the rows that exist before the first change; returns a text that says how."""
        if self._format is QLIK_KAFKA:
            sent = self._command("load", *self._ways[QLIK_KAFKA])
            return f"sent all {sent['rows']} rows as REFRESH, {sent['messages']} messages with structures and repeats"
        if self._format is QLIK_CHANGE_TABLE:
            self._command("export", "--out", str(self._place.target), "--format", "qlik-full-load")
            return "wrote the full load of all tables; changes follow"
        exported = self._command("export", "--out", str(self._place.export), "--format", "parquet")
        return f"exported all tables to Parquet; the stream goes on from {exported['stream_from']}"

    def trade(self, transactions: int, *, hold_back: bool) -> dict[str, Any]:
        """Commit transactions and deliver their changes; with *hold_back* some arrive with a later call only."""
        held = ["--hold-back"] if hold_back else []
        done = self._command("run", *self._ways[self._format], "--transactions", str(transactions), *held)
        self._delivered = time.time()
        return done

    def export_at_the_end(self) -> None:
        """Exports all tables as they are now, for the proof at the end."""
        self._command("export", "--out", str(self._place.last_export), "--format", "parquet")

    def report(self) -> dict[str, Any]:
        """Rows and events of every table so far."""
        return self._command("report")

    def last_delivery(self) -> float:
        """When the newest changes had been delivered, in seconds since 1970."""
        return self._delivered

    def _command(self, command: str, *arguments: str) -> dict[str, Any]:
        state = ("--state", str(self._place.source))
        answer = run_python(["-m", "workload_generator", command, *state, *arguments])
        if answer.returncode:
            raise DemoFailed(f"the workload generator's {command} failed: {answer.stderr.strip()}")
        return dict(json.loads(answer.stdout))


class MirroringService:
    """The stand-in for Fabric's mirroring service, watching the landing zone in a process of its own.

    Raises:
        DemoFailed: when it cannot be started.
    """

    def __init__(self, place: DemoFolder) -> None:
        self._place = place
        folders = ["--landing-zone", str(place.landing_zone), "--tables", str(place.tables)]
        command = [sys.executable, "-m", "fabric_emulator.command_line", "apply", *folders, "--watch"]
        self.service = Service(
            "the mirroring service", command, clean_environment(), ROOT, place.logs / "mirroring_service.log"
        )

    def check(self) -> None:
        """Nothing while it runs and applies.

        Raises:
            DemoFailed: when it has ended, or a table of it failed.
        """
        self.service.check()
        failures = _FAILED.findall(self._log())
        if failures:
            raise DemoFailed(f"the mirroring service refuses a file: {failures[0]}", self.service.log)

    def pending(self, tables: Sequence[str]) -> dict[str, int]:
        """Published files not yet applied, by table (``schema.name``); tables without any are left out."""
        applied = last_applied(self._log())
        # Numbers are 1, 2, 3, … without gap: as many files, as high the last number.
        waiting = {name: count_files(self._place.landing_zone, name) - applied.get(name, 0) for name in tables}
        return {name: number for name, number in waiting.items() if number}

    def wait_until_applied(self, tables: Sequence[str], limit: float = 120.0) -> None:
        """Wait until every published file is applied.

        Raises:
            DemoFailed: when that takes longer than *limit* seconds, or a table failed.
        """
        give_up = time.monotonic() + limit
        while waiting := self.pending(tables):
            self.check()
            if time.monotonic() > give_up:
                raise DemoFailed(f"files are not applied after {limit:.0f} s: {waiting}", self.service.log)
            time.sleep(0.5)

    def _log(self) -> str:
        return self.service.log.read_text(encoding="utf-8")


def last_applied(log: str) -> dict[str, int]:
    """The highest number that the service said it applied, by table (``schema.name``)."""
    highest: dict[str, int] = {}
    for match in _APPLIED.finditer(log):
        name = match["table"].replace("/", ".", 1)
        highest[name] = max(highest.get(name, 0), int(match["number"]))
    return highest


def run_python(arguments: Sequence[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a Python program of the repository to its end, with these variables beside the demo's own."""
    try:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=clean_environment(**environment),
            capture_output=True,
            text=True,
            timeout=_COMMAND_LIMIT,
        )
    except subprocess.TimeoutExpired as error:
        raise DemoFailed(f"{' '.join(arguments[:3])} did not end within {_COMMAND_LIMIT:.0f} s") from error
