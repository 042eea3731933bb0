"""``python -m landing_zone_acceptance MODULE:CLASS``: let a writer do the exercises, and print its certificate.

Exit codes: 0 every exercise ended right, or blocked and said so; 1 some did not; 2 the call is wrong.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from landing_zone_acceptance.certificate import certificate, examine
from landing_zone_acceptance.exercises import EXERCISES
from landing_zone_acceptance.judge import Verdict
from landing_zone_acceptance.world import Mode
from landing_zone_acceptance.writer import Adapter

_KNOWN = {"naive": "naive:NaiveWriter", "open_mirroring": "open_mirroring:OpenMirroring"}


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="landing_zone_acceptance", description=__doc__)
    parser.add_argument("writer", help=f"an adapter as MODULE:CLASS, or one of {', '.join(_KNOWN)}")
    parser.add_argument("--mode", choices=[*Mode], action="append", help="default: both")
    parser.add_argument("--exercise", type=int, choices=range(1, len(EXERCISES) + 1), action="append", metavar="N")
    arguments = parser.parse_args(argv)
    adapter = _adapter(arguments.writer)
    modes = [Mode(mode) for mode in arguments.mode or Mode]
    exercises = [EXERCISES[number - 1] for number in arguments.exercise or range(1, len(EXERCISES) + 1)]
    results = []
    with TemporaryDirectory(prefix="acceptance-") as folder:
        for result in examine(Path(folder), adapter, modes, exercises):
            print(f"{result.title}, {result.mode}: {result.verdict}", file=sys.stderr, flush=True)
            results.append(result)
    print(certificate(adapter.name, results), end="")
    return int(any(result.verdict > Verdict.BLOCKS for result in results))


def _adapter(named: str) -> type[Adapter]:
    known = f"landing_zone_acceptance.adapters.{_KNOWN[named]}" if named in _KNOWN else named
    module, _, name = known.partition(":")
    found = getattr(import_module(module), name)
    assert isinstance(found, type) and issubclass(found, Adapter)
    return found


if __name__ == "__main__":
    sys.exit(main())
