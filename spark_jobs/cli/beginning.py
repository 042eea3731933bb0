"""The command ``init``: writes the tables that the source announces into a mirror file."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from open_mirroring.config import Mirror
from open_mirroring.config.loading import parse_mirror
from open_mirroring.config.models import BegunMirror
from open_mirroring.config.names import SourceName, split_source_name
from open_mirroring.errors import MirroringError
from open_mirroring.ledger import open_ledger
from open_mirroring.ledger.documents import FOREIGN_TABLES
from open_mirroring.operate.exit_codes import Exit, UsageError
from open_mirroring.operate.words import amount
from spark_jobs.beginning import SAMPLE
from spark_jobs.beginning.announcements import AnnouncedTable, announcements
from spark_jobs.beginning.comparing import Compared, compare
from spark_jobs.beginning.entries import Entry, FirstRows, entries, yaml_text
from spark_jobs.beginning.mirror_text import begun_text, indent_of, with_tables, write_file
from spark_jobs.cli.looking import never_run

log = logging.getLogger(__name__)


def init(arguments: argparse.Namespace) -> Exit:
    """Read a sample of the source, and write the tables that it announces into the mirror file, below ``tables:``."""
    file: Path = arguments.file
    before = _content(file)
    text = _begun(arguments) if before is None else before
    if before is not None and arguments.source is not None:
        raise UsageError(f"{file} is there already", "leave --source out: the file says it")
    mirror = parse_mirror(text, file, BegunMirror)
    if mirror.entries and not arguments.add:
        what = f"{file} has {len(mirror.entries)} tables already"
        raise UsageError(what, "add --add for those that it does not have")
    log.info("looking at %s", mirror.source.place)
    announced = announcements(mirror, arguments.sample, arguments.database, _session)
    only, exclude = arguments.only or ("*",), arguments.exclude
    wanted = [one for one in announced.values() if any(fnmatchcase(one.name, pattern) for pattern in only)]
    chosen = [one for one in wanted if not any(fnmatchcase(one.name, pattern) for pattern in exclude)]
    found = _new(mirror, text, chosen, _first_rows(arguments))
    _warn_of_ignored(found, _ignored_before(mirror) if mirror.entries else {})
    if secret := [one for one in found if one.looks_secret]:
        left_out = amount(len(secret), "table is", "tables are")
        log.warning("%s left out, for a name looks like a secret: write what is meant by hand", left_out)
    found = [one for one in found if not one.looks_secret]
    active = [one for one in found if not one.waits]
    if not active and not mirror.entries:
        reasons = "".join(f"\n  {one.name}: {one.waits}" for one in found)
        raise UsageError(
            f"the source announces no table that could be mirrored as it is{reasons}",
            "see that `format` and `layout` are right; wait until changes are there, name the source database "
            "(--database), or write the tables by hand",
        )
    new = with_tables(text, _lines(found, text, is_first=not mirror.entries), file) if found else text
    if arguments.print:
        print(new, end="")
    elif new != before:
        write_file(file, new, before)
    if not arguments.print:
        _print_result(file, active, [one for one in found if one.waits])
    return Exit.DONE


def sampled_mirror(mirror: Mirror, arguments: argparse.Namespace) -> Compared:
    """Compare a mirror file with a sample of messages of its source; returns mistakes and warnings."""
    log.info("looking at %s", mirror.source.place)
    return compare(mirror, announcements(mirror, arguments.sample or SAMPLE, arguments.database, _session))


def _content(file: Path) -> str | None:
    try:
        return file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {error}", "name a mirror file, or a new one", code="CONFIG_INVALID") from None


def _begun(arguments: argparse.Namespace) -> str:
    """The text of a new mirror file, with the source that the command line names."""
    if arguments.source is None:
        what = f"{arguments.file} is not there, and the source is not given"
        next_step = "add --source 'format: sqlserver-ces, transport: files, path: FOLDER', or write all but its tables"
        raise UsageError(what, next_step)
    given = arguments.source.strip()
    try:
        source: Any = yaml.safe_load(given if given.startswith("{") else f"{{{given}}}")
    except yaml.YAMLError:
        source = None
    if not isinstance(source, dict):
        next_step = "write its settings as in a mirror file: 'format: sqlserver-ces, transport: files, path: FOLDER'"
        raise UsageError("--source is not a list of settings", next_step)
    return begun_text(arguments.file.stem, source)


def _ignored_before(mirror: Mirror) -> dict[str, int]:
    """The number of messages that the mirror has read and ignored, by table; empty if the ledger cannot be read."""
    try:
        if never_run(mirror):
            return {}
        with open_ledger(mirror.ledger_url()).connect() as db:
            return {name: one.messages for name, one in FOREIGN_TABLES.of(db, mirror.name).items()}
    except MirroringError as error:
        log.warning("the ledger was not asked which tables were ignored so far: %s", error)
        return {}


def _warn_of_ignored(found: Sequence[Entry], ignored: Mapping[str, int]) -> None:
    for one in found:
        if one.name in ignored and "initial_load" not in one.settings:
            what = f"{amount(ignored[one.name], 'message')} of it came before and were ignored: give it an initial load"
            one.remarks.append(f"Warning: {what} (CHANGES_IGNORED).")


def _first_rows(arguments: argparse.Namespace) -> FirstRows:
    if arguments.export is not None and not arguments.export.is_dir():
        raise UsageError(f"{arguments.export} is not a folder", "name the folder of the export", code="PLACE_MISSING")
    return FirstRows(
        arguments.database, arguments.export, arguments.export_format, arguments.stream_from, arguments.unseen
    )


def _new(mirror: BegunMirror, text: str, announced: list[AnnouncedTable], first: FirstRows) -> list[Entry]:
    """The entries that the file does not have yet, not even as comments of an earlier run, and does not ignore."""
    known = {table.source_name for table in mirror.tables} | {split_source_name(name) for name in mirror.ignore}
    new = [one for one in announced if (one.schema, one.table) not in known]
    new = [one for one in new if mirror.pattern_of(SourceName(one.schema, one.table)) is None]
    found = entries(mirror, new, first)
    comments = {line.lstrip(" #-").rstrip() for line in text.splitlines() if line.lstrip().startswith("#")}
    return [one for one in found if not one.waits or f"source: {yaml_text(one.settings['source'])}" not in comments]


def _lines(found: list[Entry], text: str, *, is_first: bool) -> list[str]:
    indent = indent_of(text)
    head = "As the source announced them to `open-mirroring init`, from a sample of its changes. Tables that it does"
    head = f"{indent}# {head}\n{indent}# not show yet are added by `init --add`." if is_first else ""
    return [*head.splitlines(), *(line for one in found for line in one.lines(indent))]


def _print_result(file: Path, active: list[Entry], waiting: list[Entry]) -> None:
    print(f"{file}: {amount(len(active), 'table')} added" + (f", {len(waiting)} as comments" if waiting else ""))
    for one in waiting:
        print(f"  {one.name}: {one.waits}")
    warned = sum(any(remark.startswith("Warning") for remark in one.remarks) for one in active)
    if warned:
        print(f"  {amount(warned, 'table has', 'tables have')} a warning above")
    if active:
        print(f"next: read it, then open-mirroring check {file}")


def _session() -> Any:
    from spark_jobs.runtime.session import build_session

    log.info("starting Spark")
    return build_session("open-mirroring init")
