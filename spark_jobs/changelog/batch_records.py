"""Writes a record of each batch next to the change log, so that a lost ledger can be re-created.

A record has the batch's ranges and manifest, which otherwise only the ledger has. The record is written before the
batch is committed to the change log. The name of the folder of records begins with an underscore, so readers of the
Delta table and Delta's VACUUM ignore the folder.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from uuid import uuid4

from open_mirroring.changes.manifest import BatchRecord, record_name
from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.local_store import make_folders, sync_folder
from open_mirroring.storage.object_path import Place

_READS_AT_ONCE = 16


def write_record(root: Place, number: int, ranges: str, manifest: str) -> None:
    """Write the record of a sealed batch, in one step.

    An existing record with other content is replaced, because its batch was never committed to the change log.
    """
    place, sealed = root / record_name(number), {"batch": number, "ranges": ranges, "manifest": manifest}
    content = json.dumps({**sealed, "at": datetime.now(UTC).isoformat()}, ensure_ascii=False).encode()
    if isinstance(place, Path):
        make_folders(str(place.parent))
        # Atomic: after a crash only another name exists. On disk before the change log's commit.
        written = place.with_name(f".{place.name}.{uuid4().hex}")
        with written.open("xb") as sink:
            sink.write(content)
            sink.flush()
            os.fsync(sink.fileno())
        os.replace(written, place)
        sync_folder(str(place.parent))
        return
    try:
        place.create(content)
    except FileExistsError:
        there = json.loads(place.read_bytes())
        if {name: there.get(name) for name in sealed} != sealed:
            place.store.delete(place.key)
            place.create(content)


def read_records(root: Place, newest: int) -> dict[int, BatchRecord]:
    """Read the existing records of batches up to *newest*, by number; raises ``LOG_DAMAGED`` if one is damaged."""
    with ThreadPoolExecutor(_READS_AT_ONCE) as pool:
        found = pool.map(partial(_read, root), range(1, newest + 1))
        return {record.number: record for record in found if record is not None}


def _read(root: Place, number: int) -> BatchRecord | None:
    place = root / record_name(number)
    try:
        document = json.loads(place.read_bytes())
        at = datetime.fromisoformat(document["at"])
        return BatchRecord(number, at, document["ranges"], document["manifest"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise TerminalError(
            "LOG_DAMAGED",
            f"the record of batch {number} cannot be read: {type(error).__name__}",
            where=str(place),
            next_step="restore the file from a backup of the change log; without one, start over (docs: *Start over*)",
        ) from error
