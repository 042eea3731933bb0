"""Times publishing into OneLake at a given latency per call, beside plain writers of the same rows.

``make bench-publish STORE=onelake``. The emulator serves in a process of its own, over TLS, and delays every call by
5 ms, then by 50 ms. The real job publishes a third of the events, then the second and the last third, then nothing. In
the same run deltalake writes the resulting files into a local folder, and the Azure SDK sends them one after another:
create, append, flush, rename. Neither plans, checks or remembers anything. At the end it measures the cost of one more
active table.

CPU is that of the job without the emulator. The emulator shares the machine, so its CPU is reported beside it: its
Python takes about a millisecond a call, one call after another, so with many tables part of the wall time is its own.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from ssl import create_default_context
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psutil
import pyarrow.parquet as pq

from benchmarks.generate import ROOT, source_folder
from benchmarks.measure import BUSY, Cost, measured, versions
from benchmarks.mirrors import mirror_file

_CERTIFICATE = ROOT / "certificate.pem"
"""Of the emulator that serves now. Processes learn of it once, so its path stays."""
_STORE_VERBS = ("create", "append", "flush", "rename", "read", "properties", "list", "delete")
_IN_FLIGHT = 32


class Emulator(NamedTuple):
    """An emulator in a process of its own."""

    url: str
    pid: int

    def cpu(self) -> float:
        """CPU seconds that it has used, which no real store would take from this machine."""
        times = psutil.Process(self.pid).cpu_times()
        return times.user + times.system

    def ask(self, method: str, path: str, **content: Any) -> dict[str, Any]:
        """Its control endpoint's answer."""
        data = json.dumps(content).encode() if content else (b"" if method == "POST" else None)
        request = urllib.request.Request(f"{self.url}/_emulator/{path}", data=data, method=method)
        with urllib.request.urlopen(request, context=create_default_context(cafile=_CERTIFICATE)) as response:
            body = response.read()
        answer: dict[str, Any] = json.loads(body) if body else {}
        return answer

    def calls(self) -> dict[str, int]:
        """The calls to the store since they were counted last, by verb; counts from zero again."""
        found = self.ask("GET", "calls")["calls"]
        self.ask("DELETE", "calls")
        return {verb: found[verb] for verb in _STORE_VERBS if verb in found}


@contextmanager
def emulator(folder: Path) -> Iterator[Emulator]:
    """An emulator with its landing zone in ``folder/zone``; the connection ``lake`` leads to it."""
    folders = ["--landing-zone", str(folder / "zone"), "--tables", str(folder / "tables")]
    command = [sys.executable, "-m", "fabric_emulator.command_line", "serve", *folders, "--port", "0", "--tls"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            _, url, *said = process.stdout.readline().split()
            announced = dict(word.split("=") for word in said)
            shutil.copy(announced["certificate"], _CERTIFICATE)
            endpoints = {"dfs_endpoint": url, "fabric_endpoint": url, "authority": url}
            login = {"conn_type": "open_mirroring_onelake", "login": "bench", "password": "any"}
            os.environ["AIRFLOW_CONN_LAKE"] = json.dumps(
                {**login, "extra": {"tenant_id": "tenant", "timeout_seconds": 60, **endpoints}}
            )
            yield Emulator(url, process.pid)
        finally:
            process.terminate()


class Run(NamedTuple):
    """One run of the job: its cost, the rows and files that it published, for how many tables, and its calls.

    *store* is the emulator's CPU, which is not in the cost.
    """

    cost: Cost
    store: float
    rows: int
    files: int
    tables: int
    calls: Mapping[str, int]


_RUNS = ("new tables", "known tables", "settled tables", "nothing new")


def publish_in_thirds(changes: int, tables: int, work: Path, served: Emulator, latency: float) -> list[Run]:
    """The job on a fresh zone: a third of the events, which founds the tables, the others one by one, and nothing.

    The second run reads each table's metadata, which it has not seen before; from the third on it is known.
    """
    from open_mirroring.config import load_mirror
    from open_mirroring.ledger import open_ledger
    from open_mirroring.ledger.reading import LedgerReader
    from spark_jobs.extract_changes import extract
    from spark_jobs.publish.changes import publish
    from spark_jobs.runtime.session import build_session

    lines = [line for part in sorted(source_folder(changes, "bare", tables).iterdir()) for line in part.open("rb")]
    source = work / "source"
    source.mkdir(parents=True)
    zone = {"store": "onelake", "workspace": "emulator", "item": "mirror.MirroredDatabase", "connection": "lake"}
    mirror = load_mirror(mirror_file(work, source, "bare", tables, landing_zone=zone))
    ledger, spark = open_ledger(mirror.ledger_url()), build_session("bench", cores=2)
    reader, runs = LedgerReader(ledger, mirror.name), list[Run]()
    for at in range(len(_RUNS)):
        part = lines[at * len(lines) // 3 : (at + 1) * len(lines) // 3]
        if part:
            (source / f"{at}.jsonl").write_bytes(b"".join(part))
            extract(mirror, ledger, spark)
        served.ask("POST", "latency", seconds=latency)
        served.calls()
        store = served.cpu()
        with measured(without=[served.pid]) as cost:
            published = publish(mirror, ledger, spark)
        store = served.cpu() - store
        calls = served.calls()
        served.ask("POST", "latency", seconds=0)
        if published.stopped or published.held:
            raise SystemExit(f"the job published not all: {published}")
        states = reader.tables()
        rows = sum(
            file.rows
            for source_name, numbers in published.files.items()
            for file in reader.published(states[source_name].id, 1)
            if file.number in numbers
        )
        runs.append(Run(cost, store, rows, sum(map(len, published.files.values())), len(published.files), calls))
    return runs


def write_deltas(files: Sequence[Path], target: Path) -> Cost:
    """The rows of these files to a Delta table each in a local folder; reading them does not count."""
    from deltalake import write_deltalake

    tables = [pq.read_table(file) for file in files]
    with measured() as cost:
        for at, table in enumerate(tables):
            write_deltalake(str(target / f"{at}"), table)
    return cost


def send_one_by_one(files: Sequence[Path], served: Emulator, latency: float) -> Cost:
    """These files to the store by the Azure SDK, one after another; reading them from the disk does not count."""
    from azure.core import MatchConditions
    from azure.identity import ClientSecretCredential
    from azure.storage.filedatalake import DataLakeServiceClient

    trust = {"connection_verify": str(_CERTIFICATE)}
    login = {"authority": served.url, "disable_instance_discovery": True, **trust}
    credential = ClientSecretCredential("tenant", "bench", "any", **login)
    contents = [file.read_bytes() for file in files]
    folder = "mirror.MirroredDatabase/Files/LandingZone/sent_by_sdk"
    served.ask("POST", "latency", seconds=latency)
    with (
        DataLakeServiceClient(served.url, credential=credential, **trust) as service,
        measured(without=[served.pid]) as cost,
    ):
        workspace = service.get_file_system_client("emulator")
        for number, content in enumerate(contents, 1):
            staged = workspace.get_file_client(f"{folder}/_stage/{number}")
            staged.create_file(match_condition=MatchConditions.IfMissing)
            staged.append_data(content, 0)
            staged.flush_data(len(content))
            name = f"emulator/{folder}/{number:020d}.parquet"
            staged.rename_file(name, match_condition=MatchConditions.IfMissing)
    served.ask("POST", "latency", seconds=0)
    return cost


def compare(changes: int, tables: int, latencies: Sequence[float]) -> None:
    """Rows per second and calls per table of the job, beside the plain writers."""
    print("| latency ms | who | rows | tables | files | wall s | rows/s | CPU s | others | calls per table |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for latency in latencies:
        with _fresh() as work, emulator(work) as served:
            runs = publish_in_thirds(changes, tables, work, served, latency)
            files = sorted(path for path in (work / "zone").rglob("*.parquet") if path.stem.isdigit())
            rows = sum(pq.read_metadata(file).num_rows for file in files)
            beside = {
                "deltalake, local": write_deltas(files, work / "delta"),
                "Azure SDK, one by one": send_one_by_one(files, served, latency),
            }
            for who, run in zip(_RUNS, runs, strict=True):
                calls = ", ".join(f"{verb} {count / max(1, run.tables):.1f}" for verb, count in run.calls.items())
                _print(latency, f"job, {who}", run.rows, run.tables, run.files, run.cost, calls)
            sent = ", ".join(f"{verb} {count / tables:.1f}" for verb, count in served.calls().items())
            for who, cost in beside.items():
                _print(latency, who, rows, tables, len(files), cost, sent if "SDK" in who else "")


def _print(latency: float, who: str, rows: int, tables: int, files: int, cost: Cost, calls: str) -> None:
    busy = f"{cost.others:.2f}{' busy' if cost.others > BUSY else ''}"
    print(
        f"| {1000 * latency:.0f} | {who} | {rows:,} | {tables} | {files} | {cost.wall:.2f} "
        f"| {rows / cost.wall:,.0f} | {cost.cpu:.2f} | {busy} | {calls} |",
        flush=True,
    )


def cost_of_a_table(few: int, many: int, changes: int, latencies: Sequence[float]) -> None:
    """What one more active table of so many changes costs.

    The latency's share is latency × calls ÷ the calls in flight together; what is left is to be at most 10 ms. It still
    has the emulator's work in it, as far as that did not run beside the job's: its CPU stands in a column of its own.
    """
    print(f"\none more active table of {changes} changes a run, from {few} and {many} of them")
    print("| latency ms | run | wall ms | latency's share ms | left ms | CPU ms | emulator's CPU ms | calls | others |")
    print("|---|---|---|---|---|---|---|---|---|")
    for latency in latencies:
        runs: list[list[Run]] = []
        for tables in (few, many):
            with _fresh() as work, emulator(work) as served:
                runs.append(publish_in_thirds(3 * tables * changes, tables, work, served, latency))
        for who, less, more in zip(_RUNS, *runs, strict=True):
            added = more.tables - less.tables or many - few
            wall = 1000 * (more.cost.wall - less.cost.wall) / added
            cpu = 1000 * (more.cost.cpu - less.cost.cpu) / added
            calls = (sum(more.calls.values()) - sum(less.calls.values())) / added
            store = 1000 * (more.store - less.store) / added
            share = 1000 * latency * calls / _IN_FLIGHT
            others = max(less.cost.others, more.cost.others)
            print(
                f"| {1000 * latency:.0f} | {who} | {wall:.1f} | {share:.1f} | {wall - share:.1f} "
                f"| {cpu:.1f} | {store:.1f} | {calls:.2f} | {others:.2f}{' busy' if others > BUSY else ''} |",
                flush=True,
            )


@contextmanager
def _fresh() -> Iterator[Path]:
    work = ROOT / "work" / "onelake"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    yield work
    shutil.rmtree(work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=300_000)
    parser.add_argument("--tables", type=int, default=5)
    parser.add_argument("--latency", type=float, nargs="+", default=[5.0, 50.0], help="milliseconds of every call")
    parser.add_argument("--few", type=int, default=20)
    parser.add_argument("--many", type=int, default=120)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    latencies = [latency / 1000 for latency in arguments.latency]
    with _fresh() as work, emulator(work) as served:
        publish_in_thirds(30_000, 5, work, served, 0.0)
    print(f"{arguments.changes:,} changes, {arguments.tables} tables; {versions()}")
    compare(arguments.changes, arguments.tables, latencies)
    cost_of_a_table(arguments.few, arguments.many, 10, latencies)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).resolve().parents[1]))
    os.environ["SSL_CERT_FILE"] = str(_CERTIFICATE)
    main()
