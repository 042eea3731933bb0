"""Runs programs in turns, each a complete process, and writes what they cost into RESULTS.md.

A figure that counts is a ratio: of each round the other program's cost over ours, their median, lowest and highest.
With ``BENCH_CHECK=1`` nothing is written: each ratio is compared with the recorded one, and what fell is named.
"""

from __future__ import annotations

import os
import statistics
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import BUSY, Cost, whole

CHECKOUT = Path(__file__).resolve().parents[1]
RESULTS = CHECKOUT / "benchmarks" / "RESULTS.md"
_CHECKS = bool(os.environ.get("BENCH_CHECK"))
_FELL = 0.9
"""A ratio below this share of the recorded one is worth a look."""


def last_number(output: str) -> int:
    """The number at the end of a program's output."""
    return int(output.split()[-1])


class Program(NamedTuple):
    """*prepare* returns the command of the next run and is not measured; *count* reads the number in its output."""

    prepare: Callable[[], Sequence[str]]
    count: Callable[[str], int] = last_number


def compare(name: str, what: str, programs: Mapping[str, Program], rounds: int, *, of: int, unit: str) -> None:
    """Run the programs in turns, the first being ours, and write their table into RESULTS.md.

    Args:
        name: of the table's marks in RESULTS.md.
        what: the caption: what was measured.
        programs: by their names in the table.
        rounds: how often each runs.
        of: the number that each program has to report.
        unit: of that number, in the plural.

    Raises:
        SystemExit: a program failed, or reported another number.
    """
    costs: dict[str, list[Cost]] = {program: [] for program in programs}
    for turn in range(rounds):
        for label, program in list(programs.items())[:: -1 if turn % 2 else 1]:
            cost, output = whole(program.prepare())
            if (found := program.count(output)) != of:
                raise SystemExit(f"{label} reported {found} of {of} {unit}")
            costs[label].append(cost)
            spent = f"{cost.wall:.2f} s, {cost.cpu:.2f} CPU s, {cost.peak / 2**20:,.0f} MB, others {cost.others:.0%}"
            print(f"round {turn + 1}: {label}: {spent}", flush=True)
    write(name, what, compared(costs, of, unit), [cost for each in costs.values() for cost in each], rounds)


def compared(costs: Mapping[str, Sequence[Cost]], of: int, unit: str) -> list[str]:
    """The lines of a table of programs, the first being ours."""
    lines = [f"| | Seconds | {unit}/s | CPU s | Peak MB | Time ÷ ours | CPU ÷ ours |", "|---|---|---|---|---|---|---|"]
    ours = next(iter(costs.values()))
    for label, each in costs.items():
        wall = [cost.wall for cost in each]
        cells = [label, spread(wall, 2), f"{of / statistics.median(wall):,.0f}", spread([c.cpu for c in each], 2)]
        cells.append(f"{max(cost.peak for cost in each) / 2**20:,.0f}")
        ratios = ["", ""]
        if each is not ours:
            both = list(zip(each, ours, strict=True))
            ratios = [spread([o.wall / m.wall for o, m in both], 2), spread([o.cpu / m.cpu for o, m in both], 2)]
        lines.append(f"| {' | '.join([*cells, *ratios])} |")
    return lines


def spread(values: Sequence[float], digits: int) -> str:
    """Median, with lowest and highest in brackets."""
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:,.{digits}f} ({low:,.{digits}f}–{high:,.{digits}f})"


def write(name: str, what: str, lines: Sequence[str], costs: Sequence[Cost], rounds: int) -> None:
    """Write a table and its conditions between its marks in RESULTS.md, and print them."""
    others = max(cost.others for cost in costs)
    busy = " (busy: judge by CPU)" if others > BUSY else ""
    conditions = f"{what}. {rounds} rounds; others used at most {others:.0%} of the machine{busy}; {_commit()}."
    print("\n".join([conditions, *lines]))
    write_results(name, "\n".join([conditions, "", *lines]))
    if _CHECKS and (found := list(_fallen(lines, _recorded(name).splitlines()))):
        raise SystemExit("\n".join([f"{name} fell by more than {1 - _FELL:.0%} against RESULTS.md:", *found]))


def _fallen(lines: Sequence[str], recorded: Sequence[str]) -> Iterator[str]:
    """The programs compared with which ours is slower than recorded, by time or by CPU."""
    before = dict(_ratios(recorded))
    for label, ratios in _ratios(lines):
        for kind, now, then in zip(("time", "CPU"), ratios, before.get(label, ratios), strict=True):
            if now < _FELL * then:
                yield f"- {kind} of {label} over ours: {now:.2f}, recorded {then:.2f}"


def _ratios(lines: Sequence[str]) -> Iterator[tuple[str, list[float]]]:
    for line in lines:
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if cells and cells[-1][:1].isdigit():
            yield cells[0], [float(cell.split()[0]) for cell in cells[-2:]]


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def _recorded(name: str) -> str:
    begin, end = _marks(name)
    return RESULTS.read_text(encoding="utf-8").partition(begin)[2].partition(end)[0]


def write_results(name: str, table: str) -> None:
    """Put a table into RESULTS.md, between the marks with its name."""
    begin, end = _marks(name)
    before, found, rest = RESULTS.read_text(encoding="utf-8").partition(begin)
    if _CHECKS or not found:
        return  # the figures of other sizes have no marks: they are only printed
    RESULTS.write_text(f"{before}{begin}\n{table}\n{end}{rest.partition(end)[2]}", encoding="utf-8")


def _commit() -> str:
    head = ["git", "-C", str(CHECKOUT), "describe", "--always", "--dirty", "--abbrev=8"]
    said = subprocess.run(head, capture_output=True, text=True, check=False).stdout.strip()
    return f"{said or 'no commit'}, {datetime.now(UTC):%Y-%m-%d}"
