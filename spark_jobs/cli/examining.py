"""The command ``doctor``: checks this machine, connections and rights, and prints the fix for each problem."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from open_mirroring.config import Mirror
from open_mirroring.errors import MirroringError
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.opening import ledger_to_look
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.operate.exit_codes import Exit
from open_mirroring.operate.spark_jars import REMOTE, drivers_lacking, jar_files, jars_folder, server_shown
from open_mirroring.operate.target_limits import MOST_BYTES_A_DAY, is_near_daily_bytes
from open_mirroring.operate.words import age, size
from spark_jobs.cli.checking import mirrors_of, problems_of
from spark_jobs.cli.examining_target import doctor_target
from spark_jobs.cli.reporting import json_text, wrapped

_JAVA = 17
_CLOCK_APART = timedelta(seconds=60)
_FREE_BYTES = 1_000_000_000


class Examined(NamedTuple):
    """The result of one check: its subject, what was found, and the fix (empty if nothing is wrong)."""

    what: str
    found: str
    next_step: str = ""


def doctor(arguments: argparse.Namespace) -> Exit:
    """Run all checks, and print problems before other results; the exit code is 2 if there is a problem.

    With ``--target``, run only :func:`~spark_jobs.cli.examining_target.doctor_target`, which has other exit codes.
    """
    if arguments.target:
        return doctor_target(arguments)
    found = [*_machine(), *(one for mirror in mirrors_of(arguments.mirrors) for one in _mirror(mirror))]
    wrong = sum(bool(one.next_step) for one in found)
    if arguments.json:
        print(json_text([{**one._asdict(), "sound": not one.next_step} for one in found]))
    else:
        print(f"{wrong or 'None'} of {len(found)} examinations need an operator.")
        for one in sorted(found, key=lambda one: not one.next_step):
            print(wrapped(f"{'FAIL' if one.next_step else 'ok  '}  {one.what}: {one.found}", 0))
            if one.next_step:
                print(wrapped(f"Fix: {one.next_step}", 6))
    return Exit.USAGE if wrong else Exit.DONE


def _machine() -> Iterator[Examined]:
    python = f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
    yield Examined("versions", f"open-mirroring {version('open-mirroring')}, Python {python}")
    yield _spark()
    if server := os.environ.get(REMOTE):
        yield Examined("spark connect", f"jobs join {server_shown(server)}, and start no Java here")
        return
    yield _java()
    if "SPARK_HOME" not in os.environ:
        jars = [os.path.basename(jar) for jar in jar_files()]
        yield Examined("jars", ", ".join(jars) or f"none in {jars_folder()}: only reading over JDBC needs them")


def _java() -> Examined:
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else "java"
    next_step = f"install Java {_JAVA} or newer (apt-get install openjdk-17-jre-headless), or let JAVA_HOME name one"
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        return Examined("java", f"{program} cannot be run: {type(error).__name__}", next_step)
    # `17.0.15`, `25`, `21-ea`, and of old `1.8.0_402`.
    match = re.search(r'version "(\d+)([^"]*)"', said)
    if match is None:
        return Examined("java", f"{program} shows no version", next_step)
    return Examined("java", f"{program} is {match[1]}{match[2]}", "" if int(match[1]) >= _JAVA else next_step)


def _spark() -> Examined:
    found = {}
    for name in ("pyspark", "pyspark-client"):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    shown_versions = ", ".join(f"{name} {one}" for name, one in found.items())
    if "pyspark" not in found:
        return Examined("spark", shown_versions or "pyspark is missing", "pip install 'open-mirroring[spark]'")
    if len(set(found.values())) == 1:
        return Examined("spark", shown_versions)
    # Not every version of pyspark has a client of its own; each version of the client has its pyspark.
    packages = " ".join(f"'{name}=={found['pyspark-client']}'" for name in found)
    next_step = (
        f"both write the same files, so install one version of both: pip install --force-reinstall --no-deps {packages}"
    )
    return Examined("spark", shown_versions, next_step)


def _mirror(mirror: Mirror) -> Iterator[Examined]:
    problems = problems_of(mirror)
    name = f"mirror {mirror.name}"
    if not problems:
        yield Examined(name, "file, connections, rights and source are as they have to be")
    for problem in problems:
        yield Examined(name, f"{problem.code}: {problem.what} ({problem.file}:{problem.line})", problem.next_step)
    for lacking in drivers_lacking(mirror):
        # Only a run knows which Spark it gets, and whether that has the driver.
        yield Examined(f"driver for {mirror.name}", f"{lacking.code}: {lacking.what}; {lacking.next_step}")
    yield from _ledger(mirror, {problem.code for problem in problems})
    yield _space(mirror)


def _ledger(mirror: Mirror, reported: Collection[str]) -> Iterator[Examined]:
    """Check the ledger; an error whose code is in *reported* was already reported for this mirror and is left out."""
    what = f"ledger of {mirror.name}"
    try:
        ledger = ledger_to_look(mirror.ledger_url())
        if ledger is None:
            yield Examined(what, "nothing has run yet: the first run makes it")
            return
        yield Examined(what, f"it answers, and is of this version ({ledger.dialect.name})")
        yield _clock(mirror, ledger)
        yield _last_day(mirror, ledger)
    except MirroringError as error:
        if error.code not in reported:
            yield Examined(what, f"{error.code}: {error.what}", error.next_step)
    except SQLAlchemyError as error:
        yield Examined(what, f"it does not answer: {type(error).__name__}", "check the database")


def _clock(mirror: Mirror, ledger: Engine) -> Examined:
    """Compare this machine's clock with the database's, and with the time of the newest batch."""
    what, now = f"clock compared with the ledger of {mirror.name}", datetime.now(UTC)
    newest = sa.select(sa.func.max(t.log_batch.c.committed_at)).where(t.log_batch.c.mirror == mirror.name)
    with ledger.connect() as db:
        ahead = [moment - now for moment in [db.scalar(newest)] if moment is not None]
        if ledger.dialect.name == "postgresql":
            ahead.append(abs(db.execute(sa.select(sa.func.clock_timestamp())).scalar_one() - datetime.now(UTC)))
    apart = max(ahead, default=timedelta(0))
    if apart <= _CLOCK_APART:
        return Examined(what, "they agree")
    next_step = "set the clock by the network (timedatectl set-ntp true): order rests on no clock, ages and alarms do"
    return Examined(what, f"they are {age(apart)} apart", next_step)


def _last_day(mirror: Mirror, ledger: Engine) -> Examined:
    published = LedgerReader(ledger, mirror.name).published_bytes(datetime.now(UTC) - timedelta(days=1))
    what = f"published by {mirror.name} in 24 hours"
    found = f"{size(published)}, of {size(MOST_BYTES_A_DAY)} that a mirrored database takes on one day"
    next_step = "divide the tables between mirrors, each with its database: the target is slowed down beyond that"
    return Examined(what, found, next_step if is_near_daily_bytes(published) else "")


def _space(mirror: Mirror) -> Examined:
    if not isinstance(mirror.change_log, str):
        return Examined(f"room for the change log of {mirror.name}", f"{mirror.change_log} grows as it needs")
    place = mirror.resolve(mirror.change_log)
    while not place.exists() and place != place.parent:
        place = place.parent
    free = shutil.disk_usage(place).free
    next_step = (
        "" if free > _FREE_BYTES else "make room, or let `open-mirroring maintain` drop what is no longer needed"
    )
    return Examined(f"room for the change log of {mirror.name}", f"{size(free)} are free at {place}", next_step)
