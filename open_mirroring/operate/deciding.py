"""Takes the decisions of operators, and says what came of each in sentences.

The command line, the page and runs in Airflow all decide here, so that one decision means one thing.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Engine

from open_mirroring.changes.manifest import LetterPlace
from open_mirroring.config import Mirror
from open_mirroring.errors import MirroringError, TerminalError
from open_mirroring.landing_zone.opening import ZoneAddress
from open_mirroring.ledger import decisions, requests
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.decisions import OpenStop
from open_mirroring.ledger.letters import accept_letters
from open_mirroring.operate.reset_driver import ResetDriver
from open_mirroring.operate.table_story import open_letters
from open_mirroring.protocols.verdicts import Finding
from open_mirroring.reconciliation.inspection import inspect_mirror

LOOK = "look"
"""What can be asked for beside the decisions that the ledger keeps: look once more."""
_DECISIONS = (
    requests.RESUME,
    requests.RESUME_EXTRACTION,
    requests.ACCEPT_EPOCH,
    requests.ACCEPT_SCHEMA,
    requests.ACCEPT_TABLE,
    requests.ACCEPT_RELOAD,
    requests.ACCEPT_LETTERS,
    requests.TARGET_GONE,
    requests.TARGET_BACK,
)
_LETTERS = 10_000


def decide_and_look(
    mirror: Mirror, ledger: Engine, zone: ZoneAddress, action: str, form: Mapping[str, str], reason: Reason
) -> list[str]:
    """Take a decision; what came of it and what the next run will find, in sentences.

    Raises:
        TerminalError, TransientError: as :func:`decide`.
    """
    said = [] if action == LOOK else decide(mirror, ledger, action, form, reason, zone=zone)
    return [*said, *_looked(mirror, ledger, zone, form.get("source", ""))]


def decide(
    mirror: Mirror,
    ledger: Engine,
    action: str,
    form: Mapping[str, str],
    reason: Reason,
    *,
    zone: ZoneAddress | None = None,
) -> list[str]:
    """Take a decision; what came of it, in sentences.

    Args:
        mirror: the mirror.
        ledger: its ledger.
        action: the decision, by a name of :mod:`open_mirroring.ledger.requests`.
        form: of what: the table as *source*, what of it as *subject*, and the id of the *request*, where they are.
        reason: who decides, and why.
        zone: the landing zone; None: that of the mirror file.

    Raises:
        TerminalError: as the decision does; ``ARGUMENT_INVALID`` for one that is not taken here.
        TransientError: ledger or store do not answer.
    """
    source, subject, request = form.get("source", ""), form.get("subject", ""), form.get("request", "")
    if action == requests.RESUME:
        said = [_cleared(decisions.resume_table(ledger, mirror.name, source, reason, request=request))]
    elif action == requests.ACCEPT_EPOCH:
        accepted = decisions.accept_epoch(ledger, mirror.name, source, subject, reason, request=request)
        said = [f"Stream {subject} is accepted; it has the ordinal {accepted.ordinal}."]
        said += [_cleared(accepted.cleared)] if accepted.cleared else []
        said += [f"Not accepted yet: {epoch}." for epoch in accepted.still_unknown]
    elif action == requests.ACCEPT_SCHEMA:
        renamed_to = form.get("renamed_to") or None
        columns = [subject] if renamed_to else listed_columns(subject)
        cleared = decisions.accept_schema(
            ledger, mirror.name, source, columns, reason, renamed_to=renamed_to, request=request
        )
        which = f"Column {columns[0]} was" if len(columns) == 1 else f"Columns {', '.join(columns)} were"
        said = [f"{which} {f'renamed to {renamed_to}' if renamed_to else 'dropped'}: that is recorded."]
        said += [_cleared(cleared)] if cleared else []
    elif action == requests.ACCEPT_TABLE:
        said = [_cleared(decisions.accept_table(ledger, mirror.name, source, reason, request=request))]
    elif action == requests.ACCEPT_RELOAD:
        stop = decisions.accept_reload(ledger, mirror.name, source, reason, request=request)
        said = [f"The newest full load counts; the next run builds the table from it, and ends {stop.code}."]
    elif action == requests.RESUME_EXTRACTION:
        said = [_cleared(decisions.resume_extraction(ledger, mirror.name, reason, request=request))]
    elif action == requests.ACCEPT_LETTERS:
        said = [_accept(mirror, ledger, form, reason, request)]
    elif action in (requests.TARGET_GONE, requests.TARGET_BACK):
        driver = ResetDriver(mirror, ledger, source, zone=zone)
        said = [driver.say("gone" if action == requests.TARGET_GONE else "back", reason, request)]
    else:
        way_out = f"name one of: {', '.join(_DECISIONS)}"
        raise TerminalError("ARGUMENT_INVALID", f"there is no decision {action!r}", way_out=way_out)
    return said


def listed_columns(text: str) -> list[str]:
    """The columns that a form names: one a line, or on a single line divided by commas."""
    return [name.strip() for name in text.split("\n" if "\n" in text else ",") if name.strip()] or [text]


def _accept(mirror: Mirror, ledger: Engine, form: Mapping[str, str], reason: Reason, request: str) -> str:
    source = form.get("source") or None
    known = [one for one in open_letters(ledger, mirror.name, source, _LETTERS) if one.place >= 0]
    if form.get("batch"):
        number, place = form["batch"], form.get("place", "")
        at = LetterPlace(int(number), form.get("origin", ""), int(place)) if (number + place).isdecimal() else None
        known = [letter for letter in known if letter.at == at]
    else:
        known = [letter for letter in known if letter.code == form.get("subject", "")]
    chosen = {letter.at: 0 if letter.source else 1 for letter in known}
    accepted = accept_letters(ledger, mirror.name, chosen, reason, request=request)
    if not accepted:
        what = "no open dead letter is meant by this"
        raise TerminalError("ARGUMENT_INVALID", what, way_out="look at the table's dead letters as they are now")
    return f"Accepted as lost: {accepted} dead letters. The audit names them."


def _cleared(stop: OpenStop) -> str:
    return f"Cleared: {stop.code}: {stop.what}"


def _looked(mirror: Mirror, ledger: Engine, zone: ZoneAddress, source: str) -> list[str]:
    """What the next run will find, so that everybody sees at once whether the cause is still there."""
    try:
        findings = inspect_mirror(mirror, ledger, zone)
    except MirroringError as error:
        return [f"The landing zone could not be inspected: {error}"]
    return [now(findings[source])] if source in findings else [f"{len(findings)} tables were looked at."]


def now(finding: Finding) -> str:
    """What the next run will find of a table, in a sentence."""
    way_out = f" Way out: {finding.way_out}" if finding.way_out else ""
    return f"Now: {finding.verdict.value} {finding.code}: {finding.what}.{way_out}"
