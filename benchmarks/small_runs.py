"""Times what an operator waits for when little has changed: a tick over 100 events, one with nothing new, and `status`.

``make bench-small``. Each command is a whole process, start of Python included. The same 100 events are read in turns
by the job's own process and by Spark (``spark.start_above: 0``); with ``--earlier CHECKOUT`` also by the product of
another checkout. The table in RESULTS.md is written by this program.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.many_tables import event_of
from benchmarks.pairs import write_results

ROOT = Path(__file__).resolve().parents[1]
TABLES, EVENTS = 5, 100
_LINE = "import sys; from spark_jobs.cli.command_line import main; sys.exit(main(sys.argv[1:]))"


class Mirror:
    """A mirror that has run once.

    Args:
        home: its folder.
        checkout: whose product runs it.
        settings: further lines of its file.
        tables: how many it has; later changes are of the first five.
    """

    def __init__(self, home: Path, checkout: Path = ROOT, settings: str = "", tables: int = TABLES) -> None:
        self._home, self._checkout = home, checkout
        (home / "source").mkdir(parents=True)
        (home / "source" / "first.jsonl").write_text("".join(map(event_of, range(tables))), encoding="utf-8")
        self.file = home / "mirrors" / "small.yaml"
        source = "format: sqlserver-ces, transport: files, path: source, layout: bare"
        self.timed("init", str(self.file), "--source", source)
        self.file.write_text(self.file.read_text() + settings)
        self.timed("tick", str(self.file))

    def deliver(self, name: str, round_: int, events: int) -> None:
        """Inserts into the tables in turns, under keys of the round's own."""
        lines = []
        for at in range(events):
            line = event_of(at % TABLES)
            key, place = f"{round_ * 1000 + at + 1}", f"{at:020d}"
            line = line.replace(r"\\\"id\\\": \\\"1\\\"", rf"\\\"id\\\": \\\"{key}\\\"")
            # Each round commits later: a log of one transaction would be read again entirely for each change of it.
            line = re.sub(r":0000002C000000100001:\d{20}", f":0000002C{round_ + 0x100:08X}0001:{place}", line)
            line = line.replace(r"\"value\": \"1\"", rf"\"value\": \"{key}\"")
            lines.append(re.sub(r'"id": "[0-9a-f]{8}-', f'"id": "{(round_ + 1) * 1000 + at:08x}-', line, count=1))
        (self._home / "source" / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")

    def timed(self, *command: str) -> float:
        """Seconds of a command, which has to end well."""
        environment = {**os.environ, "OPEN_MIRRORING_HOME": str(self._home), "PYTHONPATH": str(self._checkout)}
        # As installed: a product that may not keep its compiled modules compiles them in every run.
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", _LINE, *command], env=environment, cwd=self._checkout, capture_output=True, text=True
        )
        took = time.monotonic() - began
        if done.returncode:
            raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return took

    def kept_running(self, rounds: Sequence[int]) -> list[float]:
        """Seconds of each batch of 100 events of one `tick --every 3s`, from its first line to its last."""
        command = [sys.executable, "-c", _LINE, "tick", str(self.file), "--every", "3s"]
        environment = {**os.environ, "OPEN_MIRRORING_HOME": str(self._home), "PYTHONPATH": str(self._checkout)}
        took, left = list[float](), list(rounds)
        with subprocess.Popen(
            command, env=environment, cwd=self._checkout, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as running:
            began, read = 0.0, False
            for line in running.stdout or ():
                if "reading the source" in line:
                    began, read = time.monotonic(), False
                read = read or line.startswith("Read: batch")
                if line.startswith("Published:"):
                    took += [time.monotonic() - began] * read
                    if not left:
                        running.terminate()
                        break
                    self.deliver(f"{left[0]:03d}", left.pop(0), EVENTS)
        return took

    def tick(self, round_: int) -> float:
        """Seconds of a tick over 100 new events."""
        self.deliver(f"{round_:03d}", round_, EVENTS)
        return self.timed("tick", str(self.file))


def shown(seconds: Sequence[float]) -> str:
    """Median, lowest and highest, for a table."""
    return f"{statistics.median(seconds):.2f} s ({min(seconds):.2f}–{max(seconds):.2f})"


def main() -> None:
    """Measure in turns, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--earlier", type=Path, metavar="CHECKOUT", help="an earlier version, with jars, to compare")
    given = parser.parse_args()
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="small-runs-") as folder:
        own = Mirror(Path(folder, "own"), ROOT)
        mirrors: Mapping[str, Mirror] = {
            "`tick`, 100 events": own,
            "… by Spark (`start_above: 0`)": Mirror(Path(folder, "spark"), ROOT, "spark: {start_above: 0}\n"),
            **({"… earlier version": Mirror(Path(folder, "earlier"), given.earlier)} if given.earlier else {}),
        }
        for round_ in range(1, given.rounds + 1):
            for name, mirror in mirrors.items():
                found.setdefault(name, []).append(mirror.tick(round_))
            for name, command in (("`tick`, nothing new", "tick"), ("`status`, one mirror", "status")):
                found.setdefault(name, []).append(own.timed(command, str(own.file)))
                if given.earlier:
                    late = mirrors["… earlier version"]
                    found.setdefault(f"{name}, earlier version", []).append(late.timed(command, str(late.file)))
        kept = own.kept_running(range(given.rounds + 1, 2 * given.rounds + 2))
        found["`tick --every`, 100 events, after its first batch"] = kept[1:]
    lines = [f"| {name} | {shown(seconds)} | {len(seconds)} |" for name, seconds in found.items()]
    table = "\n".join(["| Whole process | Median (lowest–highest) | Rounds |", "|---|---|---|", *lines])
    write_results("small runs", table)
    print(table)


if __name__ == "__main__":
    main()
