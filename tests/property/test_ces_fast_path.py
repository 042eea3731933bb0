"""What is taken from blocks and what the exact decoder makes of the rest are what it makes of all messages."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.changes.column_choice import ColumnChoice
from open_mirroring.facts.kind import merged
from spark_jobs.changelog.schema import LogRow, RawMessage
from spark_jobs.sources.ces.decoder import CesDecoder
from spark_jobs.sources.ces.fast_path import FastCes
from spark_jobs.sources.contract.decoded import Damage, MirroredTable
from spark_jobs.sources.contract.message_blocks import Block, blocks_of
from spark_jobs.sources.transports import json_lines
from spark_jobs.sources.transports.capture import CaptureFiles
from spark_jobs.sources.transports.json_lines import LineBlock, read_blocks, read_lines
from spark_jobs.sources.transports.message_files import LineFiles
from tests.ces_messages import event, split

TABLES = {
    table.source: table
    for table in (
        MirroredTable("dbo.orders", ("id",)),
        MirroredTable(
            "dbo.lines", ("order_id", "line"), ColumnChoice(types=(("Order_ID", "string"), ("line", "int64")))
        ),
        MirroredTable("dbo.names", ("code",), ColumnChoice(extra=(("commit_time", "committed"),))),
        MirroredTable("dbo.log", ()),
        MirroredTable("dbo.some", ("id",), ColumnChoice(("id", "note"))),
    )
}
COLUMNS = {
    "orders": (("id", "int"), ("name", "nvarchar(50)"), ("price", "decimal(8,2)")),
    "lines": (("note", "nvarchar(max)"), ("order_id", "bigint"), ("line", "smallint"), ("text", "varchar(9)")),
    "names": (("code", "nvarchar(5)"), ("label", "nvarchar(50)")),
    "log": (("text", "nvarchar(50)"), ("at", "datetime2(7)")),
    "some": (("id", "int"), ("note", "nvarchar(9)"), ("secret", "nvarchar(9)")),
    "foreign": (("id", "int"),),
}
KEYS = {**{table.source[4:]: table.key for table in TABLES.values()}, "foreign": ("id",)}

plain = st.text(alphabet=st.sampled_from("ab ,:{}[]7é😀"), max_size=6)
tricky = st.sampled_from(['"', "\\", "a/b", '","', '":"', "null", "", "\n", "\x7f", "\\/", '},"eventrow":', '":'])
awkward = st.one_of(plain, st.text(max_size=4), tricky)
keys = st.one_of(
    st.integers(-3, 12).map(str), st.sampled_from(["007", "+1", "-0", "9999999999", "", "a", "ä", "٣", None])
)
DAMAGE = [b'"', b"\\", b"{", b"}", b",", b"0", b"\x00", b"\xff", b" ", b"/", b"\xc3", b":", b"\\ud800", b"\\u0061"]
# Text of a sound message, and what a producer gone wrong might have put in its place: at any level of quotes.
REWRITTEN = [
    ('"pkkey', '"tbl":"foreign","pkkey'),
    ('"eventrow"', '"eventsource":{},"eventrow"'),
    ('"eventrow"', '"eventrow":{"old":"{}","current":"{}"},"eventrow"'),
    ('"old"', '"old":null,"old"'),
    ('"id"', '"id":"0","id"'),
    ('"id"', '"id" :"0","id"'),
    ('"id"', '"\\u0069d"'),
    ('"name"', '"other"'),
    ('"name"', '"id"'),
    ('"1"', "1"),
    ("}}", ",}}"),
    ("]", ",]"),
    ('"commitlsn":"', '"commitlsn":"0'),
    ('"sequencenumber":', '"sequencenumber":1'),
    ('"segmentindex":0', '"segmentindex":1'),
    ('"finalsegment":true', '"finalsegment":false'),
    ('"specversion":"1.0"', '"specversion":1.0'),
    ('"time":"', '"time":"x'),
    ('"time":"', '"time":"","time":"'),
    ('"time":"', '"time":7,"x":"'),
    ('"time":"', '"other":"'),
    ('"operation":"', '"operation":"X'),
]


def _text(row: dict[str, str | None] | None, slashes: bool) -> str:
    """A row as the source writes it; slashes may be escaped."""
    text = json.dumps(row or {}, ensure_ascii=False, separators=(",", ":"))
    return text.replace("/", "\\/") if slashes else text


def _compact(body: bytes) -> bytes:
    """The message as the source writes it: no space, slashes escaped in the envelope."""
    whole = json.loads(body)
    whole["data"] = json.dumps(json.loads(whole["data"]), ensure_ascii=False, separators=(",", ":"))
    text = json.dumps(whole, ensure_ascii=False, separators=(",", ":"))
    return text.replace('"source":"/"', '"source":"\\/"').replace("application/json", "application\\/json").encode()


def _damaged(draw: st.DrawFn, body: bytes) -> bytes:
    kind = draw(st.sampled_from(["cut", "drop", "replace", "insert", "split", "rewrite", "rewrite", "rewrite"]))
    if kind == "split":
        return split(body, [len(body) // 8])[draw(st.integers(0, 1))]
    if kind == "rewrite":
        found, put = draw(st.sampled_from(REWRITTEN))
        for _ in range(draw(st.integers(0, 2))):
            found, put = (json.dumps(text, ensure_ascii=False)[1:-1] for text in (found, put))
        return body.replace(found.encode(), put.encode(), draw(st.integers(1, 2)))
    at = draw(st.integers(0, len(body) - 1))
    byte = draw(st.sampled_from(DAMAGE))
    return {
        "cut": body[:at],
        "drop": body[:at] + body[at + 1 :],
        "replace": body[:at] + byte + body[at + 1 :],
        "insert": body[:at] + byte + body[at:],
    }[kind]


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    table = draw(st.sampled_from(sorted(COLUMNS)))
    columns, key = COLUMNS[table], KEYS[table]
    operation = draw(st.sampled_from(["INS", "UPD", "UPD", "DEL"]))
    values = plain if draw(st.booleans()) else awkward

    def row() -> dict[str, str | None]:
        return {name: draw(keys if name in key else st.none() | values) for name, _ in columns}

    current = row() if operation != "DEL" else None
    old = None
    if operation != "INS" and draw(st.integers(0, 4)):
        old = row() if draw(st.integers(0, 3)) == 0 or current is None else {**row(), **{k: current[k] for k in key}}
    image = current or old or {}
    announced = {name: image.get(name, "1") for name in key}
    if draw(st.integers(0, 7)) == 0:
        announced = draw(st.sampled_from([{}, {"id": "1", "line": "1"}, {name: "1" for name in key}]))
    slashes = draw(st.integers(0, 3)) == 0
    body = event(
        operation,
        _text(current, slashes),
        _text(old, slashes),
        cols=columns,
        pkkey=announced,
        tbl=table,
        commit=draw(st.integers(1, 5)),
        sequence=draw(st.integers(0, 12)),
        generation=draw(st.sampled_from("cccba")),
        indent=draw(st.sampled_from([None, None, None, None, 1])),
    )
    body = draw(st.sampled_from([_compact, _compact, _compact, bytes]))(body).replace(b"\n", b" ")
    return draw(st.sampled_from([body] * 6 + [_damaged(draw, body)])).replace(b"\n", b" ")


def block_of(bodies: list[bytes]) -> LineBlock:
    content = b"".join(body + b"\n" for body in bodies)
    ends = np.flatnonzero(np.frombuffer(content, np.uint8) == ord("\n"))
    return LineBlock("in.jsonl", 100, content, np.append(0, ends[:-1] + 1), ends)


def assert_equal(fast: FastCes, exact: CesDecoder, block: Block) -> int:
    """Both agree on the rows and on all counts; how many lines were taken."""
    found = fast.take(block)
    rows, lines = found.rows, found.taken
    assert not found.announces
    assert len(set(lines.tolist())) == len(lines)
    left = sorted(set(range(len(block.starts))) - set(lines.tolist()))
    rest = exact.decode(block.messages(np.array(left, np.int64)))
    wanted = exact.decode(block.messages(np.arange(len(block.starts))))
    rows.validate(full=True)
    assert Counter(rest.rows) + Counter(LogRow(**row) for row in rows.to_pylist()) == Counter(wanted.rows)
    taken = {"messages": len(lines), "changes": len(rows), "ignored": len(lines) - len(rows)}
    counts = {name: count + taken.get(name, 0) for name, count in rest.counts._asdict().items()}
    assert counts == wanted.counts._asdict()
    assert merged([rest.facts, found.facts]) == wanted.facts
    assert {*rest.schemas, *found.schemas} == {*wanted.schemas}
    return len(lines)


def pair() -> tuple[FastCes, CesDecoder]:
    exact = CesDecoder(TABLES)
    return FastCes(exact), exact


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.lists(messages(), min_size=1, max_size=25))
def test_any_messages_become_the_rows_of_the_exact_decoder(bodies: list[bytes]) -> None:
    fast, exact = pair()
    block = block_of([*bodies, b"", b" \t", b"{}\r"])
    assert_equal(fast, exact, block)
    assert_equal(fast, exact, block)  # what was learned the first time serves the second
    # Messages from a broker or a captured file, which may hold any byte and lack a body.
    for one in blocks_of(RawMessage("cdc/0", n, body) for n, body in enumerate([*bodies, None, b"", b"{\n}"])):
        assert_equal(fast, exact, one)


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.data())
def test_any_byte_of_a_message_may_be_damaged(data: st.DataObject) -> None:
    def row(name: str, number: int) -> str:
        return _text({"id": str(number), "name": name, "price": "1.50"}, slashes=False)

    good = [_compact(event("UPD", row("Ada", n), row("Bob", n), pkkey={"id": str(n)}, sequence=n)) for n in range(1, 9)]
    fast, exact = pair()
    assert assert_equal(fast, exact, block_of(good)) == len(good)
    damaged = [_damaged(data.draw, data.draw(st.sampled_from(good))) for _ in range(6)]
    assert_equal(fast, exact, block_of([body.replace(b"\n", b" ") for body in [*good, *damaged]]))


def test_sure_messages_are_taken_and_others_left() -> None:
    """Taking nothing would be equal, too: what the source usually writes has to be taken."""
    row = {"id": "7", "name": "Ada, a/b", "price": None}
    text = _text(row, slashes=False)
    seven = {"id": "7"}
    taken = [
        event("INS", _text(row, slashes=True), pkkey=seven),
        event("INS", _text({**row, "name": 'say "hi"'}, slashes=False), pkkey=seven),
        event("UPD", text, _text({**row, "name": "é"}, slashes=False), pkkey=seven),
        event("UPD", text, "{}", pkkey=seven),
        event("DEL", "{}", text, pkkey=seven),
        event("INS", text, pkkey=seven, generation="a"),
        event("INS", text, pkkey=seven, tbl="foreign"),
        event("INS", r'{"id":"7","name":"\u00e9 \/ \\/ \\\\ \"","price":"\n"}', pkkey=seven),
        event("INS", _text({**row, "id": "-7"}, slashes=False), pkkey={"id": "-7"}),
    ]
    others = [
        event("UPD", text, _text({**row, "id": "8"}, slashes=False), pkkey=seven),
        event("INS", _text({**row, "id": "x"}, slashes=False), pkkey={"id": "x"}),
        event("INS", text, pkkey={"id": "8"}),
        event("INS", text, text, pkkey=seven),
        event("DEL", text, text, pkkey=seven),
        event("INS", text, pkkey=seven, sequence=10**19),
        event("INS", r'{"id":"7","name":"\ud800","price":null}', pkkey=seven),
        event("UPD", text, r'{"id":"7","name":"Ada, a\/b","price":"1"}', pkkey=seven),
        event("INS", _text({**row, "id": None}, slashes=False), pkkey={}),
        event("INS", text, pkkey=seven, replaced={"segmentindex": 1, "finalsegment": False}),
        event("INS", _text({**row, "name": "x" * 2**20}, slashes=False), pkkey=seven),
    ]
    for body, is_fast in [(body, True) for body in taken] + [(body, False) for body in others]:
        taker, exact = pair()
        assert assert_equal(taker, exact, block_of([_compact(body)])) == is_fast, body
    for found, put in ((b"Ada", b"A\x01a"), (b"Ada", b"A\x1fa"), (b"Ada", b"A\xffa"), (b"Ada", b"A\xed\xa0\x80")):
        taker, exact = pair()
        good = _compact(taken[5])
        assert assert_equal(taker, exact, block_of([good, good.replace(found, put)])) == 1, put


def test_lists_that_begin_alike_are_distinguished() -> None:
    """A column added to a table at the end of its list (C-44): each message is read by its own list."""
    columns = (*COLUMNS["orders"], ("added", "int"))
    bodies = []
    for number in range(1, 9):
        row = {"id": str(number), "name": "Ada", "price": "1.50", "added": "5"}
        cols = columns[: 3 + number % 2]
        text = _text({name: row[name] for name, _ in cols}, slashes=False)
        bodies.append(_compact(event("INS", text, cols=cols, pkkey={"id": str(number)}, sequence=number)))
    fast, exact = pair()
    assert assert_equal(fast, exact, block_of(bodies)) == len(bodies)


def test_bare_lines_are_the_same_in_blocks_and_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [b"", b"  \t", b"{}\r", b"x" * 70, b"y", b"\r"]
    content = b"\n".join(lines[(at * at) % 7 % 6] for at in range(500)) + b"\nlast"
    (tmp_path / "a.jsonl").write_bytes(content)
    one_by_one = [m for m in read_lines(tmp_path, "a.jsonl", 0, len(content), "bare") if not isinstance(m, Damage)]
    assert len(one_by_one) > 100
    for size in (16, 64, 1 << 20):  # lines longer than a block among them
        monkeypatch.setattr(json_lines, "BLOCK_BYTES", size)
        found: list[RawMessage] = []
        for block in read_blocks(tmp_path, "a.jsonl", 0, len(content) + 9):
            found += block.messages(np.arange(len(block.starts)))
        assert found == one_by_one


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("folder", "transport", "share"),
    # Rows of generation a are written with spaces: the exact decoder takes all of them.
    [("capture-gen-c", "capture", 0.9), ("json-gen-a", "files", 0.0), ("json-gen-c", "files", 0.5)],
)
def test_real_histories_decode_alike(shared_data: Path, folder: str, transport: str, share: float) -> None:
    path = shared_data / "ces" / folder
    source = CaptureFiles(path) if transport == "capture" else LineFiles(path, "wrapped")
    exact = CesDecoder({"dbo.district_offices": MirroredTable("dbo.district_offices", ("office_id",))})
    fast = FastCes(exact)
    found = [m for bound in source.find(None, {}).ranges for m in source.read(bound)]
    block = block_of([m.body for m in found if isinstance(m, RawMessage) and m.body])
    assert assert_equal(fast, exact, block) >= len(found) * share
