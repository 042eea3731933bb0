"""A mirror for tests of the page: published files by the real protocol, log, letters and stops in its ledger, no Spark.

Its names and values are hostile where a source may choose them.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import uvicorn
import yaml
from fastapi import FastAPI

from open_mirroring.changes.places_seen import PlacesSeen
from open_mirroring.config import load_mirror
from open_mirroring.facts.column_lists import ColumnList
from open_mirroring.landing_zone import layout
from open_mirroring.ledger import open_ledger
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.documents import COLUMN_LISTS, EPOCHS, Documents
from open_mirroring.ledger.proofs import ProofLedger, RecordedProof
from open_mirroring.page import Door, LoopbackDoor, MirrorShelf, Surroundings, build_app
from open_mirroring.protocols.proving import Position, Proof
from tests.hand_published import CUSTOMERS, ORDERS, HandPublished

HOSTILE = "dbo.<img src=x onerror=alert(1)>\"'&amp;{{7*7}}‮"
PAYMENTS = "dbo.payments"
GUID = "11111111-2222-3333-4444-555555555555"
RAW = b'{"id": 7, "note": "<script>alert(document.domain)</script>\x00\xff'


class PageMirror(HandPublished):
    """Orders, customers, payments and a table of a hostile name; all but customers are in the log and published."""

    def __init__(self, folder: Path, like: PageMirror | None = None, *, hostile: str = HOSTILE) -> None:
        self.hostile = hostile
        if like is not None:
            # The files of the landing zone are known by their inodes.
            shutil.copytree(like.folder / "zone", folder / "zone", copy_function=os.link)
            shutil.copy(like.folder / "ledger.db", folder)
        super().__init__(folder)
        document = yaml.safe_load(self.file.read_text(encoding="utf-8"))
        document["tables"] += [
            {"source": PAYMENTS, "target": "dbo/payments", "key": ["id"]},
            {"source": hostile, "target": "dbo/hostile", "key": ["id"]},
        ]
        self.file.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), encoding="utf-8")
        self.mirror = load_mirror(self.file)
        self.ledger = open_ledger(self.mirror.ledger_url())
        self.batches |= {PAYMENTS: [], hostile: []}
        self.now = like.now if like is not None else datetime.now(UTC)

    def insert(self, table: Any, **values: Any) -> None:
        with self.ledger.begin() as db:
            db.execute(table.insert().values(**values))

    def keep(self, kind: Documents[Any], owner: str, **values: Any) -> None:
        """Documents of a mirror or a table, by name."""
        with self.ledger.begin() as db:
            kind.put(db, owner, values)

    def fill(self) -> None:
        """Three batches, all published but the last one of payments; nothing is wrong."""
        names = [name.removeprefix("dbo.") for name in self.batches]
        for number in (1, 2):
            self.log(number, {source: 2 for source in self.batches}, ago=timedelta(hours=30 - 10 * number))
            self.publish(**{name: [number, number + 10] for name in names})
        self.log(3, {PAYMENTS: 5}, ago=timedelta(minutes=12))
        ids = {source: state.id for source, state in self.reader.tables().items()}
        proved = Proof(Position(2, "0:A:1:1"), "dbo", 1, 4, 4, proved_at=self.now)
        for source in (ORDERS, CUSTOMERS):
            ProofLedger(self.ledger).record(RecordedProof(str(uuid4()), ids[source], 1, proved))
        self.look()
        with self.ledger.connect() as db:
            db.exec_driver_sql("COMMIT")
            db.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
            db.exec_driver_sql("BEGIN")

    def log(self, number: int, rows: dict[str, int], *, ago: timedelta, rejected: bool = False) -> None:
        """A committed batch; with *rejected*, its log file holds one dead letter with its bytes."""
        at, files = self.now - ago, []
        if rejected:
            path = Path("batch_block=0") / f"{number:012d}-a-0.parquet"
            (self.folder / "log" / path).parent.mkdir(parents=True, exist_ok=True)
            found = pa.table({"kind": ["rejected"], "origin": ["f<b>"], "place": [4], "raw": [RAW]})
            pq.write_table(found, self.folder / "log" / path)
            files = [{"path": str(path), "rows": 1, "size": 1, "tables": {}}]
        counts = {"messages": sum(rows.values()), "changes": sum(rows.values())}
        manifest = json.dumps({"counts": counts, "files": files})
        times = {"bound_at": at - timedelta(seconds=4), "committed_at": at}
        self.insert(t.log_batch, mirror="shop", number=number, ranges="[]", manifest=manifest, **times)
        for source, count in rows.items():
            bounds = {"min_pos": "A:1:1", "max_pos": f"A:{number}:1", "files": "[]"}
            self.insert(t.batch_table, mirror="shop", source=source, batch=number, epoch=GUID, rows=count, **bounds)
        with self.ledger.begin() as db:
            db.execute(t.mirror.update().values(committed=number))

    def letter(
        self, source: str | None, code: str = "MESSAGE_INVALID", batch: int = 4, reason: str = "cut at <b>7</b>"
    ) -> None:
        """An open dead letter whose bytes are in the log."""
        known = {"reason": reason, "key": '["<i>7</i>"]', "letters": 1, "looked_to": 0}
        self.insert(
            t.open_letter, mirror="shop", batch=batch, origin="f<b>", place=4, source=source, code=code, **known
        )

    def break_things(
        self,
        stop: str = "the column <b>total</b> is int in the log and was decimal",
        reason: str = "cut at <b>7</b>",
        batch: int = 4,
    ) -> None:
        """Orders is stopped by what reading found, and the hostile table has a dead letter."""
        self.log(batch, {}, ago=timedelta(minutes=2), rejected=True)
        self.letter(self.hostile, reason=reason, batch=batch)
        self.stop(ORDERS, "TYPE_UNSUPPORTED", stop)
        self.look()

    def stop(self, source: str, code: str, what: str) -> None:
        with self.ledger.begin() as db:
            stopped = {"stop_code": code, "stop_what": what, "stopped_at": self.now}
            db.execute(t.mirrored_table.update().where(t.mirrored_table.c.source == source).values(**stopped))

    def drop_a_column(self, new: str = "<b>cost") -> None:
        """Orders is stopped: its newest rows have no price, and another column."""
        state = self.table()
        for names, position in ((["id", "price"], "A:1:1"), (["id", new], "A:2:1")):
            cols = json.dumps([[name, "int", at] for at, name in enumerate(names)])
            seen = {GUID: PlacesSeen(*[position] * 4)}
            self.keep(COLUMN_LISTS, state.id, **{position: ColumnList(cols, True, position, seen)})
        self.keep(EPOCHS, state.id, **{GUID: 0})
        self.stop(ORDERS, "RENAME_POSSIBLE", "price is gone, cost came")

    def live_a_week(self) -> None:
        """Batches of every table in the last seven days, published later and later, and applied."""
        names = [name.removeprefix("dbo.") for name in self.batches]
        for number, hours in enumerate([*range(165, 24, -20), *range(23, 0, -1)], 1):
            rows = 2 + number % 5
            self.log(number, dict.fromkeys(self.batches, rows), ago=timedelta(hours=hours))
            self.publish(**{name: range(rows) for name in names})
            # The target has applied all files but the newest.
            for source in self.batches if number > 1 else ():
                processed = self.path(number - 1, source).parent / layout.PROCESSED_FOLDER
                processed.mkdir(exist_ok=True)
                self.path(number - 1, source).rename(processed / layout.file_name(number - 1))
            of_batch = t.published_file.c.number == number
            at = self.now - timedelta(hours=hours) + timedelta(minutes=number)
            with self.ledger.begin() as db:
                db.execute(t.published_file.update().where(of_batch).values(confirmed_at=at))
                db.execute(t.publication.update().values(confirmed_at=at).where(t.publication.c.batch_to == number))
        ids = {source: state.id for source, state in self.reader.tables().items()}
        for days, source in ((6, ORDERS), (4, CUSTOMERS), (2, PAYMENTS)):
            proved = Proof(Position(2, None), "dbo", 1, 900, 900, proved_at=self.now - timedelta(days=days))
            ProofLedger(self.ledger).record(RecordedProof(str(uuid4()), ids[source], 1, proved))

    def app(self, door: Door | None = None, **more: Any) -> FastAPI:
        return build_app(Surroundings(MirrorShelf([self.file.parent]), door or LoopbackDoor(), **more))


def form_of(page: str, label: str) -> dict[str, str]:
    """The hidden values of the form under a button, or in front of one that asks for nothing."""
    found = page.partition(f"<summary>{label}</summary>")[2].partition("</form>")[0]
    found = found or next(form for form in re.findall(r"<form.*?</form>", page, re.S) if f">{label}</button>" in form)
    return {name: html.unescape(v) for name, v in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', found)}


@contextmanager
def served(app: FastAPI) -> Iterator[str]:
    """The address of an app that is served on this machine."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    give_up = time.monotonic() + 300
    while not server.started:
        assert time.monotonic() < give_up and thread.is_alive()
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join(timeout=300)
