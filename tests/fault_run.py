"""Ticks of the whole pipeline while the wire to OneLake fails at random: what the test and the bench of it share.

Every draw comes from one seed; threads and processes are not in its hand, so a run is alike another, not the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

from fabric_emulator.web.emulator_server import EmulatorServer
from fabric_emulator.web.faults import Fault, Kind
from tests.onelake import emulator
from tests.shop import Shop, judge

Job = Callable[[str], Mapping[str, Any]]
"""Does ``load``, ``tick`` or ``reconcile`` and says what came of it, as :func:`perform` does; ``killed`` if it was."""

_READING = ("read", "properties", "list")
_WRITING = ("create", "append", "flush", "rename", "delete")
_BEFALLEN: Mapping[Kind, tuple[str, ...]] = {
    "unavailable_before": (*_READING, *_WRITING, "token"),
    "unavailable_after": _WRITING,
    "throttled": (*_READING, *_WRITING),
    "dropped_before": (*_READING, *_WRITING, "token"),
    "dropped_after": (*_READING, *_WRITING),
    "duplicated": _WRITING,
    "delayed": _WRITING,
    "stale_listing": ("list",),
    "repeated_listing": ("list",),
    "slow": (*_READING, *_WRITING),
}
_AT_ONCE = 6
_A_TOKENS_LIFE = 3_601.0


class BadWire:
    """Random faults of an emulated OneLake, drawn anew for every tick."""

    def __init__(self, server: EmulatorServer, random: Random) -> None:
        self._server, self._random = server, random
        self._interference: threading.Timer | None = None

    def worsen(self) -> None:
        """Other faults from now on; in a moment, what is delayed takes effect and the service polls."""
        self.mend()
        faults, random = self._server.faults, self._random
        for kind in random.sample(sorted(_BEFALLEN), _AT_ONCE):
            verb = random.choice(_BEFALLEN[kind])
            # A listing is one call of many; a seldom fault of it would hardly ever strike.
            probability = random.choice((0.02, 0.1, 0.5)) if verb == "list" else random.choice((0.02, 0.05, 0.2))
            # What two looks in a row do not see is gone for all that a run can know: its tables stop, for that run.
            times = 1 if kind == "stale_listing" else None
            faults.add(Fault(kind, verb, times=times, probability=probability, seconds=0.05 * (kind == "slow")))
        if random.random() < 0.3:
            # Late twice: the effect of a request that was answered comes once more, long after.
            faults.add(Fault("delayed", "rename", times=3))
            faults.add(Fault("duplicated", "rename", times=3))
        if random.random() < 0.3:
            # A token refused twice in a row is no accident but a refusal.
            faults.add(Fault("token_expired", random.choice((*_READING, *_WRITING)), skip=random.randrange(5)))
        if random.random() < 0.05:
            self._server.advance_clock(_A_TOKENS_LIFE)
        self._interference = threading.Timer(random.uniform(0.1, 3.0), self._interfere)
        self._interference.start()

    def mend(self) -> None:
        """No more faults, and nothing delayed any more."""
        if self._interference is not None:
            self._interference.cancel()
            self._interference.join()
        self._server.faults.clear()
        self._server.faults.release()

    def _interfere(self) -> None:
        self._server.faults.release()
        self._server.poll()


class FaultRun:
    """A shop mirrored over a bad wire, from its initial load on.

    Args:
        folder: of the run, not there yet.
        seed: of everything that is drawn.
        connect: told the emulator, puts the connection ``lake`` where jobs look for it.
    """

    def __init__(self, folder: Path, seed: int, connect: Callable[[EmulatorServer], None]) -> None:
        self.random = Random(seed)
        self.server = emulator(folder, seed=seed)
        self.server.__enter__()
        connect(self.server)
        zone = {"store": "onelake", "workspace": self.server.workspace_id, "item": self.server.database_id}
        settings = {"landing_zone": {**zone, "connection": "lake"}, "publish": {"max_rows_per_file": 60}}
        self.shop = Shop(folder, None, "parquet", 150, seed=seed, **settings)
        self.pipeline = self.shop.pipeline
        self.pipeline.service = self.server.service
        self.wire = BadWire(self.server, self.random)
        self.came_of: dict[str, int] = {}

    def close(self) -> None:
        """Stop the emulator."""
        self.wire.mend()
        self.server.__exit__(None, None, None)

    def step(self, job: Job) -> None:
        """New changes at the source, other faults, and a job; no fault of the wire may stop a table."""
        self.shop.go_on(self.random.randrange(12), hold_back=True)
        self.wire.worsen()
        pending = any(table.start.load_state == "pending" for table in self.pipeline.reader.tables().values())
        name = "load" if pending or not self.came_of else "tick"
        if self.random.random() < 0.05:
            name = "reconcile"
        self._count(name, job(name))
        if self.random.random() < 0.7:
            self.server.poll()

    def finish(self, job: Job) -> None:
        """The wire is good again: the source's last messages arrive, one more tick, and all is as it has to be."""
        self.wire.mend()
        self.server.poll()
        self.shop.go_on(0)
        for name in ("load", "tick", "reconcile"):
            outcome = job(name)
            assert outcome.get("error") is None and not outcome.get("held"), (name, outcome)
            self._count(name, outcome)
        self.server.poll()
        judge(self.pipeline, self.shop.state)
        self.assert_numbers()

    def assert_numbers(self) -> None:
        """Every number from 1 to K was made once, whatever came late or twice, and none above it."""
        for source, state in self.pipeline.reader.tables().items():
            folder = self.pipeline.zone / state.folder
            made = {p: n for p, n in self.server.store.made.items() if p.parent == folder and p.stem.isdigit()}
            assert sorted(int(path.stem) for path in made) == list(range(1, state.row.confirmed + 1)), source
            assert set(made.values()) == {1}, (source, made)

    def _count(self, name: str, outcome: Mapping[str, Any]) -> None:
        assert not outcome.get("stopped"), outcome
        what = f"{name}: {outcome.get('error') or ('killed' if outcome.get('killed') else 'done')}"
        self.came_of[what] = self.came_of.get(what, 0) + 1


def perform(job: str, mirror_file: Path, spark: Any) -> Mapping[str, Any]:
    """Do a job in this process; an error that another run may mend is reported, any other one raised."""
    from open_mirroring.config import load_mirror
    from open_mirroring.errors import MirroringError, TransientError
    from open_mirroring.ledger import open_ledger
    from spark_jobs.cli.tick import tick
    from spark_jobs.initial_load import load
    from spark_jobs.reconcile_sequence import reconcile_deep

    mirror = load_mirror(mirror_file)
    ledger = open_ledger(mirror.ledger_url())
    try:
        done: Any = {"load": load, "tick": tick, "reconcile": reconcile_deep}[job](mirror, ledger, spark)
    except TransientError as error:
        return {"error": error.code}
    except MirroringError as error:
        raise AssertionError(f"{job}: {error}") from error
    failed = getattr(done, "failed", None)
    if failed is not None and not isinstance(failed, TransientError):
        raise AssertionError(f"{job}: {failed}")
    return {"error": failed and failed.code, "stopped": dict(done.stopped), "held": dict(done.held)}
