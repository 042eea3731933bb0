"""Decides whether a number may be published again under its own name: the only repair that the target permits.

A number that the target has not applied may come again, with the same content and name (F-40). A number without rows
always may, because nothing in it could be applied twice (F-41). A number that was applied never may: the target
would not read it (F-37), and its rows would be taken for published although they are not at the target.

Nothing is repaired by itself. An operator asks for it by name and, without a trusted counter, says how he knows.
"""

from __future__ import annotations

from collections.abc import Mapping

from open_mirroring.codes import Kind, Trait, having, of_kind
from open_mirroring.errors import TerminalError
from open_mirroring.ledger.reading import PublishedFile
from open_mirroring.protocols import verdicts as v
from open_mirroring.protocols.verdicts import Finding


def check_permitted(
    table: str, number: int, finding: Finding, published: Mapping[int, PublishedFile], *, not_applied: str
) -> str:
    """Check that a number may be published again; the proof of it, in words for the audit.

    Args:
        table: the table's source name, for messages.
        number: the number.
        finding: the verdict on the table as it is now.
        published: the records of its confirmed numbers.
        not_applied: how an operator knows that the target has not applied it; empty when nobody says so.

    Raises:
        TerminalError: ``REPAIR_REFUSED``, saying why.
    """
    no_matter = having(Trait.REPAIRED) | of_kind(Kind.HOLD) | of_kind(Kind.LOSS) | {v.OK}
    others = sorted({finding.code, *_also(finding)} - no_matter)
    record = published.get(number)
    if record is None:
        raise _refused(table, number, "the ledger has no confirmed file of this number", "look at `status` for K")
    if others:
        raise _refused(table, number, f"the table is stopped by {', '.join(others)}", "see to that first")
    if number not in finding.lost:
        raise _refused(
            table,
            number,
            "it is there, or was processed and purged",
            "nothing is missing; a broken file under its name has to be moved away first",
        )
    if number <= finding.applied:
        raise _refused(
            table,
            number,
            f"the target counts as having applied everything up to {finding.applied}, and reads no number twice",
            "compare the target with the source; if rows are missing, reset the table: `open-mirroring reload-table`",
        )
    if record.rows == 0:
        return "it has no rows"
    if not not_applied:
        raise _refused(
            table,
            number,
            "nothing proves that the target has not applied it",
            "look for its rows at the target, and give how you know by `--not-applied`",
        )
    return f"somebody looked: {not_applied}"


def _also(finding: Finding) -> list[str]:
    also = finding.evidence.get("also", [])
    return [str(code) for code in also] if isinstance(also, list) else []


def _refused(table: str, number: int, why: str, way_out: str) -> TerminalError:
    return TerminalError(
        "REPAIR_REFUSED", f"number {number} of table {table!r} is not published again: {why}", way_out=way_out
    )
