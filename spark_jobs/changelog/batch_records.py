"""What each batch of the change log was: a small file beside its rows, from which a lost ledger can be made again.

The rows tell neither how far a source was read nor which messages left no row. So what the ledger sealed of a batch
lies in the log's folder as well, written before the log's commit. The name begins with an underscore: no reader of the
table, and no clean-up of it, looks there.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from uuid import uuid4

from open_mirroring.errors import TerminalError
from open_mirroring.reconciliation.rebuilding import BatchRecord
from open_mirroring.storage.object_path import ObjectPath, Place

FOLDER = "_batches"


def write_record(root: Place, number: int, ranges: str, manifest: str, at: datetime | None = None) -> None:
    """Write the record of a sealed batch; one that is there is the same, or of a batch that never came into the log.

    *at* is when it was bound, where that is not just now.
    """
    path = _path(root, number)
    document = {"batch": number, "at": (at or datetime.now(UTC)).isoformat(), "ranges": ranges, "manifest": manifest}
    content = json.dumps(document, ensure_ascii=False)
    if isinstance(path, ObjectPath):
        # An object is whole or not there; one of a killed try gives way, and is written by the next try if that dies.
        path.store.delete(path.key)
        path.create(content.encode())
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # Whole or not at all: what a crash leaves behind has another name.
    written = path.with_name(f".{path.name}.{uuid4().hex}")
    written.write_text(content, encoding="utf-8")
    os.replace(written, path)


def read_records(root: Place, newest: int) -> dict[int, BatchRecord]:
    """The records of the batches up to *newest*, by number; a batch of an earlier version has none.

    Raises:
        TerminalError: ``LOG_RECORD_INVALID`` when one cannot be read.
    """
    found: dict[int, BatchRecord] = {}
    for number in range(1, newest + 1):
        path = _path(root, number)
        try:
            document = json.loads(path.read_bytes())
            at = datetime.fromisoformat(document["at"])
            found[number] = BatchRecord(number, at, document["ranges"], document["manifest"])
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError) as error:
            raise TerminalError(
                "LOG_RECORD_INVALID",
                f"the record of batch {number} cannot be read: {type(error).__name__}",
                where=str(path),
                way_out="restore the file from a backup of the change log; without one, start over (runbook)",
            ) from error
    return found


def _path(root: Place, number: int) -> Place:
    return root / FOLDER / f"{number // 10_000:08d}" / f"{number:012d}.json"
