"""One source, one emulated mirrored database, and the writers between them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from fabric_emulator.settings import Settings
from fabric_emulator.web.emulator_server import EmulatorServer
from landing_zone_acceptance.judge import Judge, Verdict
from landing_zone_acceptance.source import Change, Source
from landing_zone_acceptance.wire import Call, Strike, Wire
from landing_zone_acceptance.writer import Adapter, Zone

PATIENCE_SECONDS = 180
_RUNS_TO_SETTLE = 4


class Mode(StrEnum):
    """How the service treats the zone, where its documents or reports leave a choice."""

    PERMISSIVE = "permissive"
    """The marker column may be anywhere and NULL, and files are applied between runs only."""
    STRICT = "strict"
    """Everything is as documented, and the service looks after every single call, also at half a file."""


SETTINGS = {
    Mode.PERMISSIVE: Settings(marker_must_be_last=False, null_marker="default"),
    Mode.STRICT: Settings(),
}


class Run(NamedTuple):
    """How a run of a writer ended; a run that was too slow has no code."""

    code: int | None
    output: str


class Trial(NamedTuple):
    """One attempt of an exercise, and what came of it."""

    what: str
    verdict: Verdict
    remark: str


class World:
    """A source with its first rows, an empty landing zone, and one writer that has not begun."""

    def __init__(self, folder: Path, adapter: type[Adapter], mode: Mode) -> None:
        zone, tables = folder / "zone", folder / "tables"
        self._folder, self._adapter = folder, adapter
        for needed in (zone, folder / "feed"):
            needed.mkdir(parents=True)
        self.source = Source(folder / "source.db")
        self.wire = Wire()
        self.judge = Judge(zone, tables, self.source)
        self.server = EmulatorServer(zone, tables, tls=True, settings=SETTINGS[mode], watched=self.wire.answer)
        self.zone = zone
        self._strict = mode is Mode.STRICT
        self.wire.after_publication = self._published
        self.server.__enter__()
        self.writers = [self._writer(folder / "state")]
        self._ends: dict[Path, Run] = {}

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.server.__exit__(None, None, None)
        shutil.rmtree(self._folder)

    def begin(self, strike: Strike | None = None) -> list[Call]:
        """Start the first writer, and let it publish the first rows; returns the calls of its first run."""
        self.start()
        self.run(strike=strike)
        calls = self.wire.calls
        self.settle()
        return calls

    def start(self) -> None:
        """Give the first writer its settings and no memory."""
        writer = self.writers[0]
        shutil.rmtree(writer.state, ignore_errors=True)
        writer.state.mkdir()
        writer.start()

    def change(self, changes: Sequence[Change]) -> None:
        """Hand changes, which the source has made, to the writers."""
        self.writers[0].deliver(changes)

    def work(self) -> None:
        """Let the source do some work."""
        self.change(self.source.work())

    def clone(self) -> Adapter:
        """A second publisher with a copy of the first one's state."""
        twin = self._writer(self._folder / "cloned-state")
        shutil.copytree(self.writers[0].state, twin.state)
        self.writers.append(twin)
        return twin

    def run(self, writer: Adapter | None = None, strike: Strike | None = None) -> Run:
        """One run of a writer, by default of the first one."""
        writer = writer or self.writers[0]
        self.wire.forget_calls()
        before = self.wire.running
        with (
            self.wire.set(strike),
            subprocess.Popen(
                writer.command(),
                env=writer.environment(),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            ) as process,
        ):
            self.wire.running = process
            try:
                output, _ = process.communicate(timeout=PATIENCE_SECONDS)
                end = Run(process.returncode, output.decode(errors="replace"))
            except subprocess.TimeoutExpired:
                end = Run(None, "the run did not end")
                os.killpg(process.pid, signal.SIGKILL)
            finally:
                self.wire.running = before
        self._ends[writer.state] = end
        return end

    def settle(self) -> None:
        """Let every writer run undisturbed until it changes nothing more, and the service apply what it finds."""
        for writer in self.writers:
            for _ in range(_RUNS_TO_SETTLE):
                end = self.run(writer)
                self.server.poll()
                if end.code == 0 and not self.wire.calls:
                    break

    def trial(self, what: str) -> Trial:
        """Settle, let what is late happen, settle again, and judge."""
        self.settle()
        if self.wire.release():
            self.work()
            self.settle()
        says_so = [
            end.code is not None and writer.says_so(end.code, end.output)
            for writer in self.writers
            for end in [self._ends[writer.state]]
        ]
        verdict, remark = self.judge.verdict(says_so=any(says_so))
        if verdict is Verdict.BLOCKS:
            output = next(end.output for end, says in zip(self._ends.values(), says_so, strict=True) if says)
            remark += ": " + " ".join(output.split())[-200:]
        return Trial(what, verdict, remark)

    def _writer(self, state: Path) -> Adapter:
        certificate = self.server.certificate
        assert certificate is not None
        zone = Zone(self.server.url, self.server.workspace_id, self.server.database_id, certificate)
        return self._adapter(state, self._folder / "feed", zone, self.source)

    def _published(self, call: Call) -> None:
        self.judge.look(call)
        if self._strict:
            self.server.poll()


class Lab:
    """Makes worlds, one at a time.

    Args:
        folder: where they are made; each is removed with the next one.
        adapter: the writer to be tried.
        mode: how the service treats the zone.
    """

    def __init__(self, folder: Path, adapter: type[Adapter], mode: Mode) -> None:
        self._folder, self._adapter, self._mode = folder, adapter, mode
        self._world: World | None = None
        self._made = 0
        self.breaches: dict[str, None] = {}

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def new(self) -> World:
        """A world in which nothing has happened."""
        self._close()
        self._made += 1
        self._world = World(self._folder / f"{self._made}", self._adapter, self._mode)
        return self._world

    def begun(self) -> World:
        """A world whose first rows have been published, and some changes after them."""
        world = self.new()
        world.begin()
        world.work()
        world.run()
        world.server.poll()
        return world

    def _close(self) -> None:
        if self._world is not None:
            self.breaches |= self._world.judge.breaches
            self._world.__exit__(None, None, None)
            self._world = None
