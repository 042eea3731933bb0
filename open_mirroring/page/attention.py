"""Lists what needs attention in a mirror: each problem with its cause, what it means for the data, and the fix."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy import Engine

from open_mirroring.codes import CODES, next_step_of
from open_mirroring.config import Mirror
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.dead_letters import OpenLetters
from open_mirroring.ledger.decisions import EPOCH_UNKNOWN, RENAME_POSSIBLE, unknown_epochs
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.operate import words
from open_mirroring.operate.mirror_view import MirrorView, TableView
from open_mirroring.page import fixes
from open_mirroring.page.fixes import Button, Command, Fixes
from open_mirroring.protocols.proving import ProofVerdict
from open_mirroring.protocols.table_losses import DEAD_LETTERS_OPEN, DEAD_LETTERS_UNNAMED, Loss
from open_mirroring.protocols.table_stops import COLUMN_NOT_STREAMED
from open_mirroring.protocols.verdicts import Verdict

_NOT_EQUAL = "NOT_EQUAL"
_CONSEQUENCE = {
    Verdict.STOP: "The target shows the rows as they were. Nothing is published until the stop is lifted.",
    Verdict.HOLD: "The target shows the rows as they were. Nothing is published until the cause is gone.",
    Verdict.LOSSES: "Publishing goes on, but rows at the target may be missing or out of date.",
    None: "It is unknown whether the target is up to date.",
}


@dataclass(frozen=True)
class Problem:
    """One problem of some tables, or of the mirror itself (then *tables* is empty).

    *found* pairs each description of the problem with the tables described. *waiting* is the number of logged changes
    that are not published because of the problem. *since* is when the oldest stop of the tables was recorded.
    """

    verdict: Verdict | None
    code: str
    cause: str
    next_step: str
    tables: tuple[str, ...]
    found: tuple[tuple[str, tuple[str, ...]], ...]
    buttons: tuple[Button, ...]
    commands: tuple[Command, ...]
    waiting: int = 0
    since: datetime | None = None

    @property
    def consequence(self) -> str:
        """What the problem means for the data at the target."""
        if self.verdict is Verdict.STOP and not self.tables:
            return "Nothing new is read from the source."
        if self.verdict is Verdict.LOSSES and not self.tables:
            return "Publishing goes on, but any table may lack a change."
        said = "Rows at the target differ from the source." if self.code == _NOT_EQUAL else _CONSEQUENCE[self.verdict]
        waiting = f" {words.amount(self.waiting, 'change')} of the change log are published then."
        return said + (waiting if self.waiting and self.verdict in (Verdict.STOP, Verdict.HOLD) else "")


def problems(mirror: Mirror, ledger: Engine, found: MirrorView, tables: Iterable[TableView]) -> list[Problem]:
    """Return the problems of a mirror and of *tables*, the most serious first; equal problems are merged."""
    stop, single = found.stop, list[Problem]()
    if stop is not None:
        single.append(_problem(Verdict.STOP, stop.code, stop.what, "", fixes.OF_READING))
    for loss in found.losses:
        single += _of_loss(mirror, loss, found.report.letters.without_table, "")
    for table in tables:
        single += _of_table(mirror, ledger, table)
    likeness = t.grouped(((words.SEVERITY.index(x.verdict), x.code, x.buttons, bool(x.tables)), x) for x in single)
    return [_joined(mirror, alike) for _, alike in sorted(likeness.items(), key=lambda known: known[0][:2])]


def _joined(mirror: Mirror, alike: Sequence[Problem]) -> Problem:
    found = t.grouped((what, source) for one in alike for what, of in one.found for source in of or ("",))
    commands = t.grouped((command.effect, command.text) for one in alike for command in one.commands)
    return replace(
        alike[0],
        next_step=words.to_copy(alike[0].next_step, mirror.file),
        tables=tuple(source for one in alike for source in one.tables),
        found=tuple((what, tuple(filter(None, sources))) for what, sources in found.items()),
        commands=tuple(Command("\n".join(dict.fromkeys(texts)), effect) for effect, texts in commands.items()),
        waiting=sum(one.waiting for one in alike),
        since=min((one.since for one in alike if one.since), default=None),
    )


def _problem(verdict: Verdict | None, code: str, what: str, source: str, fixing: Fixes) -> Problem:
    of = (source,) if source else ()
    # A source from another package may have codes of its own.
    cause = CODES[code].means if code in CODES else ""
    return Problem(verdict, code, cause, next_step_of(code), of, ((what, of),), *fixing)


def _of_table(mirror: Mirror, ledger: Engine, table: TableView) -> Iterator[Problem]:
    source, recorded = table.source, table.recorded
    if table.verdict not in (Verdict.PASS, Verdict.LOSSES):
        fixing = fixes.of_table(mirror, table, *_choices(ledger, table))
        stopped = _problem(table.verdict, table.code, table.what, source, fixing)
        yield replace(stopped, waiting=table.waiting.changes, since=table.since)
    for loss in table.losses:
        yield from _of_loss(mirror, loss, table.dead_letters, source)
    if recorded is not None and recorded.proof.verdict is ProofVerdict.DIFFERENT:
        proof = recorded.proof
        what = f"{words.amount(proof.differing, 'row differs', 'rows differ')} of {proof.rows:,}"
        yield _problem(Verdict.LOSSES, _NOT_EQUAL, what, source, fixes.of_difference(mirror, source, recorded.id))


def _of_loss(mirror: Mirror, loss: Loss, letters: OpenLetters, source: str) -> Iterator[Problem]:
    """The problem of one loss; a loss by dead letters gives one problem for each code of theirs."""
    if loss.code not in (DEAD_LETTERS_OPEN, DEAD_LETTERS_UNNAMED):
        yield _problem(Verdict.LOSSES, loss.code, loss.what, source, fixes.of_loss(mirror, loss.code, source))
        return
    for code, count in letters.by_code.items():
        reason = f": {letters.example.reason}" if letters.example is not None and letters.example.code == code else ""
        what = f"{words.amount(count, 'dead letter')}{reason}"
        yield _problem(Verdict.LOSSES, code, what, source, fixes.of_letters(mirror, code, source))


def _choices(ledger: Engine, table: TableView) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What an operator may choose to end a stop: streams not accepted yet, and columns that only some rows have."""
    if table.code == EPOCH_UNKNOWN:
        with ledger.connect() as db:
            row = db.execute(sa.select(t.mirrored_table).where(t.mirrored_table.c.id == table.state.id)).one()
            return tuple(sorted(unknown_epochs(db, row))), ()
    if table.code not in (RENAME_POSSIBLE, COLUMN_NOT_STREAMED):
        return (), ()
    reader = LedgerReader(ledger, "")
    lists = [sorted(one.names) for one in reader.column_lists([table.state.id]).get(table.state.id, ())]
    loaded = [[column.name for column in table.state.columns.columns]] if table.code == COLUMN_NOT_STREAMED else []
    names = dict.fromkeys(name for one in (*loaded, *lists) for name in one)
    some = [name for name in names if not all(name in one for one in lists)]
    return (), tuple(some or names)
