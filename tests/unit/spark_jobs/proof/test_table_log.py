"""Deletion vectors are read as the Delta protocol and RoaringBitmap's format say, or refused (S-17)."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Literal
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.proof.table_log import DeletionVector

NAME = UUID("0d3f5ab6-8a52-4a7c-9be2-3f7e1c0a9d11")
TEXT = "ab" + "4l[48IC^5]O8MUY915kG"
Kind = Literal["runs", "places", "bits"]


def container(places: list[int], kind: Kind) -> bytes:
    """A container of 16 bits: runs of (first, length - 1), sorted places, or a bit for each place."""
    if kind == "places":
        return struct.pack(f"<{len(places)}H", *places)
    if kind == "bits":
        return sum(1 << place for place in places).to_bytes(8192, "little")
    there = set(places)
    firsts = [place for place in places if place - 1 not in there]
    lasts = [place for place in places if place + 1 not in there]
    pairs = [value for first, last in zip(firsts, lasts, strict=True) for value in (first, last - first)]
    return struct.pack(f"<H{len(pairs)}H", len(firsts), *pairs)


def serialized(rows: dict[int, dict[int, list[int]]], with_runs: bool) -> bytes:
    """Rows by their upper 32 bits and the next 16, as a portable bitmap of 64 bits."""
    content = struct.pack("<IQ", 1681511377, len(rows))
    for upper, highs in sorted(rows.items()):
        kinds: list[Kind] = ["runs" if with_runs else "bits" if len(p) > 4096 else "places" for p in highs.values()]
        content += struct.pack("<I", upper)
        if with_runs:
            flags = sum(1 << at for at in range(len(kinds))).to_bytes(-(-len(kinds) // 8), "little")
            content += struct.pack("<I", 12347 | (len(kinds) - 1) << 16) + flags
        else:
            content += struct.pack("<II", 12346, len(kinds))
        for high, places in highs.items():
            content += struct.pack("<HH", high, len(places) - 1)
        content += bytes(4 * len(kinds)) if not with_runs or len(kinds) >= 4 else b""
        content += b"".join(container(places, kind) for places, kind in zip(highs.values(), kinds, strict=True))
    return content


@settings(deadline=None)
@given(st.sets(st.integers(0, 3 << 32), min_size=1, max_size=200), st.booleans(), st.booleans())
def test_rows_are_those_that_were_written(tmp_path_factory, rows: set[int], dense: bool, with_runs: bool) -> None:
    """S-17: in places, runs and bits, of files of any length."""
    rows = rows | set(range(100_000, 105_000)) if dense else rows
    grouped: dict[int, dict[int, list[int]]] = {}
    for row in sorted(rows):
        grouped.setdefault(row >> 32, {}).setdefault(row >> 16 & 0xFFFF, []).append(row & 0xFFFF)
    content = serialized(grouped, with_runs)
    table = tmp_path_factory.mktemp("table")
    kept(table, b"before it", content)
    vector = DeletionVector("u", TEXT, 9, len(content), len(rows))
    assert vector.positions(table).tolist() == sorted(rows)


def kept(table: Path, before: bytes, content: bytes) -> Path:
    """The file that TEXT names, with a vector behind other bytes."""
    file = table / "ab" / f"deletion_vector_{NAME}.bin"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(before + struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content)))
    return file


def test_what_is_not_as_the_log_says_is_refused(tmp_path: Path) -> None:
    """S-17: neither another number of rows nor a byte that changed is taken for the table's rows."""
    content = serialized({0: {0: [1, 5]}}, with_runs=False)
    file = kept(tmp_path, b"", content)
    story = DeletionVector("u", TEXT, 0, len(content), 2)
    assert story.positions(tmp_path).tolist() == [1, 5]
    for other in (story._replace(rows=3), story._replace(size=len(content) - 1), story._replace(storage="p")):
        with pytest.raises(ValueError):
            other.positions(tmp_path)
    file.write_bytes(file.read_bytes().replace(b"\x05", b"\x06"))
    with pytest.raises(ValueError, match="checksum"):
        story.positions(tmp_path)
    file.unlink()
    with pytest.raises(OSError):
        story.positions(tmp_path)
