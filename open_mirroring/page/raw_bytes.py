"""Shows what the change log has of a message that could not be read, as text that is safe to show."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import sqlalchemy as sa
from sqlalchemy import Engine

from open_mirroring.config import Mirror
from open_mirroring.config.storage import log_place
from open_mirroring.errors import MirroringError
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.extract_ledger import LetterPlace, Manifest
from open_mirroring.page.safe_text import visible
from open_mirroring.storage.arrow_files import arrow_files, arrow_path

SHOWN_BYTES = 2_000


def raw_text(mirror: Mirror, ledger: Engine, at: LetterPlace) -> str | None:
    """The first bytes of a message; None where the log has none of it, or cannot be read from here."""
    c = t.log_batch.c
    query = sa.select(c.manifest).where(c.mirror == mirror.name, c.number == at.batch)
    with ledger.connect() as db:
        text = db.scalar(query)
    if text is None:
        return None
    wanted = [("kind", "=", "rejected"), ("origin", "=", at.origin), ("place", "=", at.place)]
    for file in Manifest.from_json(text).files:
        try:
            path = log_place(mirror) / str(file["path"])
            if not path.exists():
                continue
            where = {"filesystem": arrow_files(path), "partitioning": None}
            found = pq.read_table(arrow_path(path), columns=["raw"], filters=wanted, **where)
        except (OSError, pa.ArrowException, MirroringError):
            continue
        for raw in pc.drop_null(found["raw"]).to_pylist():
            return escaped(raw)
    return None


def escaped(raw: bytes) -> str:
    """Bytes as printable text, at most so many."""
    text = raw[:SHOWN_BYTES].decode("utf-8", errors="backslashreplace")
    shown = visible(text)
    more = len(raw) - SHOWN_BYTES
    return shown + (f" … and {more:,} bytes more" if more > 0 else "")
