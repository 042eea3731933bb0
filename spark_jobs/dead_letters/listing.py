"""Lists the dead letters of a mirror: messages that could not be read, and changes with values that do not fit.

The unreadable messages are rows of the change log, whose files DuckDB queries; the changes that do not fit are in the
ledger.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from open_mirroring.changes.manifest import LetterPlace
from open_mirroring.codes import next_step_of
from open_mirroring.errors import TerminalError
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.delta_log import log_files
from spark_jobs.changelog.reading import logged
from spark_jobs.changelog.schema import CHANGE, REJECTED
from spark_jobs.dead_letters.open_letters import files_with_letters, untyped_letters


class DeadLetter(NamedTuple):
    """One dead letter: its coordinates and the reason.

    *kind* is ``unreadable`` (a message that could not be decoded) or ``untyped`` (a change with values that do not fit
    the types of its columns). *origin* is the file or partition of the message, *place* its line, sequence number or
    offset there.
    """

    kind: Literal["unreadable", "untyped"]
    batch: int
    table: str | None
    origin: str
    place: int
    position: str | None
    code: str
    reason: str

    @property
    def next_step(self) -> str:
        """What an operator should do about this dead letter."""
        return next_step_of(self.code)


class ListedLetters(NamedTuple):
    """Dead letters, the newest first; *more* is whether there are more dead letters than the limit allowed to list."""

    letters: Sequence[DeadLetter]
    more: bool


def dead_letters(
    log_root: Place, reader: LedgerReader, limit: int, settled: Collection[LetterPlace] = frozenset()
) -> ListedLetters:
    """The newest *limit* dead letters of a mirror, without the *settled* dead letters."""
    found: list[DeadLetter] = []
    query = """SELECT batch, tbl, origin, place, epoch || ' ' || pos, code, reason FROM logged
               WHERE kind = $kind ORDER BY batch DESC, origin, place LIMIT $wanted"""
    if files := files_with_letters(reader):
        # Settled dead letters are skipped, so as many more have to be read.
        parameters = {"kind": REJECTED, "wanted": limit + 1 + len(settled)}
        with logged(log_root, files) as db:
            letters = [DeadLetter("unreadable", *row) for row in db.execute(query, parameters).fetchall()]
        found = [letter for letter in letters if LetterPlace(letter.batch, letter.origin, letter.place) not in settled]
    for one in untyped_letters(reader, settled):
        batch, origin, place = one.at
        position = f"{one.epoch} {one.position}"
        found.append(DeadLetter("untyped", batch, one.table, origin, place, position, one.code, one.reason))
    found.sort(key=lambda letter: (-letter.batch, letter.origin, letter.place))
    return ListedLetters(found[:limit], len(found) > limit)


def write_raw(file: Path, log_root: Place, letters: Iterable[DeadLetter]) -> int:
    """Write the content of dead letters to a new file that only its owner can read; return the number of lines.

    Each line is a JSON object with the coordinates. An unreadable message also has ``raw``, its bytes in base64. A
    change whose values do not fit has ``row`` and ``before``, its row images. Raises ``ARGUMENT_INVALID`` if the file
    exists; ``ACCESS_DENIED`` if it cannot be created for another reason.
    """
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise TerminalError("ARGUMENT_INVALID", f"{file} exists already", next_step="name a new file") from None
    except OSError as error:
        raise TerminalError(
            "ACCESS_DENIED",
            f"{file} cannot be written: {error.strerror}",
            next_step="name a file in a folder that you may write to",
        ) from error
    by_batch: dict[int, list[DeadLetter]] = {}
    for letter in letters:
        by_batch.setdefault(letter.batch, []).append(letter)
    lines = 0
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        for batch, group in by_batch.items():
            for line in _contents(log_root, batch, group):
                out.write(json.dumps(line, ensure_ascii=False) + "\n")
                lines += 1
    return lines


def _contents(log_root: Place, batch: int, letters: Sequence[DeadLetter]) -> list[dict[str, Any]]:
    files = [file for file in log_files(log_root) if Path(file).name.startswith(f"{batch:012d}-")]
    query = """SELECT DISTINCT kind, origin, place, tbl, raw, "row", before FROM logged
               WHERE batch = $batch AND kind IN ($change, $rejected) AND origin IN (SELECT unnest($origins))"""
    parameters = {
        "batch": batch,
        "change": CHANGE,
        "rejected": REJECTED,
        "origins": sorted({letter.origin for letter in letters}),
    }
    wanted = {(_KINDS[letter.kind], letter.origin, letter.place): letter for letter in letters}
    lines = []
    if not files:
        return []
    with logged(log_root, files) as db:
        for kind, origin, place, table, raw, row, before in db.execute(query, parameters).fetchall():
            letter = wanted.get((kind, origin, place))
            if letter is None or (kind == CHANGE and table != letter.table):
                continue
            content: dict[str, Any] = {"row": row, "before": before}
            if kind == REJECTED:
                content = {"raw": None if raw is None else base64.b64encode(raw).decode("ascii")}
            lines.append({**letter._asdict(), **content})
    return lines


_KINDS = {"unreadable": REJECTED, "untyped": CHANGE}
