"""Opens the Delta table of a change log, in a folder or in object storage, and converts its errors into ours."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from open_mirroring.errors import MirroringError, TerminalError, TransientError
from open_mirroring.reconciliation.owning import MIRROR_CLASH, OWN_PLACE
from open_mirroring.storage.object_path import Place, delta_address

COMMIT_FAILED = "CHANGED_MEANWHILE"
_FULL = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT))
"""The system's texts for a full disk or an exceeded quota: delta-rs does not keep the error number."""
_COLOURS = re.compile(r"\x1b\[\d*m")


def opened_log(root: Place) -> DeltaTable | None:
    """The newest version of the change log; None if there is no change log.

    Creates nothing. Raises ``CHANGED_MEANWHILE`` if the Delta table cannot be opened.
    """
    with our_log_errors(root, "it cannot be opened"):
        uri, options = delta_address(root)
        try:
            return DeltaTable(uri, storage_options=options) if DeltaTable.is_deltatable(uri, options) else None
        except TableNotFoundError:
            return None


def refuse_foreign(table: DeltaTable, root: Place, mirror: str) -> None:
    """Raise ``MIRROR_CLASH`` if the Delta table's name is not the name of this mirror's change log."""
    named = table.metadata().name
    if named != mirror:
        owner = f"mirror {named!r}" if named else "another writer"
        raise TerminalError(MIRROR_CLASH, f"the change log is that of {owner}", where=str(root), next_step=OWN_PLACE)


def upgraded(table: DeltaTable) -> str:
    """Why the change log's files cannot be read directly, such as deletion vectors; empty if they can."""
    protocol = table.protocol()
    if protocol.min_reader_version <= 1 and protocol.min_writer_version <= 2:
        return ""
    features = [*(protocol.reader_features or []), *(protocol.writer_features or [])]
    return (
        f"the change log was upgraded to reader {protocol.min_reader_version}, "
        f"writer {protocol.min_writer_version}, features {features}"
    )


@contextmanager
def our_log_errors(root: Place, what: str) -> Iterator[None]:
    """Convert errors of delta-rs into ours; *what* describes what failed. Signed addresses are left out of messages."""
    try:
        yield
    except (DeltaError, OSError) as error:
        raise log_error(root, what, error) from (error if isinstance(root, Path) else None)


def log_error(root: Place, what: str, error: Exception) -> MirroringError:
    """Convert one error of delta-rs into ours; *what* describes what failed."""
    if not isinstance(root, Path) and isinstance(error, OSError):
        return root.store.our_error(error, root.key)
    # The text has several lines, with colors.
    said = " ".join(_COLOURS.sub("", str(error)).split()) if isinstance(root, Path) else type(error).__name__
    if isinstance(root, Path) and any(words in said for words in _FULL):
        next_step = "free space or raise the quota; the next run goes on"
        return TransientError("DISK_FULL", f"the change log: {what}: {said}", where=str(root), next_step=next_step)
    return TransientError(
        COMMIT_FAILED,
        f"the change log: {what}: {said}",
        where=str(root),
        next_step="try again later; if it stays so, look at the storage of the change log",
    )


def log_files(root: Place) -> list[str]:
    """The paths of all files of the change log, relative to its folder; empty if there is no change log."""
    table = opened_log(root)
    # Addresses are percent-encoded, but the last two parts, block and name, never need it.
    uris = [] if table is None else table.file_uris()
    return ["/".join(uri.split("/")[-2:]) for uri in uris]
