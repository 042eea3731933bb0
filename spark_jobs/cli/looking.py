"""Commands that only look: check, status, dead-letters, schema. They need no JVM."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.engine import make_url

from open_mirroring.config import Mirror, check_mirror, load_mirror, load_mirrors
from open_mirroring.config.models import schema_document
from open_mirroring.config.problems import Problem
from open_mirroring.config.source import QlikTask
from open_mirroring.config.storage import log_place
from open_mirroring.errors import MirroringError, TerminalError, TransientError
from open_mirroring.ledger import open_ledger
from open_mirroring.ledger.decisions import OpenStop, open_stops
from open_mirroring.ledger.letters import NO_LETTERS, LetterCounts, letter_counts, settled_letters
from open_mirroring.ledger.opening import ledger_to_look
from open_mirroring.ledger.proofs import ProofLedger
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.operate.exit_codes import Exit, UsageError, exit_of_report
from open_mirroring.operate.metrics import mirror_metrics
from open_mirroring.operate.places import ledger_shown, places
from open_mirroring.operate.spark_jars import drivers_lacking
from open_mirroring.operate.status_gathering import mirror_status
from open_mirroring.operate.target_limits import limit_warnings
from open_mirroring.operate.words import amount, shown
from open_mirroring.operate.zone_check import check_landing_zone
from open_mirroring.protocols.verdicts import Finding
from open_mirroring.reconciliation.inspection import inspect_mirror
from open_mirroring.reconciliation.joined_tables import ledger_of
from open_mirroring.reconciliation.owning import standing
from spark_jobs.cli.reporting import dead_letters_text, json_text
from spark_jobs.cli.status_text import colours_wanted, headline, short_status_text, status_text
from spark_jobs.letters.dead_letters import ListedLetters, dead_letters, write_raw
from spark_jobs.letters.open_letters import ensure_counted
from spark_jobs.reconcile.lost_ledger import check_ledger_knows, empty_ledger, log_ahead
from spark_jobs.sources.qlik.message.given_structures import check_structures


def check(arguments: argparse.Namespace) -> Exit:
    """Every mistake of a mirror file (or of all in a folder), then everything that would stop its first run.

    With ``--sample`` also what of the file is not as the source sends it.
    """
    mirrors = mirrors_of([arguments.file])
    problems = [problem for mirror in mirrors for problem in problems_of(mirror)]
    sampled: dict[str, list[Problem]] = {}
    is_sampled = arguments.sample is not None or arguments.database is not None
    for mirror in mirrors if is_sampled and not problems else ():
        from spark_jobs.cli.beginning import sampled_mirror  # brings Spark's Python, which other looks do not wait for

        mistakes, sampled[mirror.name] = sampled_mirror(mirror, arguments)
        problems += mistakes
    for problem in problems:
        print(problem)
    if problems:
        print(f"{len(problems)} {'problem' if len(problems) == 1 else 'problems'} found", file=sys.stderr)
        return Exit.USAGE
    for mirror in mirrors:
        loads = sum(table.initial_load is not None for table in mirror.tables)
        print(f"{arguments.file if len(mirrors) == 1 else mirror.file}: OK")
        patterns = len(mirror.entries) - len(mirror.tables)
        also = f", and those of {patterns} {'pattern' if patterns == 1 else 'patterns'}" if patterns else ""
        print(
            f"  mirror        {mirror.name}: {amount(len(mirror.tables), 'table')}, {loads} with an initial load{also}"
        )
        print(f"  read as       {mirror.source.format} over {mirror.source.transport}")
        print(_places_text(mirror))
        key_changes, warnings = _surveyed(mirror)
        if key_changes:
            print(f"  key changes   {key_changes}")
        if mirror.consistency == "key":
            print("  consistency   key: each row is exact, a transaction may show in parts (C-88)")
        else:
            print("  consistency   transaction: changes wait until the source has shown a later one")
        for warning in [*limit_warnings(mirror), *drivers_lacking(mirror), *warnings, *sampled.get(mirror.name, ())]:
            print(f"warning: {warning}")
    return Exit.DONE


def _surveyed(mirror: Mirror) -> tuple[str, list[Problem]]:
    """How the source sends changes of keys, and what is worth a look at the source; a Qlik task leaves both open."""
    if not isinstance(mirror.source, QlikTask):
        return "", []
    from spark_jobs.sources import registry, source_survey  # brings Spark's Python, which other looks do not wait for

    return registry.format_of(mirror).key_changes, source_survey.warnings(mirror)


def status(arguments: argparse.Namespace) -> Exit:
    """How far every table is, what holds or stops it, and the way out; 3 when something is stopped, 6 with losses."""
    mirror = load_mirror(arguments.file)
    if never_run(mirror) and not check_ledger_knows(mirror):
        document = {"mirror": mirror.name, "started": False, "tables": [], "places": places(mirror)}
        print(json.dumps(document) if arguments.json else not_begun(mirror))
        return Exit.DONE
    with ExitStack() as stack:
        # Looking creates no ledger: where it is gone, what was published is seen by one that knows nothing.
        ledger = stack.enter_context(empty_ledger()) if never_run(mirror) else ledger_of(mirror)
        return _status(arguments, mirror, ledger)


def _status(arguments: argparse.Namespace, mirror: Mirror, ledger: Engine) -> Exit:
    findings: Mapping[str, Finding] = {}
    failed = ""
    try:
        ensure_counted(mirror, ledger)
        findings = inspect_mirror(mirror, ledger, record=False)
    except MirroringError as error:
        # What the ledger knows is still worth seeing; why the rest is not known stands beside it.
        failed = str(error)
    reader = LedgerReader(ledger, mirror.name)
    proofs = ProofLedger(ledger).newest(table.id for table in reader.tables().values())
    stops = open_stops(ledger, mirror.name)
    try:
        if (lost := log_ahead(mirror, ledger)) and all(stop.source for stop in stops):
            stops = [OpenStop(None, lost.code, lost.what, None), *stops]
    except MirroringError as error:
        failed = failed or str(error)
    state = mirror_status(
        mirror,
        reader,
        stops,
        findings,
        now=datetime.now(UTC),
        inspection_failed=failed,
        proofs={table_id: recorded.proof for table_id, recorded in proofs.items()},
    )
    if arguments.json:
        metrics = mirror_metrics(ledger, mirror.name, state.taken_at)
        document = {"started": True, "places": places(mirror), **state.document(), "metrics": metrics.document()}
        print(json_text(document))
    else:
        wide = f"{headline(state)}\n{_places_text(mirror)}\n\n{status_text(state)}"
        print(wide if arguments.wide else short_status_text(state, coloured=colours_wanted()))
    return exit_of_report(state.stopped, state.losses)


def list_dead_letters(arguments: argparse.Namespace) -> Exit:
    """The newest dead letters; with ``--raw`` their contents go into a file, never to the terminal."""
    mirror = load_mirror(arguments.file)
    log_root = log_place(mirror)
    listed, counts = ListedLetters((), False), LetterCounts(True, {}, NO_LETTERS)
    if never_run(mirror):
        for lost in check_ledger_knows(mirror):
            raise TerminalError(lost.code, lost.what, where=f"mirror {mirror.name}", way_out=lost.way_out)
        print(not_begun(mirror), file=sys.stderr)
    else:
        ledger = ledger_of(mirror)
        settled = frozenset() if arguments.all else settled_letters(ledger, mirror.name).keys()
        ensure_counted(mirror, ledger)
        counts = letter_counts(ledger, mirror.name)
        listed = dead_letters(log_root, LedgerReader(ledger, mirror.name), arguments.limit, settled)
    if arguments.raw is not None:
        lines = write_raw(arguments.raw, log_root, listed.letters)
        print(f"{lines} dead letters with their contents are in {arguments.raw}", file=sys.stderr)
    if arguments.json:
        letters = [{**letter._asdict(), "way_out": letter.way_out} for letter in listed.letters]
        print(json_text({"dead_letters": letters, "more": listed.more, "open": counts.document()}))
    else:
        print(dead_letters_text(listed, counts))
    return Exit.DONE


def schema(_: argparse.Namespace) -> Exit:
    """The JSON Schema of mirror files."""
    print(schema_document(), end="")
    return Exit.DONE


def problems_of(mirror: Mirror) -> list[Problem]:
    """Everything that would stop the first run of a mirror."""
    found = check_mirror(mirror)
    found += [*check_landing_zone(mirror), *check_structures(mirror)]
    if all(problem.path != "ledger" for problem in found):
        found += _refused_by_run(mirror)
    return [*found, *check_ledger_knows(mirror)]


def _refused_by_run(mirror: Mirror) -> list[Problem]:
    """What a run would refuse by mirror file, ledger and landing zone: it asks what a run asks, and keeps nothing."""
    try:
        if ledger_to_look(mirror.ledger_url()) is None:
            return []
        ledger = open_ledger(mirror.ledger_url())
    except TerminalError as error:
        return [mirror.problem_of(("ledger",), error)]
    except TransientError:
        return []
    from spark_jobs.cli.run_refusals import run_refusals

    return [mirror.problem_of(setting, error) for setting, error in run_refusals(mirror, ledger)]


def never_run(mirror: Mirror) -> bool:
    """Whether the ledger is a file that does not exist yet: looking must not create it."""
    url = make_url(mirror.ledger_url())
    return url.get_backend_name() == "sqlite" and not Path(url.database or "").exists()


def not_begun(mirror: Mirror) -> str:
    """What is said of a mirror without a ledger: the place is named, for it may be mistyped."""
    said = f"mirror {mirror.name}: nothing has run yet; there is no ledger at {ledger_shown(mirror)}"
    return f"{said}\n{_places_text(mirror)}"


def _places_text(mirror: Mirror) -> str:
    return "\n".join(f"  {what:<13} {shown(place)}" for what, place in places(mirror).items())


def mirrors_of(paths: list[Path]) -> list[Mirror]:
    """The mirrors of some files and folders.

    Raises:
        UsageError: ``NO_MIRROR`` for one without any.
    """
    mirrors: list[Mirror] = []
    for path in paths:
        found = load_mirrors(path, standing) if path.is_dir() else [load_mirror(path)]
        if not found:
            raise UsageError("NO_MIRROR", f"{path} holds no mirror file", way_out="name a file, or a folder of them")
        mirrors += found
    return mirrors
