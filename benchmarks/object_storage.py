"""Times runs over object storage (servers on this machine) beside runs on local paths, in turns in the same process.

``--files N``: how much a run with ten new Capture files costs beside N that were read before, and beside 100. Without
it: extraction and publication of the same events with source and change log on local paths, in Azurite, and in Azurite
that answers later. The server runs on the same cores as the job, and what it uses is counted with the job: figures are
of both together. With ``--apart`` all runs have one core and the servers another, as a storage account takes none of a
cluster's: the wall clock then compares the job alone.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import shutil
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import fastavro

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.generate import ROOT, ces_bodies, key_of, source_folder, table_names
from benchmarks.measure import Cost, measured, versions
from tests.object_storage import KINDS, Storage, running_servers
from workload_generator.transports import EVENT_DATA

_NEW, _FEW = 10, 100
_LOCAL = "local"
_WINDOW = timedelta(minutes=1)
_TABLES = 5
_RUNS_CORE, _SERVERS_CORE = 0, 1


class Side(NamedTuple):
    """Where source and change log of a mirror are."""

    name: str
    source: Mapping[str, Any]
    change_log: Any


def mirror_of(work: Path, side: Side, transport: Mapping[str, Any]) -> Any:
    """A mirror of the bench's tables, with nothing read yet."""
    from open_mirroring.config import load_mirror

    shutil.rmtree(work, ignore_errors=True)
    document = {
        "mirror": "bench",
        "source": {"format": "sqlserver-ces", **transport, **side.source},
        "landing_zone": {"store": "local", "path": str(work / "landing_zone")},
        "ledger": f"sqlite:///{work}/ledger.db",
        "change_log": side.change_log,
        "tables": [
            {"source": f"dbo.{name}", "target": f"dbo/{name}", "key": [key_of(name)]} for name in table_names(_TABLES)
        ],
    }
    path = work / "mirrors" / "bench.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(document))
    return load_mirror(path)


def run(mirror: Any, extract_only: bool = False) -> tuple[Cost, int]:
    """Extract and publish once; the cost, and the messages that were read."""
    from open_mirroring.ledger import open_ledger
    from spark_jobs.extract_changes import extract
    from spark_jobs.publish.changes import publish
    from spark_jobs.runtime.session import build_session

    ledger, spark = open_ledger(mirror.ledger_url()), build_session("bench", cores=2)
    with measured() as cost:
        extracted = extract(mirror, ledger, spark)
        if not extract_only:
            publish(mirror, ledger, spark)
    ledger.dispose()
    return cost, extracted.counts.get("messages", 0)


def stored(storage: Storage, connection: str, name: str) -> Side:
    """A side in object storage."""
    os.environ[f"AIRFLOW_CONN_{connection.upper()}"] = storage.connection
    at = {"connection": connection}
    return Side(name, {"path": f"{storage.address}/stream", **at}, {"path": f"{storage.address}/log", **at})


def compare_runs(events: int, rounds: int, latency_ms: int, apart: bool) -> None:
    """The same events on three sides, in turns."""
    folder = source_folder(events, "wrapped", _TABLES)
    size = sum(file.stat().st_size for file in folder.iterdir())
    with ExitStack() as servers:
        if apart:
            os.sched_setaffinity(0, {_SERVERS_CORE})
        near = servers.enter_context(running_servers()).new("azure")
        far = servers.enter_context(running_servers(latency_ms)).new("azure")
        if apart:
            os.sched_setaffinity(0, {_RUNS_CORE})
        for file in folder.iterdir():
            for storage in (near, far):
                storage.deliver(f"stream/{file.name}", file.read_bytes())
        costs: dict[str, list[Cost]] = {}
        for turn in range(-1, rounds):
            work = ROOT / "work" / "local"
            sides = [
                Side("local", {"path": str(folder)}, str(work / "log")),
                stored(near.below(f"turn{turn}"), "near", "Azurite"),
                stored(far.below(f"turn{turn}"), "far", f"Azurite, {latency_ms} ms later"),
            ]
            for side, storage in zip(sides[1:], (near, far), strict=True):
                side.source["path"] = f"{storage.address}/stream"  # type: ignore[index]
            for side in sides[turn % 3 :] + sides[: turn % 3]:
                cost, read = run(mirror_of(ROOT / "work" / side.name.partition(",")[0].lower(), side, _LINES))
                assert read == events, (side.name, read)
                if turn >= 0:  # the first turn warms up
                    costs.setdefault(side.name, []).append(cost)
                    print(f"round {turn + 1}: {side.name}: {cost.wall:.2f} s, {cost.cpu:.2f} CPU s", flush=True)
    print(f"{events:,} events, {size / 1e6:,.0f} MB; {versions()}")
    for name, found in costs.items():
        speed = [local.wall / other.wall for local, other in zip(costs["local"], found, strict=True)]
        print(
            f"{name}: {_spread([c.wall for c in found])} s, {_spread([c.cpu for c in found])} CPU s, "
            f"{events / statistics.median(c.wall for c in found):,.0f} events/s, {_spread(speed)} of local speed"
        )


_LINES = {"transport": "files", "layout": "wrapped"}


def compare_listings(files: int, rounds: int, server: str) -> None:
    """Runs with ten new Capture files beside few and beside many that were read."""
    with ExitStack() as running:
        servers = None if server == _LOCAL else running.enter_context(running_servers())
        sides = {count: _side(servers and servers.new(server), count) for count in (_FEW, files)}
        mirrors, bodies = {}, {count: ces_bodies(files + _NEW * (rounds + 1), 0, 1, _TABLES) for count in sides}
        # All windows end before now; those of the measured runs are of today.
        begin = datetime.now(UTC).replace(second=0, microsecond=0) - _WINDOW * (files + _NEW * (rounds + 2))
        at = {count: (files - count) for count in sides}
        first = dict(at)
        for count, (deliver, side) in sides.items():
            _deliver(deliver, begin, at[count], islice(bodies[count], count))
            at[count] += count
            mirrors[count] = mirror_of(ROOT / "work" / str(count), side, {"transport": "capture"})
            cost, read = run(mirrors[count])
            assert read == count, (count, read)
            print(f"{count:,} files read at first: {cost.wall:.1f} s, {cost.cpu:.1f} CPU s", flush=True)
        costs: dict[int, list[Cost]] = {count: [] for count in sides}
        for turn in range(-1, rounds):
            for count in list(sides)[:: 1 if turn % 2 else -1]:
                _deliver(sides[count][0], begin, at[count], islice(bodies[count], _NEW))
                at[count] += _NEW
                cost, read = run(mirrors[count])
                assert read == _NEW, (count, read, at[count] - first[count])
                if turn >= 0:
                    costs[count].append(cost)
                    print(f"round {turn + 1}: beside {count:,}: {cost.wall:.2f} s, {cost.cpu:.2f} CPU s", flush=True)
        more = [many.wall - few.wall for few, many in zip(costs[_FEW], costs[files], strict=True)]
        for count, found in costs.items():
            print(f"{_NEW} new beside {count:,}: {_spread([c.wall for c in found])} s")
        print(f"more beside {files:,} than beside {_FEW}: {_spread(more)} s; {versions()}")


def _side(storage: Storage | None, count: int) -> tuple[Callable[[str, bytes], Any], Side]:
    """How files get into the source of a side, by default one on local paths; and the side."""
    if storage is not None:
        place = storage.place("stream")
        return lambda name, content: place.store.create(f"{place.key}/{name}", content), stored(
            storage, f"store{count}", str(count)
        )
    folder = ROOT / "files" / str(count)
    shutil.rmtree(folder, ignore_errors=True)

    def deliver(name: str, content: bytes) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)

    return deliver, Side(str(count), {"path": str(folder)}, str(ROOT / "work" / str(count) / "log"))


def _deliver(deliver: Callable[[str, bytes], Any], begin: datetime, first: int, bodies: Iterator[bytes]) -> None:
    def put(number: int, body: bytes) -> None:
        window = begin + _WINDOW * number
        buffer = io.BytesIO()
        record = {
            "SequenceNumber": number,
            "Offset": str(number * 4096),
            "EnqueuedTimeUtc": f"{window:%m/%d/%Y %I:%M:%S %p}",
            "SystemProperties": {},
            "Properties": {},
            "Body": body,
        }
        fastavro.writer(buffer, EVENT_DATA, [record])
        deliver(f"ns/hub/0/{window:%Y/%m/%d/%H/%M/%S}.avro", buffer.getvalue())

    with ThreadPoolExecutor(4) as pool:
        for done in pool.map(put, *zip(*enumerate(bodies, first), strict=True)):
            assert done is None


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--files", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--latency-ms", type=int, default=5)
    parser.add_argument(
        "--server", choices=(*KINDS, _LOCAL), default="azure", help="of --files: Azurite, moto as S3, local paths"
    )
    parser.add_argument("--apart", action="store_true", help="runs on one core, servers on another")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    if arguments.files:
        compare_listings(arguments.files, arguments.rounds, arguments.server)
    else:
        compare_runs(arguments.events, arguments.rounds, arguments.latency_ms, arguments.apart)


if __name__ == "__main__":
    main()
