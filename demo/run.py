"""``make demo`` and ``make ui``: ``python -m demo.run [--source FORMAT] [--keep] [--folder DIR] [--runs N]``.

A shop's database sends its changes in one of the formats. A real Airflow loads first rows and runs replication some
times, the emulator applies the files, and at the end a judge compares source and mirrored tables cell by cell.

Exit codes: 0 all tables are equal and have met every kind of event that the format has; 1 not so, or something
failed; 2 the call is wrong; 130 ended by Ctrl-C before the proof.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from demo.failures import DemoFailed, tail
from demo.place import ROOT, claim
from demo.source_formats import FORMATS
from demo.story import Story

_NEXT = "next: `make ui` shows such a run on Airflow's pages; docs/tutorial.md leads to a table of your own"
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LAG = "lag: seconds from the last delivery of events to the last change of the mirrored table"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    arguments = _parser().parse_args(argv)
    # Also where the caller had them ignored, as a shell does for what it starts with `&`; children inherit that.
    for number in _ENDING:
        signal.signal(number, _interrupt)
    started = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started:6.1f} s] {text}", flush=True)

    proved = False
    code = 1
    try:
        with claim(arguments.folder) as place:
            say(f"everything of this demo is in {place.root}")
            story = Story(
                place,
                say,
                runs=arguments.runs,
                seed=arguments.seed,
                source_format=FORMATS[arguments.source],
                keep=arguments.keep,
            )
            try:
                outcome = story.prove()
                print(f"\n{outcome.text}\n", flush=True)
                print(_LAG, flush=True)
                proved = not outcome.objections
                code = 0 if proved else 1
                for objection in outcome.objections:
                    print(f"NOT PROVED: {objection}", flush=True)
                if arguments.keep:
                    story.go_on()
                elif proved:
                    print(_NEXT, flush=True)
            finally:
                # A second Ctrl-C while it ends would leave processes behind.
                _ignore_signals()
                story.end()
    except DemoFailed as failure:
        code = 1
        print(f"\nThe demo failed: {failure.what}", file=sys.stderr)
        if failure.log is not None:
            print(f"\nThe end of {failure.log}:\n{tail(failure.log)}", file=sys.stderr)
    except KeyboardInterrupt:
        # `make ui` is ended like this.
        code = code if proved else 130
    say("proved: every table is equal" if code == 0 else f"not proved; exit code {code}")
    return code


def _interrupt(number: int, frame: FrameType | None) -> None:
    # At once: a second signal that follows the first would end this program before it has ended the others.
    _ignore_signals()
    raise KeyboardInterrupt


def _ignore_signals() -> None:
    for number in _ENDING:
        # Not SIG_IGN: Python shows a traceback for a signal that has come already.
        signal.signal(number, _let_pass)


def _let_pass(number: int, frame: FrameType | None) -> None:
    pass


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "demo.run", description="From a shop's changes to mirrored tables that equal them."
    )
    parser.add_argument("--source", choices=FORMATS, default="ces", help="the source's format (default: ces)")
    parser.add_argument("--keep", action="store_true", help="leave it running, with Airflow's pages to look at")
    parser.add_argument(
        "--folder",
        type=Path,
        default=ROOT / "build" / "demo",
        metavar="DIR",
        help="the demo's own folder, re-created (default: build/demo; the next free one while it is in use)",
    )
    parser.add_argument("--runs", type=_runs, default=3, metavar="N", help="replicate runs, at least 2 (default: 3)")
    parser.add_argument("--seed", type=int, default=1, help="decides all that happens in the shop (default: 1)")
    return parser


def _runs(text: str) -> int:
    number = int(text)
    if number < 2:
        raise argparse.ArgumentTypeError("an event that comes late across runs needs 2 of them")
    return number


if __name__ == "__main__":
    raise SystemExit(main())
