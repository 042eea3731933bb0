"""The ports of the extract machine in memory: the ledger's row of a mirror, the change log, and its maintenance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from open_mirroring.protocols import extracting as x

from .canonical import CURRENT


class LogFile(NamedTuple):
    """All files of one attempt at a batch, or what a compaction made of them."""

    batch: int
    attempt: str
    compacted: bool = False

    @property
    def manifest(self) -> str:
        """The manifest that names these files."""
        return f"{self.batch}.{self.attempt}"


def files_of(manifest: str) -> LogFile:
    """The files that a manifest names."""
    batch, attempt = manifest.split(".")
    return LogFile(int(batch), attempt)


class Ledger:
    """The mirror's row with compare-and-set on its version."""

    unconditional: tuple[type, ...] = (x.Acquire,)
    """Writes that do not compare the row's version."""

    def write(self, row: x.MirrorRow, request: Any) -> x.MirrorRow | None:
        """The row after the write; None when it was lost to somebody else's."""
        if not isinstance(request, self.unconditional) and request.version != CURRENT:
            return None
        match request:
            case x.Bind(_, batch):
                return replace(row, batch=batch)
            case x.Seal(_, manifest):
                return row if row.batch is None else replace(row, batch=replace(row.batch, manifest=manifest))
            case x.Complete():
                return row if row.batch is None else replace(row, committed=row.batch.number, batch=None)
            case x.Stop(_, code, _):
                return replace(row, stop=code)
        return row


class ChangeLog:
    """The newest state of a log that is a list of commits; *live* are the files it holds."""

    conditional = True
    """A commit on top of a state that is not the newest any more is refused."""

    def manifest(self, live: tuple[LogFile, ...], batch: x.Batch) -> str | None:
        """The batch's manifest as the log has it: the application transaction tells whether it was ever committed."""
        if max((file.batch for file in live), default=0) < batch.number:
            return None
        sealed = batch.manifest
        return sealed if sealed is not None and files_of(sealed) in live else "other files"


class Maintenance:
    """Compaction and VACUUM: they read the ledger, then the log, and touch completed batches only."""

    ledger_first = True

    def may_touch(self, batch: int, completed: int) -> bool:
        """Whether files of a batch may be rewritten or deleted, given the last completed batch that was read."""
        return batch <= completed
