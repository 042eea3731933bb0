"""Times a tick, from change events in files to the landing zone, next to a writer in thirty lines of pandas.

``make bench-tick EVENTS=300000``. Each is a complete process, in turns on the same events. The writer checks,
remembers and types nothing; both write the newest change of each key.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.generate import ROOT, source_folder
from benchmarks.mirrors import mirror_file, other_tool
from benchmarks.pairs import CHECKOUT, Program, compare

_WORK = ROOT / "tick"


def job(source: Path) -> list[str]:
    """The command of a tick of a fresh mirror."""
    shutil.rmtree(_WORK, ignore_errors=True)
    file = mirror_file(_WORK, source, "bare", 5)
    return [str(CHECKOUT / ".venv" / "bin" / "open-mirroring"), "tick", str(file)]


def _published(output: str) -> int:
    import pyarrow.parquet as pq

    files = (_WORK / "zone").rglob("0*.parquet")
    return sum(int(pq.read_metadata(file).num_rows) for file in files if "_stage" not in str(file.parent))


def main() -> None:
    """Measure in turns, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    source = source_folder(given.events, "bare")
    other = other_tool("pandas", str(source), ROOT)
    rows = int(subprocess.run(other, capture_output=True, text=True, check=True).stdout)
    programs = {"`tick`": Program(lambda: job(source), _published), "pandas, thirty lines": Program(lambda: other)}
    what = f"{given.events:,} change events of 5 tables in JSON lines, {rows:,} rows into the landing zone"
    compare("tick", what, programs, given.rounds, of=rows, unit="rows")


if __name__ == "__main__":
    main()
