"""Shows how costs grow: loads and changes by their rows, a tick by the batches of its log and by the idle tables.

``make bench-growth``, once per figure, for half an hour and more; ``ARGS="--most 10 --batches 0"`` is shorter.
Linear is: the same microseconds a row. Writes RESULTS.md and docs/images/growth.svg.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import publish
from benchmarks.generate import ROOT, source_folder
from benchmarks.loads import filled, job
from benchmarks.many_tables import Took
from benchmarks.measure import Cost, whole
from benchmarks.mirrors import connect, mirror_file
from benchmarks.pairs import CHECKOUT, write_results
from benchmarks.small_runs import EVENTS, Mirror
from open_mirroring.landing_zone.layout import PROCESSED_FOLDER

_MILLION = 1_000_000
_ACTIVE = 5
_LOOKS = 20
_KEPT = 100
"""The source keeps so many files."""
_PLOT = CHECKOUT / "docs" / "images" / "growth.svg"


def loads(rows: Sequence[int]) -> Iterator[tuple[int, Cost]]:
    """Initial loads of a table in PostgreSQL."""
    from tests.postgres import running_postgres

    for count in rows:
        with running_postgres() as server:
            filled(server, count)
            connect("shop", server)
            yield count, whole(job())[0]


def extractions(events: Sequence[int]) -> Iterator[tuple[int, Cost]]:
    """Extractions of change events from files; behind the first million the same rows change again."""
    for count in events:
        work = ROOT / "work" / "growth"
        shutil.rmtree(work, ignore_errors=True)
        file = mirror_file(work, source_folder(count, "bare"), "bare", 5)
        yield count, whole(publish.command("extract_changes", file))[0]


def publications(events: Sequence[int]) -> Iterator[tuple[int, Cost]]:
    """Publications of what :func:`extractions` reads."""
    for count in events:
        yield count, whole(publish.job(publish.extracted(count, 5)))[0]


def ticks(batches: Sequence[int], home: Path) -> Iterator[tuple[int, Took]]:
    """Seconds of a tick of 100 events in a running process, behind so many batches: medians."""
    from spark_jobs.cli.command_line import main

    mirror, took = Mirror(home), list[Took]()
    for number in range(1, max(batches) + 1):
        mirror.deliver(f"{number:06d}", number, EVENTS)
        began = time.monotonic(), time.process_time()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            if code := main(["tick", str(mirror.file)]):
                raise SystemExit(f"tick {number} ended with {code}")
        took.append(Took(time.monotonic() - began[0], time.process_time() - began[1]))
        if number in batches:
            yield number, _medians(took[-_LOOKS:])
        _apply(home / "build" / "small" / "landing_zone")
        # A hub forgets, too: what a folder of many files costs is not what is asked for here.
        (home / "source" / f"{number - _KEPT:06d}.jsonl").unlink(missing_ok=True)


def _apply(zone: Path) -> None:
    """Move published files as the service does, all but the last one of each table."""
    for folder in zone.glob("*.schema/*"):
        moved = zone / PROCESSED_FOLDER / folder.relative_to(zone)
        moved.mkdir(parents=True, exist_ok=True)
        for file in sorted(folder.glob("0*.parquet"))[:-1]:
            file.rename(moved / file.name)


def _medians(took: Sequence[Took]) -> Took:
    return Took(*map(statistics.median, zip(*took, strict=True)))


def idle_tables(tables: Sequence[int], home: Path, rounds: int = 5) -> Iterator[tuple[int, Took]]:
    """Seconds of a whole `tick` of 100 events of five tables, of so many: medians."""
    for count in tables:
        mirror = Mirror(home / str(count), tables=count)
        took = list[Took]()
        for number in range(1, rounds + 1):
            before = getrusage(RUSAGE_CHILDREN)
            wall, after = mirror.tick(number), getrusage(RUSAGE_CHILDREN)
            took.append(Took(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
        yield count, _medians(took)


def _lines(title: str, unit: str, found: Sequence[tuple[int, Cost]]) -> list[str]:
    return [
        f"| {title} | {count:,} {unit} | {cost.wall:.1f} s | {1e6 * cost.wall / count:.2f} µs | "
        f"{1e6 * cost.cpu / count:.2f} µs | {cost.peak / 2**20:,.0f} MB |"
        for count, cost in found
    ]


def plot(found: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """Seconds over rows, both in powers of ten, as SVG; straight lines of one slope are linear growth."""
    import math

    points = [point for line in found.values() for point in line]
    lows, highs = ([math.log10(edge(axis)) for axis in zip(*points, strict=True)] for edge in (min, max))

    def at(point: tuple[int, float]) -> str:
        shares = [(math.log10(v) - low) / ((high - low) or 1) for v, low, high in zip(point, lows, highs, strict=True)]
        return f"{60 + 500 * shares[0]:.0f},{330 - 290 * shares[1]:.0f}"

    colours = ("#1f6feb", "#cf222e", "#1a7f37", "#9a6700")
    drawn = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 380" font-family="sans-serif" font-size="13">']
    drawn.append('<rect width="640" height="380" fill="#fff"/>')
    for number, ((title, line), colour) in enumerate(zip(found.items(), colours, strict=False)):
        drawn.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{" ".join(map(at, line))}"/>')
        for point in line:
            x, y = at(point).split(",")
            drawn.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>')
            drawn.append(f'<text x="{int(x) + 6}" y="{int(y) + 14}">{point[0]:,}: {point[1]:.1f} s</text>')
        drawn.append(f'<text x="70" y="{24 + 18 * number}" fill="{colour}">{title}</text>')
    return "\n".join([*drawn, "</svg>", ""])


def rows(most: int) -> None:
    """Measure loads, extractions and publications up to so many millions of rows; write table and plot."""
    sizes = [size * _MILLION for size in (1, 10, 100) if size <= most]
    events = [size for size in sizes if size <= 10 * _MILLION]
    measures: Mapping[str, tuple[str, Callable[[], Iterator[tuple[int, Cost]]]]] = {
        "initial load": ("rows", lambda: loads(sizes)),
        "extract": ("events", lambda: extractions(events)),
        "publish": ("changes", lambda: publications(events)),
    }
    lines = ["| | Size | Wall | Wall a row | CPU a row | Peak |", "|---|---|---|---|---|---|"]
    plotted: dict[str, list[tuple[int, float]]] = {}
    for title, (unit, measure) in measures.items():
        found = list(measure())
        lines += _lines(title, unit, found)
        plotted[title] = [(count, cost.wall) for count, cost in found]
        print("\n".join(_lines(title, unit, found)), flush=True)
    write_results("growth by rows", "\n".join(lines))
    _PLOT.write_text(plot(plotted), encoding="utf-8")


def batches(most: int) -> None:
    """Measure ticks behind up to so many batches, and write the table."""
    with tempfile.TemporaryDirectory(prefix="growth-") as folder:
        timed = [(f"{n:,} batches", s) for n, s in ticks([most // 100, most // 10, most], Path(folder, "log"))]
    _write_ticks("growth by batches", "tick in a running process, log of", timed)


def tables(most: int) -> None:
    """Measure ticks of a few active tables among up to so many, and write the table."""
    with tempfile.TemporaryDirectory(prefix="growth-") as folder:
        timed = [(f"{n:,} tables", s) for n, s in idle_tables([most // 100, most], Path(folder, "tables"))]
    _write_ticks("growth by tables", f"tick, {_ACTIVE} tables with changes, of", timed)


def _write_ticks(name: str, what: str, timed: Sequence[tuple[str, Took]]) -> None:
    lines = [f"| {what} | Seconds | of CPU |", "|---|---|---|"]
    lines += [f"| {size} | {took.wall:.2f} | {took.cpu:.2f} |" for size, took in timed]
    write_results(name, "\n".join(lines))
    print("\n".join(lines), flush=True)


def main() -> None:
    """Measure each size once, and write tables and plot."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=100, help="millions of rows; 0: none")
    parser.add_argument("--batches", type=int, default=10_000, help="0: none")
    parser.add_argument("--tables", type=int, default=5_000, help="0: none")
    given = parser.parse_args()
    for measure, most in ((rows, given.most), (batches, given.batches), (tables, given.tables)):
        if most:
            measure(most)


if __name__ == "__main__":
    main()
