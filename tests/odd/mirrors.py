"""Odd input that concerns a whole mirror, or is done by somebody: each is a mirror of its own with one table."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import time
from collections.abc import Callable
from typing import Any

import fastavro
import yaml

from tests.odd.ces import own
from tests.odd.inputs import COLUMNS, LEFT_OUT, Ces, Split, lines, make_overdue
from tests.odd.messages import Messages
from tests.pipeline import Pipeline

CASES: dict[str, Callable[[], Any]] = {}
EVENT_DATA = {"type": "record", "name": "EventData", "namespace": "Microsoft.ServiceBus.Messaging", "fields": [
    {"name": "SequenceNumber", "type": "long"}, {"name": "Offset", "type": "string"},
    {"name": "EnqueuedTimeUtc", "type": "string"},
    {"name": "SystemProperties", "type": {"type": "map", "values": ["long", "double", "string", "bytes"]}},
    {"name": "Properties", "type": {"type": "map", "values": ["long", "double", "string", "bytes", "null"]}},
    {"name": "Body", "type": ["null", "bytes"]}]}  # fmt: skip


def case(*, tell: bool = False, **settings: Any) -> Callable[[Callable[[Ces], None]], Callable[[Ces], None]]:
    def take(story: Callable[[Ces], None]) -> Callable[[Ces], None]:
        name = f"w_{story.__name__}"

        def build() -> Ces:
            t = Ces(name)
            t.alone, t.must_tell, t.settings = True, tell, dict(settings)
            story(t)
            return t

        CASES[name] = build
        return story

    return take


def beside(name: str, content: bytes) -> None:
    """A sound event, and this file beside it: a line that was an event of the table, and no more says so."""

    def build() -> Ces:
        t = Ces(f"w_line_{name}")
        t.alone = t.must_tell = True
        t.ins(id="1", name="Ada", price="1.00")
        t.files[-1]["beside.jsonl"] = content
        return t

    CASES[f"w_line_{name}"] = build


def line(value: Any, **more: Any) -> bytes:
    whole = {"topic": "x", "partition": 0, "offset": 0, "timestamp": "", "key": None, "headers": [], "encoding": "utf8",
             "value": value} | more  # fmt: skip
    return json.dumps({n: v for n, v in whole.items() if v is not LEFT_OUT}).encode() + b"\n"


# One call each of what no table is named in; all of them take the way of "a dead letter without a table".
beside("null", line(None))
beside("noise", line("3q2+7w==", encoding="base64"))
beside("not_json", b"INSERT INTO orders\n")


@case(tell=True)
def no_table(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    t.ins(id="2", name="Ada", price="1.00").src = {"tbl": LEFT_OUT}


@case(tell=True)
def pieces_never_complete_at_a_quiet_source(t: Ces) -> None:
    """A piece never comes, the time for it is over, and nothing else ever comes either."""
    t.ins(id="1", name="Ada", price="1.00")
    pieces = Split(t.pull(t.ins(id="2", name="Bob", price="1.00")), 50, 300).pieces
    t.send(pieces[0], pieces[2])
    t.step()
    t.act(make_overdue)


@case(tell=True)
def pieces_wait(t: Ces) -> None:
    """A piece has not come yet, while other messages did: the run itself says so."""
    t.ins(id="1", name="Ada", price="1.00")
    pieces = Split(t.pull(t.ins(id="2", name="Bob", price="1.00")), 50, 300).pieces
    t.send(pieces[0], pieces[2])


@case()
def packed_and_cut(t: Ces) -> None:
    a, b = t.ins(id="1", name="Ada"), t.ins(id="2", name="Bob")
    own(t, "cut.jsonl.gz", a, b, alter=lambda c: gzip.compress(c, mtime=0)[:-30])


@case()
def file_gone_before_it_grew(t: Ces) -> None:
    """A file that was read to its middle is deleted, the rest with it."""
    a, b = t.ins(id="1", name="Ada"), t.ins(id="2", name="Bob")
    own(t, "gone.jsonl", a, b)
    whole = t.files[0]["gone.jsonl"] or b""
    t.files[0]["gone.jsonl"] = whole[: whole.index(b"\n") + 30]
    t.step()
    t.files[-1]["gone.jsonl"] = None


@case()
def last_line_never_whole(t: Ces) -> None:
    """The last line of a file stays without its other half."""
    a, b = t.ins(id="1", name="Ada"), t.ins(id="2", name="Bob")
    own(t, "half.jsonl", a, b, alter=lambda c: c[: c.index(b"\n") + 30])
    t.step()


@case()
def half_a_line_for_days_while_others_arrive(t: Ces) -> None:
    """The last line of a file stays without its other half; other files come with each tick."""
    a, b = t.ins(id="1", name="Ada"), t.ins(id="2", name="Bob")
    own(t, "half.jsonl", a, b, alter=lambda c: c[: c.index(b"\n") + 900])
    for key in ("3", "4"):
        t.step()
        t.act(lambda pipeline: os.utime(pipeline.source / "half.jsonl", (0, 0)))
        own(t, f"more-{key}.jsonl", t.ins(id=key, name="Eve"), first=int(key))


@case()
def half_a_line_left_for_another_file(t: Ces) -> None:
    """The last line of a file stays without its other half; its writer goes on in another file, two minutes later."""
    a, b = t.ins(id="1", name="Ada"), t.ins(id="2", name="Bob")
    own(t, "half.jsonl", a, b, alter=lambda c: c[: c.index(b"\n") + 900])
    own(t, "more.jsonl", t.ins(id="3", name="Eve"), first=3)
    long_ago = time.time() - 120
    t.act(lambda pipeline: os.utime(pipeline.source / "half.jsonl", (long_ago, long_ago)))


@case()
def middle_rewritten(t: Ces) -> None:
    """A large file of lines is written over: only a line in its middle is another one, of the same length."""
    sent = [t.ins(id=str(key), name=f"{'x' * 40}{key:04d}") for key in range(400)]
    own(t, "large.jsonl", *sent)
    t.step()
    t.files[-1]["large.jsonl"] = (t.files[0]["large.jsonl"] or b"").replace(b"x" * 40 + b"0200", b"y" * 40 + b"0200")
    t.rows[200,]["name"] = "y" * 40 + "0200"


@case()
def nothing_ever(t: Ces) -> None:
    """The folder is there and empty; the table has rows."""
    t.put({"id": "1", "name": "Ada", "price": "1.00"})


@case(source={"database": "Shop"})
def database_in_other_case(t: Ces) -> None:
    """The mirror file says `database: Shop`, the events say shop."""
    t.ins(id="1", name="Ada", price="1.00")


@case(source={"database": "sohp"})
def database_misspelled(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")


@case(source={"layout": "bare"})
def wrapped_read_as_bare(t: Ces) -> None:
    """Lines are wrapped, the mirror file says bare."""
    sent = t.ins(id="1", name="Ada", price="1.00")
    t.pull(sent)
    t.files[-1]["a.jsonl"] = lines([sent], {})


@case(source={"layout": "bare"})
def bare_pretty(t: Ces) -> None:
    """Bare events, printed over several lines."""
    sent = t.ins(id="1", name="Ada", price="1.00")
    t.pull(sent)
    t.files[-1]["a.jsonl"] = json.dumps(sent.envelope(), indent=2).encode() + b"\n"


@case()
def bare_read_as_wrapped(t: Ces) -> None:
    sent = t.ins(id="1", name="Ada", price="1.00")
    t.pull(sent)
    t.files[-1]["a.jsonl"] = (sent.body() or b"") + b"\n"


# -- Capture --------------------------------------------------------------------------------------------------------
CAPTURE = {"transport": "capture", "layout": None}


def captured(*bodies: bytes | None, first: int = 0) -> bytes:
    stream = io.BytesIO()
    fastavro.writer(stream, EVENT_DATA, [
        {"SequenceNumber": first + at, "Offset": str(first + at), "EnqueuedTimeUtc": "", "SystemProperties": {},
         "Properties": {}, "Body": body} for at, body in enumerate(bodies)])  # fmt: skip
    return stream.getvalue()


@case(source=CAPTURE)
def capture_in_capitals(t: Ces) -> None:
    a, b = t.ins(id="1", name="x"), t.ins(id="2", name="x")
    t.pull(a), t.pull(b)
    t.files[-1]["ns/hub/0/2026/08/07/16/00/00.avro"] = captured(a.body(), first=0)
    t.files[-1]["ns/hub/0/2026/08/07/16/10/00.AVRO"] = captured(b.body(), first=1)


@case(source=CAPTURE)
def capture_cut(t: Ces) -> None:
    a, b = t.ins(id="1", name="x"), t.ins(id="2", name="y")
    t.pull(a), t.pull(b)
    t.files[-1]["ns/hub/0/2026/08/07/16/00/00.avro"] = captured(a.body(), b.body())[:-40]


@case(source=CAPTURE)
def capture_without_a_byte(t: Ces) -> None:
    """What was captured last did not get there: a Capture's file always has a head."""
    a, b = t.ins(id="1", name="x"), t.ins(id="2", name="y")
    t.pull(a), t.pull(b)
    t.files[-1]["ns/hub/0/2026/08/07/16/00/00.avro"] = captured(a.body())
    t.files[-1]["ns/hub/0/2026/08/07/16/10/00.avro"] = b""
    t.step()


@case(source=CAPTURE)
def capture_first_is_missing(t: Ces) -> None:
    """Retention took the first hours: the first number that is seen is not the first of the partition."""
    a, b = t.ins(id="1", name="x"), t.ins(id="2", name="y")
    t.pull(a), t.pull(b)
    t.files[-1]["ns/hub/0/2026/08/07/16/10/00.avro"] = captured(b.body(), first=1)


@case(source=CAPTURE)
def capture_hole(t: Ces) -> None:
    """A file of the partition has not come yet, while others did."""
    a, b = t.ins(id="1", name="x"), t.ins(id="2", name="y")
    t.pull(a), t.pull(b)
    t.files[-1]["ns/hub/0/2026/08/07/16/00/00.avro"] = captured(a.body())
    t.files[-1]["ns/hub/0/2026/08/07/16/10/00.avro"] = captured(b.body(), first=5)


@case(source=CAPTURE)
def capture_body_null(t: Ces) -> None:
    a = t.pull(t.ins(id="1", name="x"))
    t.must_tell = True
    t.files[-1]["ns/hub/0/2026/08/07/16/00/00.avro"] = captured(a.body(), None)


# -- what somebody does ---------------------------------------------------------------------------------------------
def edited(change: Callable[[dict[str, Any]], None]) -> Callable[[Pipeline], None]:
    def act(pipeline: Pipeline) -> None:
        document = yaml.safe_load(pipeline.file.read_text(encoding="utf-8"))
        change(document)
        pipeline.file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")

    return act


@case()
def columns_listed_later_more(t: Ces) -> None:
    """`columns` gets one more column: rows that are mirrored have values in it at the source."""
    t.table["columns"] = ["id", "name"]
    t.ins(id="1", name="Ada", price="1.00")
    t.step()
    t.act(edited(lambda d: d["tables"][0].pop("columns")))
    t.ins(id="2", name="Bob", price="2.00")


@case()
def columns_listed_later_fewer(t: Ces) -> None:
    """`columns` leaves one out from now on: what is mirrored of it grows old."""
    t.ins(id="1", name="Ada", price="1.00")
    t.ins(id="2", name="Bob", price="1.00")
    t.step()
    t.act(edited(lambda d: d["tables"][0].update(columns=["id", "name"])))
    t.upd(1, price="2.00")


@case(tell=True)
def key_changed_in_the_mirror_file(t: Ces) -> None:
    t.ins(id="1", name="Ada", price="1.00")
    t.step()
    t.act(edited(lambda d: d["tables"][0].update(key=["id", "name"])))
    t.upd(1, name="Eve")


@case()
def initial_load_named_later(t: Ces) -> None:
    """G-130: the table began without an initial load, which the mirror file names later: nobody makes it."""
    t.ins(id="1", name="Ada", price="1.00")
    t.step()
    t.put({"id": "7", "name": "old", "price": "7.00"})
    t.load_files["a.csv"] = b"id,name,price\n7,old,7.00\n"
    load = {"format": "csv", "path": f"export/{t.name}", "stream_from": "beginning", "types": COLUMNS}
    t.act(edited(lambda d: d["tables"][0].update(initial_load=load)))


@case()
def source_path_changed(t: Ces) -> None:
    """The source folder is another one from now on, with the same file names."""
    t.ins(id="1", name="Ada", price="1.00")
    t.step()
    sent = t.pull(t.ins(id="2", name="Bob", price="1.00"))
    content = lines([sent], {})

    def act(pipeline: Pipeline) -> None:
        folder = pipeline.folder / "elsewhere"
        folder.mkdir()
        (folder / "00-all.jsonl").write_bytes(content)
        edited(lambda d: d["source"].update(path="elsewhere"))(pipeline)

    t.act(act)


@case()
def table_taken_out_and_back(t: Ces) -> None:
    """The table is taken out of the mirror file for one tick, in which an event of it comes."""
    t.ins(id="1", name="Ada", price="1.00")
    t.step()
    kept: list[Any] = []

    def out(d: dict[str, Any]) -> None:
        kept.append(d["tables"][0])
        d["tables"] = [{"source": "dbo.other", "target": "dbo/other", "key": ["id"]}]

    t.act(edited(out))
    t.upd(1, name="Eve")
    t.step()
    t.act(edited(lambda d: d.update(tables=[kept[0]])))
    t.ins(id="3", name="x")


@case()
def ledger_lost(t: Ces) -> None:
    """The ledger is gone, the landing zone is full, and the older source files are gone, too."""
    t.ins(id="1", name="Ada", price="1.00")
    t.delete(1)
    t.ins(id="2", name="Bob", price="1.00")
    t.step()

    def act(pipeline: Pipeline) -> None:
        for path in pipeline.folder.glob("ledger.db*"):
            path.unlink()
        (pipeline.source / "00-all.jsonl").unlink()

    t.act(act)


@case()
def log_lost(t: Ces) -> None:
    """The change log is gone; then an event comes late that is older than what is published."""
    late = t.pull(t.ins(id="1", name="Ada", price="1.00"))
    t.upd(1, name="Eve")
    t.step()
    t.act(lambda pipeline: shutil.rmtree(pipeline.log))
    t.send(late)


@case(tell=True)
def target_table_deleted(t: Ces) -> None:
    """Somebody deletes the table's folder in the landing zone."""
    t.ins(id="1", name="Ada", price="1.00")
    t.step()
    t.act(lambda pipeline: shutil.rmtree(pipeline.zone / "dbo.schema"))
    t.upd(1, name="Eve")


@case()
def foreign_file_in_the_zone(t: Ces) -> None:
    """Somebody puts the next number into the zone."""
    t.ins(id="1", name="Ada", price="1.00")
    t.step()

    def act(pipeline: Pipeline) -> None:
        folder = next(pipeline.zone.glob("dbo.schema/*"))
        done = sorted(path for path in folder.rglob("*.parquet") if path.stem.isdigit())
        shutil.copy(done[-1], folder / f"{int(done[-1].stem) + 1:020d}.parquet")

    t.act(act)
    t.upd(1, name="Eve")


@case(source={"format": "qlik-message"}, tell=True)
def metadata_missing_at_a_quiet_source(t: Ces) -> None:
    t.steps[-1].clear()
    m = Messages(t.name)
    m.ins(id=1, name="Ada", price="1.00")
    t.steps[-1] = m.steps[0]
    t.rows = m.rows
    t.step()
    t.act(make_overdue)
