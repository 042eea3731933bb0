"""The command line ``open-mirroring``: the steps that Airflow runs, and what operators look at and decide.

Progress goes to standard error, the result to standard output. An expected error is printed as one text without a
traceback.
"""

from __future__ import annotations

import argparse
import difflib
import gc
import importlib
import logging
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from spark_jobs.beginning import SAMPLE
from spark_jobs.runtime.job_arguments import (
    add_interval_arguments,
    add_letter_arguments,
    add_made_anew_argument,
    add_repair_arguments,
    add_request_argument,
    add_reset_arguments,
    positive,
    stated,
)

if TYPE_CHECKING:
    from open_mirroring.errors import MirroringError

INTERRUPTED = 130
"""128 + SIGINT, as shells say it."""
_PROGRAM = "open-mirroring"
_ABOUT = """\
Carries change data into a Microsoft Fabric open mirrored database: exactly once, in order, provably complete.
FILE is a mirror file (mirrors/NAME.yaml). Secrets come from the environment, as AIRFLOW_CONN_<NAME>."""
_MORE = """\
a first run:
  open-mirroring init mirrors/shop.yaml --source 'format: sqlserver-ces, transport: files, path: data'
  open-mirroring check mirrors/shop.yaml
  open-mirroring initial-load mirrors/shop.yaml
  open-mirroring tick mirrors/shop.yaml
  open-mirroring status mirrors/shop.yaml

exit codes:
  0  done                          3  some tables are stopped, the others are done
  1  terminal error: read it       4  transient error: try again
  2  usage or mirror file wrong    5  on hold: the target lags, or something is awaited
  6  done, with losses: dead letters are open, or changes of a mirrored table were ignored
  7  prove: a table is not equal   130  interrupted: the next run goes on from there

Every run may be killed or repeated at any moment; the ledger decides what is next. The runbook (docs/runbook.md)
has a section for each code that stops or holds a table."""
_OURS = ("open_mirroring", "spark_jobs")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns one of :class:`~open_mirroring.operate.exit_codes.Exit`, or 130 when interrupted."""
    # What a command makes mostly lives to its end: to look for garbage in it took a tenth of a short run.
    gc.set_threshold(50_000)
    parser = _parser()
    if "_ARGCOMPLETE" in os.environ:
        # A shell asks how a line may go on; it is answered, and nothing else is done.
        import argcomplete

        argcomplete.autocomplete(parser)
    arguments = parser.parse_args(argv)
    every: float | None = getattr(arguments, "every", None)
    try:
        with _progress():
            return _run(arguments) if every is None else _again_and_again(arguments, every)
    except KeyboardInterrupt:
        return _failed("interrupted; the next run goes on from here", INTERRUPTED)
    except BrokenPipeError:
        # Whoever read our output has gone; Python must not try to flush what is left of it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _again_and_again(arguments: argparse.Namespace, every: float) -> NoReturn:
    """Run a command at a steady pace until interrupted. An error is reported, and the next round tries again."""
    watching = arguments.command == "status" and sys.stdout.isatty()
    while True:
        begun = time.monotonic()
        if watching:
            print("\x1b[2J\x1b[H", end="")
        _run(arguments)
        sys.stdout.flush()
        time.sleep(max(0.0, begun + every - time.monotonic()))


def _run(arguments: argparse.Namespace) -> int:
    # Imported when all else is said, so that help is quick and Ctrl-C is answered from the first moment on.
    from open_mirroring.config import ConfigError
    from open_mirroring.errors import MirroringError
    from open_mirroring.operate.exit_codes import Exit, exit_of

    module, _, function = arguments.run.partition(":")
    try:
        return int(getattr(importlib.import_module(f"spark_jobs.cli.{module}"), function)(arguments))
    except Exception as error:
        ours = error if isinstance(error, MirroringError) else _ours(error)
        if arguments.debug or ours is None:
            raise
        if isinstance(error, ConfigError):
            mistakes = f"{len(error.problems)} {'mistake' if len(error.problems) == 1 else 'mistakes'}"
            return _failed("\n".join([mistakes, *map(str, error.problems)]), Exit.USAGE)
        return _failed(str(ours), exit_of(ours))
    finally:
        if ledger := sys.modules.get("open_mirroring.ledger"):
            ledger.close_ledgers()


def _ours(error: Exception) -> MirroringError | None:
    # A command that needs no Spark tells its errors where no Spark is installed, too.
    if sys.modules.get("pyspark") is None:
        from open_mirroring.ledger.opening import system_error

        return system_error(error)
    from spark_jobs.runtime.job import told

    return told(error)


def _failed(text: str, code: int) -> int:
    print(f"{_PROGRAM}: {text}", file=sys.stderr)
    return code


class _Parser(argparse.ArgumentParser):
    """Says what a misspelled command was meant to be, in place of a list of all."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            near = difflib.get_close_matches(str(value), list(action.choices), 1)
            hint = f"did you mean {near[0]!r}?" if near else "`open-mirroring --help` lists all"
            raise argparse.ArgumentError(None, f"there is no command {value!r}; {hint}")
        super()._check_value(action, value)


class _Version(argparse.Action):
    """Prints the version; looked up when it is asked for, as that takes a while."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"{_PROGRAM} {version(_PROGRAM)}")
        parser.exit()


class _Commands:
    """Adds commands to a parser. Each names its function as ``module:function``, imported when it runs."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._commands = parser.add_subparsers(
            parser_class=argparse.ArgumentParser, dest="command", required=True, metavar="COMMAND"
        )

    def add(self, name: str, run: str, about: str) -> argparse.ArgumentParser:
        one = self._commands.add_parser(name, help=about, description=f"{about[:1].upper()}{about[1:]}.")
        one.set_defaults(run=run)
        one.add_argument("--debug", action="store_true", help="show the whole trace of an error")
        return one

    def on_file(self, name: str, run: str, about: str) -> argparse.ArgumentParser:
        one = self.add(name, run, about)
        one.add_argument("file", metavar="FILE", type=Path, help="the mirror file (mirrors/NAME.yaml)")
        return one

    def reporting(self, name: str, run: str, about: str) -> argparse.ArgumentParser:
        one = self.on_file(name, run, about)
        one.add_argument("--json", action="store_true", help="print the result as JSON")
        return one

    def working(self, name: str, run: str, about: str) -> argparse.ArgumentParser:
        one = self.reporting(name, run, about)
        one.add_argument("--tables", metavar="A,B", help="only these source tables (reading always takes all)")
        return one

    def deciding(self, name: str, run: str, about: str, *, table: bool = True) -> argparse.ArgumentParser:
        one = self.on_file(name, run, about)
        if table:
            one.add_argument("--table", required=True, metavar="NAME", help="its `source` in the mirror file")
        one.add_argument("--why", type=stated, required=True, metavar="TEXT", help="kept in the ledger's audit")
        add_request_argument(one)
        return one

    def resetting(self, name: str, about: str) -> argparse.ArgumentParser:
        one = self.on_file(name, f"resetting:{name.replace('-', '_')}", about)
        add_reset_arguments(one)
        one.add_argument("--request-only", action="store_true", help="record the request, and delete nothing yet")
        one.add_argument(
            "--target-says", choices=["gone", "back"], help="what you see at the target, where nothing else can tell"
        )
        return one


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = _Parser(_PROGRAM, description=_ABOUT, epilog=_MORE, formatter_class=raw)
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and end")
    commands = _Commands(parser)
    checked = commands.on_file("check", "checking:check", "report every mistake in a mirror file (or a folder of them)")
    about = f"compare it with what the source sends, too: about N messages are looked at (default {SAMPLE})"
    checked.add_argument("--sample", type=positive, nargs="?", const=SAMPLE, metavar="N", help=about)
    about = "and with the catalog of the source database"
    checked.add_argument("--database", metavar="CONNECTION", help=about)
    about = "write the tables that a source announces into a mirror file: keys, warnings, initial loads"
    _init_arguments(commands.on_file("init", "beginning:init", about))
    about = "examine Java, Spark, versions, clock, connections and rights; tells the way out of whatever is wrong"
    doctor = commands.add("doctor", "examining:doctor", about)
    doctor.add_argument("mirrors", nargs="*", type=Path, help="mirror files or folders, to be examined as well")
    doctor.add_argument("--json", action="store_true", help="print the result as JSON")
    about = "make the mirrored database, its tables' folders and first files, and start mirroring"
    commands.reporting("create", "creating:create", about)
    commands.working("initial-load", "working:initial_load", "load the tables' first rows; goes on where it stopped")
    ticks = commands.working("tick", "working:tick", "read what is new, publish what may be published, reconcile")
    ticks.add_argument(
        "--every", type=_length, metavar="TIME", help="again every TIME (60s, 5m, 1h), until interrupted"
    )
    back = commands.working("backfill", "working:backfill", "a tick that reads an interval of the source first")
    add_interval_arguments(back, required=True)
    commands.working("reconcile", "working:reconcile", "check every file, row and digest")
    about = "compare the source's tables with the mirrored ones, row by row"
    prove = commands.working("prove", "working:prove", about)
    prove.add_argument(
        "--export", type=Path, metavar="FOLDER", help="compare with an export: a file or folder per table, by its name"
    )
    prove.add_argument("--export-format", choices=["parquet", "csv", "qlik-full-load"], default="parquet")
    prove.add_argument(
        "--since", metavar="LSN", help="the last commit before the export began; none: nothing changed since"
    )
    prove.add_argument("--settle", type=float, metavar="SECONDS", help="between two looks (default: as the file says)")
    prove.add_argument("--looks", type=positive, metavar="N", help="at most so many (default: as the file says)")
    prove.add_argument(
        "--repair-plan", type=Path, metavar="NEWFILE", help="write the keys whose rows would have to be sent again"
    )
    prove.add_argument(
        "--correct", action="store_true", help="publish the rows of the keys that differ from the source once more"
    )
    prove.add_argument("--approved-by", type=stated, metavar="NAME", help="who approves that; kept in the audit")
    prove.add_argument("--why", type=stated, metavar="TEXT", help="and why")
    about = "move the horizon, drop the log below it, sweep what nothing refers to"
    commands.reporting("maintain", "working:maintain", about)
    about = "whether all is mirrored, how far every table is, what stops it, the way out"
    status = commands.reporting("status", "looking:status", about)
    status.add_argument("--wide", action="store_true", help="the four marks of every table, too")
    status.add_argument(
        "--watch", dest="every", nargs="?", const="5s", type=_length, metavar="TIME", help="again every TIME (5s)"
    )
    letters = commands.reporting("dead-letters", "letters:list_dead_letters", "list what could not be read or typed")
    letters.add_argument("--limit", type=positive, default=50, metavar="N", help="the newest N (default 50)")
    letters.add_argument(
        "--raw", type=Path, metavar="NEWFILE", help="write their contents into a new file, yours alone"
    )
    letters.add_argument("--all", action="store_true", help="those that were replayed, read again or accepted, too")
    about = "decode open dead letters again, by today's decoder and settings"
    again = commands.reporting("replay-dead-letters", "working:replay_dead_letters", about)
    add_letter_arguments(again)
    lost = commands.deciding(
        "accept-dead-letters", "deciding:accept_dead_letters", "accept dead letters as lost", table=False
    )
    add_letter_arguments(lost)
    lost.add_argument(
        "--letter", nargs=3, metavar=("BATCH", "ORIGIN", "PLACE"), help="this one, as `dead-letters --json` tells it"
    )
    commands.deciding("resume", "deciding:resume", "clear the stop of a table once its cause is mended")
    accept = commands.deciding("accept-epoch", "deciding:accept_epoch", "go on with a stream that began anew")
    accept.add_argument("--epoch", required=True, metavar="GUID", help="the stream's GUID, as the stop names it")
    about = "record that columns which newer rows lack were dropped at the source, or that one was renamed"
    schema = commands.deciding("accept-schema", "deciding:accept_schema", about).add_mutually_exclusive_group(
        required=True
    )
    schema.add_argument("--dropped", nargs="+", metavar="COLUMN", help="they were dropped: the table goes on")
    schema.add_argument("--renamed", metavar="OLD=NEW", help="it was renamed: the table waits to be loaded anew")
    about = "let a table be published that joined by a pattern which asks (new_tables: ask)"
    commands.deciding("accept-table", "deciding:accept_table", about)
    about = "build a table anew from the full load that its Qlik task sent again, and the changes behind it"
    commands.deciding("accept-reload", "deciding:accept_reload", about)
    about = "clear the stop of a mirror's reading"
    commands.deciding("resume-extraction", "deciding:resume_extraction", about, table=False)
    about = "drop one table at the target and build it anew; goes on where it stopped"
    again = commands.resetting("reload-table", about)
    add_made_anew_argument(again)
    again.add_argument("--again", action="store_true", help="begin anew, although a reset is under way")
    commands.resetting("drop-table", "drop a table that was taken out of the mirror file; goes on where it stopped")
    about = "publish a lost number again that the target has not applied; goes on where it stopped"
    mend = commands.on_file("repair", "resetting:repair", about)
    add_repair_arguments(mend)
    about = "make a lost ledger again from landing zone and change log; without --apply only tell what would come of it"
    again = commands.reporting("rebuild-ledger", "resetting:rebuild_ledger", about)
    again.add_argument("--apply", action="store_true", help="write it, while no job of the mirror runs")
    again.add_argument("--approved-by", type=stated, metavar="NAME", help="who decided that; kept in the audit")
    again.add_argument("--reason", type=stated, metavar="TEXT", help="and why")
    ui = commands.add("ui", "serving:ui", "serve the page that shows all mirrors, and takes decisions, to a browser")
    ui.add_argument("mirrors", nargs="*", type=Path, help="mirror files or folders (default: mirrors)")
    ui.add_argument("--host", default="127.0.0.1", help="address to listen on; any but loopback needs a token")
    ui.add_argument("--port", type=positive, default=8090, metavar="N", help="port to listen on (default 8090)")
    about = "fetch the pinned jars, which only reading over JDBC needs, and check their sums"
    fetch = commands.add("jars", "jars:jars", about)
    fetch.add_argument("folder", nargs="?", type=Path, help="where to (default: where they are looked for)")
    commands.add("schema", "looking:schema", "print the JSON Schema of mirror files")
    return parser


def _init_arguments(command: argparse.ArgumentParser) -> None:
    about = "the source of a FILE that is not there yet: 'format: sqlserver-ces, transport: files, path: FOLDER'"
    command.add_argument("--source", metavar="SETTINGS", help=about)
    command.add_argument("--add", action="store_true", help="add the tables that FILE does not have yet")
    about = "only tables whose schema.table is like this, * standing for anything; may be said more than once"
    command.add_argument("--only", action="append", default=[], metavar="PATTERN", help=about)
    command.add_argument("--exclude", action="append", default=[], metavar="PATTERN", help="none that are like this")
    command.add_argument("--print", action="store_true", help="print the mirror file, and write nothing")
    command.add_argument(
        "--sample", type=positive, default=SAMPLE, metavar="N", help="look at about N messages (default %(default)s)"
    )
    about = "the source database: keys and types from its catalog, first rows over JDBC"
    command.add_argument("--database", metavar="CONNECTION", help=about)
    about = "mirror tables, too, that the catalog has and the sample does not show"
    command.add_argument("--unseen", action="store_true", help=about)
    about = "first rows from an export: a file or folder per table, by its name"
    command.add_argument("--export", type=Path, metavar="FOLDER", help=about)
    command.add_argument("--export-format", choices=["parquet", "csv", "qlik-full-load"], default="parquet")
    about = "where the stream goes on behind the export: the last commit LSN before it began, or the file that tells it"
    command.add_argument("--stream-from", metavar="LSN|FILE", default="beginning", help=f"{about} (default: beginning)")


def _length(text: str) -> float:
    """``90``, ``90s``, ``5m`` or ``1h`` in seconds."""
    match = re.fullmatch(r"([0-9]{1,6})([smh]?)", text)
    seconds = int(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]] if match else 0
    if not seconds:
        raise argparse.ArgumentTypeError(f"{text!r} is no length of time: write 60s, 5m or 1h")
    return float(seconds)


def _is_for_people(record: logging.LogRecord) -> bool:
    # py4j logs the trace of every interrupted call, as anybody's; what fails there is raised as well.
    if "py4j" in Path(record.pathname).parts:
        return False
    return record.levelno >= logging.WARNING or record.name.startswith(_OURS)


@contextmanager
def _progress() -> Iterator[None]:
    """Our own progress, and everybody's warnings, as plain lines on standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%H:%M:%S"))
    handler.addFilter(_is_for_people)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


if __name__ == "__main__":
    sys.exit(main())
