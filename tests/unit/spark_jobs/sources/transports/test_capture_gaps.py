"""A Capture file behind a hole in the sequence numbers of its partition waits; then the mirror stops (C-93)."""

from __future__ import annotations

import io
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.config import load_mirror
from open_mirroring.errors import TerminalError
from spark_jobs.sources.registry import source_of
from spark_jobs.sources.transports.capture import CaptureFiles, Hole, holes
from spark_jobs.sources.transports.source_files import list_source_files
from tests.hand_made_mirror import MIRROR_FILE
from workload_generator.transports import EVENT_DATA

PARTITION = "ns/hub/0"


def window(minute: int, partition: str = PARTITION) -> str:
    return f"{partition}/2026/01/02/03/{minute:02d}/00.avro"


def put(root: Path, name: str, numbers: Sequence[int], codec: str = "deflate") -> Path:
    """A Capture file with these sequence numbers, in blocks of a few records."""
    records: list[dict[str, Any]] = [
        {"SequenceNumber": number, "Offset": "", "EnqueuedTimeUtc": "", "SystemProperties": {}, "Properties": {},
         "Body": b"x" * 40}
        for number in numbers
    ]  # fmt: skip
    stream = io.BytesIO()
    fastavro.writer(stream, EVENT_DATA, records, codec=codec, sync_interval=100, sync_marker=b"0123456789abcdef")
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(stream.getvalue())
    return path


def found(root: Path, bound: dict[str, int]) -> list[Hole]:
    return holes(root, list_source_files(root, (".avro",)).files, bound)


def bound_now(root: Path, *names: str) -> dict[str, int]:
    return {name: (root / name).stat().st_size for name in names}


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_files_that_follow_each_other_have_no_hole_c93(tmp_path: Path, codec: str) -> None:
    """Empty windows lie between them, and each partition counts for itself."""
    put(tmp_path, window(1), range(40, 60), codec)
    put(tmp_path, window(2), [], codec)
    put(tmp_path, window(3), range(60, 61), codec)
    put(tmp_path, window(1, "ns/hub/1"), range(7, 9), codec)
    assert found(tmp_path, {}) == []
    assert found(tmp_path, bound_now(tmp_path, window(1), window(2))) == []


def test_what_is_behind_a_hole_waits_and_what_is_before_it_does_not_c93(tmp_path: Path) -> None:
    put(tmp_path, window(1), range(40, 60))
    put(tmp_path, window(3), range(65, 70))
    put(tmp_path, window(4), range(70, 80))
    put(tmp_path, window(1, "ns/hub/1"), range(3))
    hole = Hole(PARTITION, "numbers 60 to 64", (window(3), window(4)))
    assert found(tmp_path, {}) == [hole]
    assert found(tmp_path, bound_now(tmp_path, window(1))) == [hole]
    place = CaptureFiles(tmp_path)
    ranges, waiting, *_ = place.find(None, {})
    assert [one.name for one in ranges] == [window(1), window(1, "ns/hub/1")]
    assert waiting == [window(3), window(4)]
    put(tmp_path, window(2), range(60, 65))
    assert place.find(None, {}).waiting == []


def test_a_file_from_before_the_beginning_waits_for_what_lies_between_c93(tmp_path: Path) -> None:
    put(tmp_path, window(1), range(40, 60))
    put(tmp_path, window(3), range(65, 70))
    assert found(tmp_path, bound_now(tmp_path, window(3))) == [Hole(PARTITION, "numbers 60 to 64", (window(1),))]


def test_numbers_missing_inside_a_file_are_a_hole_c93(tmp_path: Path) -> None:
    put(tmp_path, window(1), [1, 2, 3])
    put(tmp_path, window(2), [4, 5, 8, 9])
    put(tmp_path, window(3), [10])
    (hole,) = found(tmp_path, {})
    assert (hole.what, hole.files[0]) == (f"numbers in {window(2)}", window(2))


def test_a_hub_that_was_made_again_is_a_hole_and_a_repetition_is_none_c93(tmp_path: Path) -> None:
    put(tmp_path, window(1), range(40, 60))
    put(tmp_path, window(2), range(50, 70))
    assert found(tmp_path, {}) == []
    put(tmp_path, window(3), range(5))
    (hole,) = found(tmp_path, {})
    assert hole.files == (window(3),) and "re-created" in hole.what


def test_damage_hides_the_numbers_and_holds_nothing_back_c93(tmp_path: Path) -> None:
    """Its dead letter says already that something is missing there."""
    put(tmp_path, window(1), range(40, 60))
    cut = put(tmp_path, window(2), range(60, 90))
    cut.write_bytes(cut.read_bytes()[:-30])
    put(tmp_path, window(3), range(95, 99))
    (tmp_path / window(4)).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / window(4)).write_bytes(b"Obj\x01 but nothing else")
    assert found(tmp_path, {}) == []


def test_files_of_other_names_say_nothing_about_their_order_c93(tmp_path: Path) -> None:
    put(tmp_path, "0/b.avro", range(3))
    put(tmp_path, "0/c.avro", range(9, 12))
    assert found(tmp_path, {}) == []


def test_a_hole_that_does_not_close_in_time_stops_the_mirror_c93(tmp_path: Path) -> None:
    """With the numbers, the partition and the way out; taking the files before it away accepts the loss."""
    first = put(tmp_path, window(1), range(40, 60))
    late = put(tmp_path, window(3), range(65, 70))
    place = CaptureFiles(tmp_path, gap_timeout_minutes=10)
    an_hour_ago = time.time() - 3600
    os.utime(first, (an_hour_ago, an_hour_ago))
    assert place.find(None, {}).waiting == [window(3)]
    os.utime(late, (an_hour_ago, an_hour_ago))
    bound = bound_now(tmp_path, window(1))
    with pytest.raises(TerminalError) as caught:
        place.find(None, bound)
    error = caught.value
    assert error.code == "SOURCE_REWRITTEN"
    assert "numbers 60 to 64" in error.what and repr(PARTITION) in error.what and "copy the missing" in error.next_step
    assert replace(place, gap_timeout_minutes=100).find(None, bound).waiting == [window(3)]
    first.unlink()
    assert [one.name for one in place.find(None, bound).ranges] == [window(3)]


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.data())
def test_however_files_arrive_what_is_bound_follows_each_other_and_at_last_all_is_c93(data: st.DataObject) -> None:
    """Windows of any size, empty ones among them, handed over in any order and in any ticks."""
    lengths = data.draw(st.lists(st.integers(0, 4), min_size=1, max_size=8))
    starts = [10 + sum(lengths[:at]) for at in range(len(lengths))]
    arrival = data.draw(st.permutations(range(len(lengths))))
    ticks = sorted(data.draw(st.sets(st.integers(1, len(lengths)))) | {len(lengths)})
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        place, bound, handed = CaptureFiles(root), dict[str, int](), 0
        for tick in ticks:
            for at in arrival[handed:tick]:
                put(root, window(at), range(starts[at], starts[at] + lengths[at]))
            handed = tick
            bound |= {one.name: one.end for one in place.find(None, bound).ranges}
            read = [at for at in range(len(lengths)) if window(at) in bound and lengths[at]]
            between = [at for at in range(read[0], read[-1]) if lengths[at]] if read else []
            assert set(between) <= set(read), "no window between two that were read is missing"
        assert len(bound) == len(lengths)


@pytest.mark.parametrize(("setting", "minutes"), [("", 60), (", gap_timeout_minutes: 5", 5)])
def test_the_mirror_file_says_how_long_to_wait_c93(tmp_path: Path, setting: str, minutes: int) -> None:
    file = tmp_path / "shop.yaml"
    text = MIRROR_FILE.replace("transport: files, path: source", f"transport: capture, path: source{setting}")
    file.write_text(text, encoding="utf-8")
    place = source_of(load_mirror(file)).transport
    assert isinstance(place, CaptureFiles)
    assert place.gap_timeout_minutes == minutes
