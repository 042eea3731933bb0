"""Lists what can be done about a mirror or a table: by a button of the page, or by a command to copy."""

from __future__ import annotations

from dataclasses import dataclass, replace

from open_mirroring.codes import WHY_RESET, Trait, having
from open_mirroring.config import Mirror
from open_mirroring.config.source import ChangeTables
from open_mirroring.ledger.decisions import EPOCH_UNKNOWN, RENAME_POSSIBLE
from open_mirroring.operate import operations
from open_mirroring.operate.deciding import LOOK
from open_mirroring.operate.mirror_view import MirrorView, TableView
from open_mirroring.operate.operations import Operation
from open_mirroring.protocols import table_losses, verdicts
from open_mirroring.protocols.resetting import RESET_OPEN
from open_mirroring.protocols.table_stops import KEY_MENDED, LOAD_REPEATED, NEW_TABLE, RELOAD_SEEN
from open_mirroring.protocols.verdicts import Verdict


@dataclass(frozen=True)
class Choice:
    """What has to be chosen for a decision."""

    name: str
    label: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Button:
    """A decision that the page takes. *subject* says of what of the table: a stream, or a code of dead letters."""

    action: str
    label: str
    effect: str
    subject: str = ""
    choices: tuple[Choice, ...] = ()


@dataclass(frozen=True)
class Command:
    """A command to copy: what a button cannot do, because it takes long, needs Spark, or deletes something."""

    text: str
    effect: str


@dataclass(frozen=True)
class WaysOut:
    """What can be done, the likely one first."""

    buttons: tuple[Button, ...] = ()
    commands: tuple[Command, ...] = ()


def of_table(mirror: Mirror, table: TableView, unknown_epochs: tuple[str, ...], columns: tuple[str, ...]) -> WaysOut:
    """The ways out for a table as it is."""
    buttons: list[Button] = []
    commands: list[Command] = []
    reset = _command(mirror, operations.RELOAD, table=table.source)
    is_stopped = table.verdict is Verdict.STOP
    is_kept = is_stopped and table.since is not None
    if is_kept and table.code == EPOCH_UNKNOWN:
        accept = operations.ACCEPT_EPOCH
        buttons += [_button(accept, f"Accept stream {epoch}", subject=epoch) for epoch in unknown_epochs]
        begin_so = (one.source for one in mirror.tables if one.begins_with_load_of_task)
        if isinstance(mirror.source, ChangeTables) and table.source in begin_so:
            buttons.insert(0, _button(operations.ACCEPT_RELOAD))
        commands.append(reset)
    elif is_kept and table.code == RENAME_POSSIBLE:
        old, new = Choice("subject", "Old name", columns), Choice("renamed_to", "New name", columns)
        accept = operations.ACCEPT_SCHEMA
        effect = "the table goes on without it"
        buttons.append(_button(accept, "A column was dropped", effect, choices=(replace(old, label="Column"),)))
        effect = "the table waits for a reload"
        buttons.append(_button(accept, "A column was renamed", effect, choices=(old, new)))
        commands.append(reset)
    elif is_kept and table.code == NEW_TABLE:
        buttons.append(_button(operations.ACCEPT_TABLE))
    elif is_kept and table.code in (RELOAD_SEEN, LOAD_REPEATED):
        buttons.append(_button(operations.ACCEPT_RELOAD))
        if table.code == LOAD_REPEATED:
            effect = "messages were only delivered twice, and nothing was loaded again: clear the stop"
            buttons.append(_button(operations.RESUME, effect=effect))
        commands.append(reset)
    elif is_kept and table.code in WHY_RESET:
        commands.append(reset)
    elif (is_kept and table.code != KEY_MENDED) or table.code == verdicts.TARGET_RESTARTED:
        buttons.append(_button(operations.RESUME))
        commands.append(reset)
    elif is_stopped and table.code != KEY_MENDED:
        if table.code in having(Trait.REPAIRABLE):
            commands.append(_command(mirror, operations.REPAIR, table=table.source, not_applied="HOW_YOU_KNOW"))
        commands.append(reset)
    if table.code == verdicts.LOAD_PENDING:
        commands.append(_command(mirror, operations.INITIAL_LOAD))
    if table.code == RESET_OPEN:
        buttons += [_button(operations.TARGET_GONE), _button(operations.TARGET_BACK)]
        commands.append(reset)
    if reset not in commands and any(loss.code in having(Trait.RESET_HELPS) for loss in table.losses):
        commands.append(reset)
    if table.dead_letters.count:
        commands.append(_command(mirror, operations.REPLAY, table=table.source))
    if table.code in having(Trait.RUN_HELPS):
        commands.append(_command(mirror, operations.TICK))
    if table.verdict is not Verdict.PASS:
        buttons.append(_LOOK)
    return WaysOut(tuple(buttons), tuple(commands))


def of_mirror(mirror: Mirror, found: MirrorView) -> WaysOut:
    """The ways out for what concerns the mirror as a whole."""
    buttons = [] if found.stop is None else [_button(operations.RESUME_EXTRACTION)]
    commands: list[Command] = []
    for loss in found.losses:
        if loss.code == table_losses.DEAD_LETTERS_HOMELESS:
            commands.append(_command(mirror, operations.REPLAY, code="CODE"))
        elif loss.code == table_losses.OFFSETS_MISSING:
            effect = "accept the missing messages as lost; deliver them instead where you can"
            text = operations.ACCEPT_LETTERS.command(mirror.file, code=loss.code)
            commands.append(Command(text, effect))
        elif loss.code in having(Trait.RUN_HELPS):
            commands.append(_command(mirror, operations.TICK))
    if found.verdict is not Verdict.PASS:
        buttons.append(_LOOK)
    return WaysOut(tuple(buttons), tuple(commands))


_LOOK = Button(LOOK, "Look again now", "inspect ledger and landing zone, and record the verdicts; nothing changes")


def _button(
    decision: Operation, label: str = "", effect: str = "", subject: str = "", choices: tuple[Choice, ...] = ()
) -> Button:
    return Button(decision.name, label or decision.label, effect or decision.about, subject, choices)


def _command(mirror: Mirror, operation: Operation, **given: str) -> Command:
    return Command(operation.command(mirror.file, **given), operation.about)
