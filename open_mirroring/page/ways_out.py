"""Lists what can be done about a mirror or a table: by a button of the page, or by a command to copy."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from open_mirroring.codes import WHY_RESET, Trait, having
from open_mirroring.config import Mirror
from open_mirroring.config.source import ChangeTables
from open_mirroring.ledger.decisions import EPOCH_UNKNOWN, RENAME_POSSIBLE
from open_mirroring.ledger.requests import (
    ACCEPT_EPOCH,
    ACCEPT_RELOAD,
    ACCEPT_SCHEMA,
    ACCEPT_TABLE,
    RESUME,
    RESUME_EXTRACTION,
    TARGET_BACK,
    TARGET_GONE,
)
from open_mirroring.operate.deciding import LOOK
from open_mirroring.operate.mirror_view import MirrorView, TableView
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
    why = "--reason WHY --approved-by NAME"
    reset = Command(_command(mirror, "reload-table", table, why), "drops the table at the target and builds it anew")
    is_kept = table.verdict is Verdict.STOP and table.since is not None
    if is_kept and table.code == EPOCH_UNKNOWN:
        effect = "all its changes count as later than those of the streams before; the stop is cleared"
        buttons += [Button(ACCEPT_EPOCH, f"Accept stream {epoch}", effect, epoch) for epoch in unknown_epochs]
        begin_so = (one.source for one in mirror.tables if one.begins_with_load_of_task)
        if isinstance(mirror.source, ChangeTables) and table.source in begin_so:
            effect = "the task has written its full load anew: the next run builds the table from it"
            buttons.insert(0, Button(ACCEPT_RELOAD, "Accept the newest full load", effect))
        commands.append(reset)
    elif is_kept and table.code == RENAME_POSSIBLE:
        column = Choice("subject", "Column", columns)
        buttons.append(Button(ACCEPT_SCHEMA, "A column was dropped", "the table goes on without it", choices=(column,)))
        renamed = Choice("subject", "Old name", columns), Choice("renamed_to", "New name", columns)
        effect = "the table waits until it is loaded anew"
        buttons.append(Button(ACCEPT_SCHEMA, "A column was renamed", effect, choices=renamed))
        commands.append(reset)
    elif is_kept and table.code == NEW_TABLE:
        effect = "the next run publishes its changes, from the first one on"
        buttons.append(Button(ACCEPT_TABLE, "Mirror this table", effect))
    elif is_kept and table.code in (RELOAD_SEEN, LOAD_REPEATED):
        effect = (
            "the load at the source has ended: the next run builds the table anew from it and the changes behind it"
        )
        buttons.append(Button(ACCEPT_RELOAD, "Accept the newest full load", effect))
        if table.code == LOAD_REPEATED:
            effect = "messages were only delivered twice, and nothing was loaded again: clears the stop"
            buttons.append(Button(RESUME, "Resume this table", effect))
        commands.append(reset)
    elif is_kept and table.code in WHY_RESET:
        commands.append(reset)
    elif (is_kept and table.code != KEY_MENDED) or table.code == verdicts.TARGET_RESTARTED:
        effect = "clears the stop; the next run checks again, and stops again if the cause is still there"
        buttons.append(Button(RESUME, "Resume this table", effect))
        commands.append(reset)
    elif table.verdict is Verdict.STOP and table.code != KEY_MENDED:
        if table.code in having(Trait.REPAIRABLE):
            more = f"--number N {why} --not-applied HOW_YOU_KNOW"
            effect = "publishes a lost number once more, if the target has not applied it"
            commands.append(Command(_command(mirror, "repair", table, more), effect))
        commands.append(reset)
    if table.code == verdicts.LOAD_PENDING:
        commands.append(Command(_command(mirror, "initial-load"), "loads the first rows; goes on where it stopped"))
    if table.code == RESET_OPEN:
        gone = "the folder is deleted, and you see at the target that the table is gone: its reset goes on. Never of a "
        buttons.append(Button(TARGET_GONE, "The table is gone", gone + "table that is still there"))
        buttons.append(Button(TARGET_BACK, "The table is back", "you see at the target that it was made anew"))
        commands.append(reset)
    if reset not in commands and any(loss.code in having(Trait.RESET_HELPS) for loss in table.losses):
        commands.append(reset)
    if table.dead_letters.count:
        commands.append(_replay(mirror, f"--table {shlex.quote(table.source)}"))
    if table.code in having(Trait.RUN_HELPS):
        commands.append(_tick(mirror))
    if table.verdict is not Verdict.PASS:
        buttons.append(_look())
    return WaysOut(tuple(buttons), tuple(commands))


def of_mirror(mirror: Mirror, found: MirrorView) -> WaysOut:
    """The ways out for what concerns the mirror as a whole."""
    buttons: list[Button] = []
    commands: list[Command] = []
    if found.stop is not None:
        effect = "clears the stop of reading; the next run compares log and ledger again"
        buttons.append(Button(RESUME_EXTRACTION, "Resume reading", effect))
    for loss in found.losses:
        if loss.code == table_losses.DEAD_LETTERS_HOMELESS:
            commands.append(_replay(mirror, "--code CODE"))
        elif loss.code == table_losses.OFFSETS_MISSING:
            more = f"--code {loss.code} --why WHY"
            effect = "says that the missing messages are lost; deliver them instead where you can"
            commands.append(Command(_command(mirror, "accept-dead-letters", more=more), effect))
        elif loss.code in having(Trait.RUN_HELPS):
            commands.append(_tick(mirror))
    if found.verdict is not Verdict.PASS:
        buttons.append(_look())
    return WaysOut(tuple(buttons), tuple(commands))


def proof(mirror: Mirror, source: str) -> str:
    """The command that compares a table with its source."""
    return shlex.join(["open-mirroring", "prove", str(mirror.file), "--tables", source])


def _look() -> Button:
    return Button(LOOK, "Look again now", "inspects ledger and landing zone, and records the verdicts; changes nothing")


def _tick(mirror: Mirror) -> Command:
    return Command(_command(mirror, "tick"), "reads what is new, publishes what may be published, and looks")


def _replay(mirror: Mirror, chosen: str) -> Command:
    effect = "decodes open dead letters again, by today's decoder and settings"
    return Command(_command(mirror, "replay-dead-letters", more=chosen), effect)


def _command(mirror: Mirror, name: str, table: TableView | None = None, more: str = "") -> str:
    named = [] if table is None else ["--table", table.source]
    words = shlex.join(["open-mirroring", name, str(mirror.file), *named])
    return f"{words} {more}".strip()
