"""Finds the fixes for a problem: buttons of the page, and commands for an operator to copy."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from open_mirroring.changes.history_names import is_history
from open_mirroring.codes import WHY_RESET, Trait, having
from open_mirroring.config import Mirror
from open_mirroring.config.source import ChangeTables
from open_mirroring.ledger.decisions import EPOCH_UNKNOWN, RENAME_POSSIBLE
from open_mirroring.operate import operations
from open_mirroring.operate.mirror_view import TableView
from open_mirroring.operate.operations import Operation
from open_mirroring.protocols import table_losses, verdicts
from open_mirroring.protocols.resetting import RESET_OPEN
from open_mirroring.protocols.table_stops import (
    COLUMN_NOT_STREAMED,
    KEY_CORRECTED,
    LOAD_REPEATED,
    NEW_TABLE,
    RELOAD_SEEN,
)
from open_mirroring.protocols.verdicts import Verdict


@dataclass(frozen=True)
class Choice:
    """A selection field of a decision, such as which column was dropped; *is_many* allows several values."""

    name: str
    label: str
    values: tuple[str, ...]
    is_many: bool = False


@dataclass(frozen=True)
class Button:
    """A decision that the page offers.

    *action* is the operation; *subject* is the stream or code that is decided about.
    """

    action: str
    label: str
    effect: str
    subject: str = ""
    choices: tuple[Choice, ...] = ()


@dataclass(frozen=True)
class Command:
    """A command to copy, for a fix that no button can do: it runs long, needs Spark, or deletes something."""

    text: str
    effect: str


Fixes = tuple[tuple[Button, ...], tuple[Command, ...]]
"""Buttons and commands, the most likely fix first."""


def of_table(mirror: Mirror, table: TableView, unknown_epochs: tuple[str, ...], columns: tuple[str, ...]) -> Fixes:
    """Return the fixes for a table that is stopped or on hold.

    *unknown_epochs* (streams of unknown order) and *columns* are the values among which an operator may choose.
    """
    code, is_stopped, commands = table.code, table.verdict is Verdict.STOP, list[Command]()
    buttons: list[Button] = []
    if is_stopped and table.since is not None:
        buttons += _of_stop(mirror, table, unknown_epochs, columns)
    elif code == verdicts.TARGET_RESTARTED:
        buttons.append(_button(operations.RESUME))
    elif is_stopped and code in having(Trait.REPAIRABLE):
        numbers = re.findall(r"\d+", table.what)
        lost = {"number": numbers[0]} if len(numbers) == 1 else {}
        commands.append(_command(mirror, operations.REPAIR, table=table.source, not_applied="HOW_YOU_KNOW", **lost))
    if code == verdicts.LOAD_PENDING:
        commands.append(_command(mirror, operations.INITIAL_LOAD))
    if code == RESET_OPEN:
        buttons += [_button(operations.TARGET_GONE), _button(operations.TARGET_BACK)]
    if (is_stopped and code not in (NEW_TABLE, KEY_CORRECTED)) or code == RESET_OPEN:
        commands.append(_command(mirror, operations.RELOAD, table=table.source))
    if code in having(Trait.RUN_HELPS):
        commands.append(_command(mirror, operations.TICK))
    if code in having(Trait.ASKS_OPERATOR) or table.verdict is None:
        commands.append(Command(f"open-mirroring check {shlex.quote(str(mirror.file))}", _CHECK))
    return tuple(buttons), tuple(commands)


def _of_stop(mirror: Mirror, table: TableView, epochs: tuple[str, ...], columns: tuple[str, ...]) -> Iterator[Button]:
    """The decisions that may end a stop which the ledger has recorded."""
    code, accept = table.code, operations.ACCEPT_SCHEMA
    if code == EPOCH_UNKNOWN:
        begin_so = (one.source for one in mirror.tables if one.begins_with_load_of_task)
        if isinstance(mirror.source, ChangeTables) and table.source in begin_so:
            yield _button(operations.ACCEPT_RELOAD)
        for epoch in epochs:
            yield _button(operations.ACCEPT_EPOCH, f"Accept stream {epoch}", subject=epoch)
    elif code in (RENAME_POSSIBLE, COLUMN_NOT_STREAMED):
        dropped = Choice("subject", "Columns", columns, is_many=True)
        yield _button(accept, "Columns were dropped", "the table goes on without them", choices=(dropped,))
        if code == RENAME_POSSIBLE:
            choices = Choice("subject", "Old name", columns), Choice("renamed_to", "New name", columns)
            yield _button(accept, "A column was renamed", "the table waits for a reload", choices=choices)
    elif code == NEW_TABLE:
        yield _button(operations.ACCEPT_TABLE)
    elif code in (RELOAD_SEEN, LOAD_REPEATED):
        yield _button(operations.ACCEPT_RELOAD)
        if code == LOAD_REPEATED:
            effect = "messages were only delivered twice, and nothing was loaded again: clear the stop"
            yield _button(operations.RESUME, effect=effect)
    elif code not in WHY_RESET and code != KEY_CORRECTED:
        yield _button(operations.RESUME)


def of_loss(mirror: Mirror, code: str, source: str = "") -> Fixes:
    """Return the fixes for a loss of the table *source*; with an empty *source*, for a loss of the mirror."""
    if code == table_losses.OFFSETS_MISSING:
        effect = "accept the missing messages as lost; deliver them instead where you can"
        return (), (Command(operations.ACCEPT_LETTERS.command(mirror.file, code=code), effect),)
    if code in having(Trait.RUN_HELPS):
        return (), (_command(mirror, operations.TICK),)
    if code in having(Trait.RESET_HELPS):
        return (), (_command(mirror, operations.RELOAD, table=source),)
    return (), ()


def of_letters(mirror: Mirror, code: str, source: str = "") -> Fixes:
    """Return the fixes for open dead letters with one code; with an empty *source*, of those that name no table."""
    effect = "the changes in these dead letters are lost for ever; they no longer count as a loss"
    accept = _button(operations.ACCEPT_LETTERS, f"Accept all of {code} as lost", effect, subject=code)
    return (accept,), (_command(mirror, operations.REPLAY, code=code, table=source),)


def of_difference(mirror: Mirror, source: str, proof: str) -> Fixes:
    """Return the fixes for a table that the proof with the id *proof* found to differ from its source.

    The rows of a history table cannot be corrected.
    """
    if is_history(source):
        return (), (_command(mirror, operations.RELOAD, table=source),)
    found = Command(operations.CORRECT.command(mirror.file, proof=proof), operations.CORRECT.about)
    correct = f"{operations.PROVE.command(mirror.file, tables=source)} --correct --reason TEXT --approved-by NAME"
    effect = "compare the table again, and publish the rows that differ as the source has them now"
    return (), (found, Command(correct, effect), _command(mirror, operations.RELOAD, table=source))


_CHECK = "try every login and every place of the mirror; it reports what is wrong and changes nothing"


def _button(
    decision: Operation, label: str = "", effect: str = "", subject: str = "", choices: tuple[Choice, ...] = ()
) -> Button:
    return Button(decision.name, label or decision.label, effect or decision.about, subject, choices)


def _command(mirror: Mirror, operation: Operation, **given: str) -> Command:
    return Command(operation.command(mirror.file, **given), operation.about)


OF_READING: Fixes = (_button(operations.RESUME_EXTRACTION),), ()
