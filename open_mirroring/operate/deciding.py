"""Carries out the decisions of operators (resume, accept, confirm) for the command line, the page and Airflow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from sqlalchemy import Engine

from open_mirroring.changes.manifest import LetterPlace
from open_mirroring.config import Mirror
from open_mirroring.errors import MirroringError, TerminalError
from open_mirroring.landing_zone.opening import ZoneAddress
from open_mirroring.ledger import decisions
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.dead_letters import accept_letters
from open_mirroring.ledger.decisions import OpenStop
from open_mirroring.operate import operations
from open_mirroring.operate.history import open_letters
from open_mirroring.operate.reset_driver import ResetDriver
from open_mirroring.operate.words import amount, verdict_counts
from open_mirroring.protocols.verdicts import Finding
from open_mirroring.reconciliation.inspection import inspect_mirror

LOOK = "look"
"""The page's action that decides nothing, but inspects the landing zone again."""
_LETTERS = 10_000


def decide_and_look(
    mirror: Mirror, ledger: Engine, zone: ZoneAddress, action: str, form: Mapping[str, str], reason: Reason
) -> list[str]:
    """Carry out an operator's decision, then inspect the landing zone. Return sentences about both for the operator.

    *action* is the name of the operation. *form* has the fields of the decision, as :func:`decide` describes them.
    """
    said = [] if action == LOOK else decide(mirror, ledger, action, form, reason, zone=zone)
    # Inspect at once, so that the new verdict shows whether the cause still exists.
    try:
        findings = inspect_mirror(mirror, ledger, zone)
    except MirroringError as error:
        if action == LOOK:
            raise
        return [*said, f"The landing zone could not be inspected: {error}"]
    if (found := findings.get(form.get("source", ""))) is not None:
        return [*said, now(found)]
    counts = verdict_counts(Counter(found.verdict for found in findings.values()))
    return [*said, f"{amount(len(findings), 'table')} inspected: {counts}."]


def decide(
    mirror: Mirror,
    ledger: Engine,
    action: str,
    form: Mapping[str, str],
    reason: Reason,
    *,
    zone: ZoneAddress | None = None,
) -> list[str]:
    """Carry out an operator's decision, and return sentences about the result.

    *action* is the name of the operation. *form* has the keys ``source`` (the table), ``subject`` (for example a
    column, stream or code) and ``request``. The last is an id: a repeated request has no second effect. For a rename,
    ``renamed_to`` is the new column name. For a single dead letter, ``batch``, ``origin`` and ``place`` say where it
    is. Each key may be missing. Raises ``ARGUMENT_INVALID`` for an unknown action, and the errors of the decision
    itself.
    """
    source, subject, request = form.get("source", ""), form.get("subject", ""), form.get("request", "")
    of = ledger, mirror.name, source
    match action:
        case operations.RESUME.name:
            return [_cleared(decisions.resume_table(*of, reason, request=request))]
        case operations.RESUME_EXTRACTION.name:
            return [_cleared(decisions.resume_extraction(ledger, mirror.name, reason, request=request))]
        case operations.ACCEPT_EPOCH.name:
            ordinal, ended, unknown = decisions.accept_epoch(*of, subject, reason, request=request)
            said = [f"Stream {subject} is accepted; it has the ordinal {ordinal}."]
            said += [_cleared(ended)] if ended else []
            return said + [f"Not accepted yet: {epoch}." for epoch in unknown]
        case operations.ACCEPT_SCHEMA.name:
            renamed_to = form.get("renamed_to") or None
            columns = [subject] if renamed_to else listed_columns(subject)
            cleared = decisions.accept_schema(*of, columns, reason, renamed_to=renamed_to, request=request)
            which = f"Column {columns[0]} was" if len(columns) == 1 else f"Columns {', '.join(columns)} were"
            said = [f"{which} {f'renamed to {renamed_to}' if renamed_to else 'dropped'}: that is recorded."]
            return said + ([_cleared(cleared)] if cleared else [])
        case operations.ACCEPT_TABLE.name:
            return [_cleared(decisions.accept_table(*of, reason, request=request))]
        case operations.ACCEPT_RELOAD.name:
            stop = decisions.accept_reload(*of, reason, request=request)
            return [f"The newest full load counts; the next run builds the table from it, and ends {stop.code}."]
        case operations.ACCEPT_LETTERS.name:
            return [_accept(mirror, ledger, form, reason, request)]
        case operations.TARGET_GONE.name:
            return [ResetDriver(mirror, ledger, source, zone=zone).say("gone", reason, request)]
        case operations.TARGET_BACK.name:
            return [ResetDriver(mirror, ledger, source, zone=zone).say("back", reason, request)]
    next_step = f"name one of: {', '.join(operations.DECISIONS)}"
    raise TerminalError("ARGUMENT_INVALID", f"there is no decision {action!r}", next_step=next_step)


def listed_columns(text: str) -> list[str]:
    """Split the column names in a form's field: one name per line, or names separated by commas on a single line."""
    return [name.strip() for name in text.split("\n" if "\n" in text else ",") if name.strip()] or [text]


def _accept(mirror: Mirror, ledger: Engine, form: Mapping[str, str], reason: Reason, request: str) -> str:
    """Accept dead letters as lost: all with one code, or the one whose place in the change log the form names."""
    known = [one for one in open_letters(ledger, mirror.name, form.get("source") or None, _LETTERS) if one.place >= 0]
    if number := form.get("batch"):
        place = form.get("place", "")
        at = LetterPlace(int(number), form.get("origin", ""), int(place)) if (number + place).isdecimal() else None
        known = [letter for letter in known if letter.at == at]
    else:
        known = [letter for letter in known if letter.code == form.get("subject", "")]
    chosen = {letter.at: 0 if letter.source else 1 for letter in known}
    accepted = accept_letters(ledger, mirror.name, chosen, reason, request=request)
    if not accepted:
        next_step = "look at the table's dead letters as they are now"
        raise TerminalError("ARGUMENT_INVALID", "no open dead letter matches this", next_step=next_step)
    return f"Accepted as lost: {accepted} dead letters. The audit names them."


def _cleared(stop: OpenStop) -> str:
    return f"Cleared: {stop.code}: {stop.what}"


def now(finding: Finding) -> str:
    """Return a sentence with the verdict that an inspection just gave a table, and the next step."""
    next_step = f" Next step: {finding.next_step}" if finding.next_step else ""
    return f"Now: {finding.verdict.value} {finding.code}: {finding.what}.{next_step}"
