"""Capture files and files of lines: every good message once, damage as one message of its own (C-93)."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest

from open_mirroring.changes.manifest import BoundRange, FileVersion
from open_mirroring.errors import TerminalError
from spark_jobs.changelog.schema import RawMessage
from spark_jobs.sources.contract.decoded import Damage
from spark_jobs.sources.contract.source import Found
from spark_jobs.sources.transports import json_lines
from spark_jobs.sources.transports.capture import list_capture, read_capture
from spark_jobs.sources.transports.json_lines import last_line_end, ranges, read_lines
from spark_jobs.sources.transports.message_files import LineFiles
from workload_generator.transports import EVENT_DATA


def capture_bytes(bodies: list[bytes | None], codec: str = "deflate", interval: int = 200) -> bytes:
    records: list[dict[str, Any]] = [
        {"SequenceNumber": number, "Offset": str(number), "EnqueuedTimeUtc": "", "SystemProperties": {"x": number},
         "Properties": {}, "Body": body}
        for number, body in enumerate(bodies, start=40)
    ]  # fmt: skip
    stream = io.BytesIO()
    fastavro.writer(stream, EVENT_DATA, records, codec=codec, sync_interval=interval)
    return stream.getvalue()


BODIES: list[bytes | None] = [f"message {number}".encode() * 5 for number in range(20)]


def blocks(content: bytes) -> list[tuple[int, int]]:
    """The end of each block and the number of records up to it."""
    total, ends = 0, []
    for block in fastavro.block_reader(io.BytesIO(content)):
        total += block.num_records
        ends.append((block.offset + block.size, total))
    return ends


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_capture_gives_every_message_at_its_sequence_number(tmp_path: Path, codec: str) -> None:
    content = capture_bytes([*BODIES, None, b""], codec)
    (tmp_path / "a.avro").write_bytes(content)
    assert list(read_capture(tmp_path, "a.avro", len(content))) == [
        RawMessage("a.avro", number, body) for number, body in enumerate([*BODIES, None, b""], start=40)
    ]


def test_a_capture_file_that_grows_is_read_up_to_its_bound_size(tmp_path: Path) -> None:
    content = capture_bytes(BODIES)
    end, count = blocks(content)[0]
    (tmp_path / "a.avro").write_bytes(content)
    assert list(read_capture(tmp_path, "a.avro", end)) == [
        RawMessage("a.avro", number, BODIES[number - 40]) for number in range(40, 40 + count)
    ]


def test_a_truncated_capture_file_gives_what_is_complete_and_one_damage(tmp_path: Path) -> None:
    content = capture_bytes(BODIES)
    ends = blocks(content)
    header = len(capture_bytes([]))
    assert len(ends) > 3
    for size in sorted({*range(0, len(content), 13), *(end for end, _ in ends[:-1])}):
        (tmp_path / "a.avro").write_bytes(content[:size])
        *messages, damage = read_capture(tmp_path, "a.avro", len(content))
        good, count = next(((end, total) for end, total in reversed(ends) if end <= size), (header, 0))
        assert [message.place for message in messages] == list(range(40, 40 + count))
        assert isinstance(damage, Damage)
        assert damage[:3] == ("a.avro", good if size >= header else 0, "FILE_DAMAGED")
        assert damage.reason
        assert damage.raw == content[:size][damage.place :]


def test_a_damaged_block_ends_the_file_with_one_damage(tmp_path: Path) -> None:
    content = capture_bytes(BODIES, "null")
    (first_end, count), (second_end, _) = blocks(content)[:2]
    assert content[first_end] > 2, "more than one record in the second block"
    for at, byte in (
        (first_end, 2),
        (first_end, content[first_end] + 2),
        (second_end - 1, content[second_end - 1] ^ 1),
    ):
        damaged = bytearray(content)
        damaged[at] = byte  # one record less or more than there are, another mark behind them
        (tmp_path / "a.avro").write_bytes(damaged)
        *messages, damage = read_capture(tmp_path, "a.avro", len(content))
        assert [message.place for message in messages[:count]] == list(range(40, 40 + count))
        assert isinstance(damage, Damage)
        assert (damage.place, damage.code) == (first_end, "FILE_DAMAGED")


def test_a_damage_keeps_a_megabyte_at_most(tmp_path: Path) -> None:
    (tmp_path / "a.avro").write_bytes(b"x" * (3 * 2**20))
    (damage,) = read_capture(tmp_path, "a.avro", 3 * 2**20)
    assert isinstance(damage, Damage)
    assert (damage.place, len(damage.raw or b"")) == (0, 2**20)


def test_an_avro_file_of_something_else_is_damage(tmp_path: Path) -> None:
    stream = io.BytesIO()
    other = {"type": "record", "name": "Other", "fields": [{"name": "SequenceNumber", "type": "string"}]}
    fastavro.writer(stream, other, [{"SequenceNumber": "1"}])
    (tmp_path / "a.avro").write_bytes(stream.getvalue())
    (damage,) = read_capture(tmp_path, "a.avro", len(stream.getvalue()))
    assert isinstance(damage, Damage)
    assert "KeyError" in damage.reason


def test_a_bound_file_that_is_gone_says_so(tmp_path: Path) -> None:
    for attempt in (read_capture(tmp_path, "a.avro", 5), read_lines(tmp_path, "a.jsonl", 0, 5, "bare")):
        with pytest.raises(TerminalError) as caught:
            list(attempt)
        assert caught.value.code == "SOURCE_REWRITTEN"
        assert caught.value.next_step


def test_the_listing_is_sorted_and_leaves_out_what_is_not_finished(tmp_path: Path) -> None:
    for name in ("ns/hub/1/b.avro", "ns/hub/0/z.avro", ".hidden.avro", "_tmp/c.avro", "x.avro.tmp", "notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"12")
    (tmp_path / "ns/hub/0/empty.avro").touch()
    found = list_capture(tmp_path, {})
    assert [file[:2] for file in found.files] == [("ns/hub/0/z.avro", 2), ("ns/hub/1/b.avro", 2)]
    assert found.waiting == ["ns/hub/0/empty.avro"]
    with pytest.raises(TerminalError, match="PLACE_MISSING"):
        list_capture(tmp_path / "nowhere", {})


def test_lines_are_placed_at_their_byte_offset(tmp_path: Path) -> None:
    content = "{a}\r\n\n  \né{b}\nlast without end".encode()
    (tmp_path / "a.jsonl").write_bytes(content)
    complete = last_line_end(tmp_path / "a.jsonl", 0)
    assert content[complete:] == b"last without end"
    assert list(read_lines(tmp_path, "a.jsonl", 0, complete, "bare")) == [
        RawMessage("a.jsonl", 0, b"{a}"),
        RawMessage("a.jsonl", 9, "é{b}".encode()),
    ]


@pytest.mark.parametrize(("tail", "complete"), [(b'{"a": 1}', True), (b'{"a": 1', False), (b"12", False), (b"", True)])
def test_a_last_line_needs_no_end_if_it_is_a_complete_object(tail: bytes, complete: bool, tmp_path: Path) -> None:
    """Nothing can follow a whole object on its line; half a line, or a number, may still grow."""
    (tmp_path / "a.jsonl").write_bytes(b"{}\n" + tail)
    assert last_line_end(tmp_path / "a.jsonl", 0) == (3 + len(tail) if complete else 3)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_byte_order_mark_is_no_part_of_the_first_message(name: str, tmp_path: Path) -> None:
    """RFC 8259, 8.1: a reader may ignore it. Only at the beginning of a file is it one."""
    mark = "\ufeff".encode()
    content = mark + b"{}\r\n" + mark + b"{}"
    (tmp_path / name).write_bytes(gzip.compress(content) if json_lines.is_gzip(name) else content)
    read = list(read_lines(tmp_path, name, 0, len(content), "bare"))
    assert read == [RawMessage(name, 0, b"{}"), RawMessage(name, 7, mark + b"{}")]
    (tmp_path / "one.jsonl").write_bytes(mark + b"{}")
    assert last_line_end(tmp_path / "one.jsonl", 0) == 5, "a whole object"


def test_a_growing_file_is_read_exactly_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_lines, "RANGE_BYTES", 40)
    monkeypatch.setattr(json_lines, "_CHUNK", 7)
    lines = [f"line {number} {'x' * (number % 17)}".encode() for number in range(60)]
    content = b"".join(line + b"\n" for line in lines)
    path, bound, read = tmp_path / "a.jsonl", 0, []
    for size in (*range(0, len(content), 23), len(content)):
        path.write_bytes(content[:size])
        for found in ranges(tmp_path, "a.jsonl", bound, size):
            assert found.start == bound
            bound = found.end
            read += list(read_lines(tmp_path, *found, "bare"))
    assert [message.body for message in read] == lines
    assert [message.place for message in read] == [content.index(line + b"\n") for line in lines]
    assert len({cut.start for cut in ranges(tmp_path, "a.jsonl", 0, len(content))}) > 5


def test_a_file_shorter_than_bound_is_damage_behind_its_lines(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"{a}\n")
    message, damage = read_lines(tmp_path, "a.jsonl", 0, 10, "bare")
    assert message == RawMessage("a.jsonl", 0, b"{a}")
    assert isinstance(damage, Damage)
    assert damage[:3] == ("a.jsonl", 4, "FILE_DAMAGED")


def test_a_damaged_gzip_file_is_one_damage(tmp_path: Path) -> None:
    lines = [f"line {number}".encode() for number in range(5000)]
    packed = gzip.compress(b"\n".join(lines))
    for content in (packed[: len(packed) // 2], packed[:-2], packed[:-8] + b"\x00" * 8, b"no gzip"):
        (tmp_path / "a.jsonl.gz").write_bytes(content)
        *messages, damage = read_lines(tmp_path, "a.jsonl.gz", 0, len(content), "bare")
        assert [message.body for message in messages] == lines[: len(messages)]
        assert isinstance(damage, Damage)
        assert (damage.code, damage.raw) == ("FILE_DAMAGED", content)


def wrapped(value: str | None, **fields: object) -> bytes:
    line = {"topic": "cdc", "partition": 2, "offset": 9, "timestamp": "", "key": None, "headers": [],
            "encoding": "utf8", "value": value}  # fmt: skip
    return json.dumps(line | fields, ensure_ascii=False).encode()


def test_wrapped_messages_bring_their_coordinates(tmp_path: Path) -> None:
    body = b"\x00\xff"
    lines = [wrapped("é"), wrapped(base64.b64encode(body).decode(), encoding="base64", offset=10), wrapped(None)]
    (tmp_path / "a.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    (found,) = ranges(tmp_path, "a.jsonl", 0, 10_000)
    assert list(read_lines(tmp_path, *found, "wrapped")) == [
        RawMessage("cdc/2", 9, "é".encode()),
        RawMessage("cdc/2", 10, body),
        RawMessage("cdc/2", 9, None),
    ]


@pytest.mark.parametrize(
    "line",
    [b"{", b"[]", b'{"topic":"x"}', wrapped("x", encoding="rot13"), wrapped("x", offset="nine"),
     wrapped("#", encoding="base64"),
     wrapped("x")[:-1] + b'\xff}', b'{"topic":' + b"[" * 100_000],
)  # fmt: skip
def test_a_malformed_wrapper_is_one_damage_with_its_line(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "a.jsonl").write_bytes(wrapped("good") + b"\n" + line + b"\n" + wrapped("good") + b"\n")
    (found,) = ranges(tmp_path, "a.jsonl", 0, 10**7)
    before, damage, after = read_lines(tmp_path, *found, "wrapped")
    assert isinstance(damage, Damage)
    assert (damage.origin, damage.place, damage.code, damage.raw) == (
        "a.jsonl", len(wrapped("good")) + 1, "FORMAT_UNSUPPORTED", line,
    )  # fmt: skip
    assert before == after == RawMessage("cdc/2", 9, b"good")


def test_a_source_may_be_one_file(tmp_path: Path) -> None:
    """Its neighbours are not read, whatever its name ends in; empty, it waits."""
    (tmp_path / "messages.txt").write_bytes(b"{}\n")
    (tmp_path / "other.jsonl").write_bytes(b"{}\n")
    (tmp_path / "empty.jsonl").touch()
    one = LineFiles(tmp_path / "messages.txt", "bare")
    assert one.find(None, {}) == Found([BoundRange("messages.txt", 0, 3)], [])
    assert list(one.read(BoundRange("messages.txt", 0, 3))) == [RawMessage("messages.txt", 0, b"{}")]
    assert one.find(None, {"messages.txt": 3}) == Found([], [])
    assert replace(one, path=tmp_path / "empty.jsonl").find(None, {}) == Found([], ["empty.jsonl"], ("empty.jsonl",))


def test_what_stands_beside_the_body_is_not_read_c23(tmp_path: Path) -> None:
    """An event is structured: everything is in the body, and no property or header of the transport says what it is."""
    record = {"SequenceNumber": 7, "Offset": "7", "EnqueuedTimeUtc": "no time", "SystemProperties": {"x-opt": "1"},
              "Properties": {"content-type": "application/avro", "type": "other"}, "Body": b"{}"}  # fmt: skip
    stream = io.BytesIO()
    fastavro.writer(stream, EVENT_DATA, [record])
    (tmp_path / "a.avro").write_bytes(stream.getvalue())
    assert list(read_capture(tmp_path, "a.avro", len(stream.getvalue()))) == [RawMessage("a.avro", 7, b"{}")]


def test_g116_a_file_that_is_left_for_another_one_is_not_awaited_in_silence(tmp_path: Path) -> None:
    """Half a line, or a copy without its name: told once its writer is a minute ahead in a file that can be read."""
    for name, content in (("half.jsonl", b'{"a":1}\n{"h'), ("copy.jsonl.part", b'{"a"'), ("more.jsonl", b'{"a":3}\n')):
        (tmp_path / name).write_bytes(content)
    place, now = LineFiles(tmp_path, "bare"), time.time()

    def left(seconds: float, bound: dict[str, int]) -> Sequence[str]:
        for name in ("half.jsonl", "copy.jsonl.part"):
            os.utime(tmp_path / name, (now - seconds, now - seconds))
        return place.find(None, bound).overdue

    assert left(30, {}) == (), "somebody may be writing both files side by side"
    assert left(120, {}) == ("copy.jsonl.part", "half.jsonl")
    assert left(120, {"half.jsonl": 8, "more.jsonl": 8}) == (), "nothing new: that holds by itself"


def test_g32_a_file_that_was_read_and_is_another_is_noticed(tmp_path: Path) -> None:
    """Only files with another version are looked into; the same content again is the same file."""
    place = LineFiles(tmp_path, "bare")
    file, other = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    file.write_bytes(b'{"a":1}\n{"h')
    other.write_bytes(b'{"b":1}\n')

    def seen_now(bound: dict[str, int], seen: dict[str, FileVersion]) -> Found:
        found = place.find(None, bound, lambda _: seen)
        bound |= {one.name: one.end for one in found.ranges}
        seen |= found.versions
        return found

    bound: dict[str, int] = {}
    seen: dict[str, FileVersion] = {}
    assert len(seen_now(bound, seen).versions) == 2
    assert seen_now(bound, seen) == Found([], ["a.jsonl"])
    os.utime(file, ns=(0, 0))
    found = seen_now(bound, seen)
    assert (found.versions.keys(), found.overdue) == ({"a.jsonl"}, ("a.jsonl",)), "nobody wrote to it for a day"
    file.write_bytes(b'{"a":1}\n{"a":2}\n')
    assert seen_now(bound, seen).ranges == [BoundRange("a.jsonl", 8, 16)]
    seen.pop("b.jsonl")
    assert seen_now(bound, seen).versions.keys() == {"b.jsonl"}, "bound by an older release"
    file.write_bytes(b'{"a":3}\n{"a":2}\n{"a":4}\n')
    with pytest.raises(TerminalError, match="SOURCE_REWRITTEN"):
        seen_now(bound, seen)
    file.unlink()
    assert seen_now(bound, seen) == Found([], []), "what was read may go"


def test_g32_a_file_that_kept_its_size_is_read_again_if_its_middle_may_be_another(tmp_path: Path) -> None:
    place, file = LineFiles(tmp_path, "bare"), tmp_path / "a.jsonl"
    small = b"".join(b'{"a":%06d}\n' % number for number in range(12_000))
    file.write_bytes(small)
    found = place.find(None, {}, lambda _: {})
    file.write_bytes(small.replace(b"006000", b"996000"))
    os.utime(file, ns=(1, 1))
    with pytest.raises(TerminalError, match="SOURCE_REWRITTEN"):
        place.find(None, {one.name: one.end for one in found.ranges}, lambda _: found.versions)
    lines = small * 110
    file.write_bytes(lines)
    found = place.find(None, {}, lambda _: {})
    bound, seen = {one.name: one.end for one in found.ranges}, dict(found.versions)
    file.write_bytes(lines.replace(b"006000", b"996000"))
    os.utime(file, ns=(2, 2))
    again = place.find(None, bound, lambda _: seen)
    assert again.ranges == [BoundRange("a.jsonl", 0, len(lines))]
    assert place.find(None, bound, lambda _: seen | again.versions).ranges == []


def test_g32_a_file_that_is_gone_before_it_was_read_to_its_end_is_reported_once(tmp_path: Path) -> None:
    place = LineFiles(tmp_path, "bare")
    half = tmp_path / "half.jsonl"
    half.write_bytes(b'{"a":1}\n{"h')
    (tmp_path / "blank.jsonl").write_bytes(b'{"a":1}\n  ')
    found = place.find(None, {}, lambda _: {})
    assert found.waiting == ["half.jsonl"] and found.empty == (), "what is behind the line is awaited"
    bound, seen = {one.name: one.end for one in found.ranges}, dict(found.versions)
    half.unlink()
    (gone,) = place.find(None, bound, lambda _: seen).ranges
    assert gone == BoundRange("half.jsonl", 8, 8)
    (damage,) = place.read(gone)
    assert isinstance(damage, Damage) and damage.code == "FILE_DAMAGED"
    del seen["half.jsonl"]  # as binding the range does
    assert place.find(None, bound, lambda _: seen).ranges == []
    half.write_bytes(b'{"a":1}\n{"h":1}\n')
    assert place.find(None, bound, lambda _: seen).ranges == [BoundRange("half.jsonl", 8, 16)], "it came back"
