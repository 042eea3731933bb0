"""A full load that comes again where transactions are held together (K-83)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from open_mirroring.operate.exit_codes import Exit
from tests.e2e.test_silent_qlik_messages import MD_A, TABLES, A, Lines, landed, load, of
from tests.e2e.test_source_reloads import WATCHED, accept, ticked


def at(commit: int, key: int, name: str = "Ada", operation: str = "INSERT", **more: Any) -> bytes:
    """A change that is a transaction of its own."""
    sequence = f"{2024010100000000 + commit:016d}{commit:019d}"
    return of(A, key, name, operation, changeSequence=sequence, transactionEventCounter=1, **more)


@pytest.mark.parametrize("approved", ["by the mirror file", pytest.param("by hand", marks=pytest.mark.long)])
def test_a_load_that_comes_again_in_several_partitions_begins_the_table_again_k83(
    approved: str, tmp_path: Path, spark: Any
) -> None:
    """K-83, K-80, G-125, G-126: its rows and whole transactions behind it, each once, in order."""
    publish = {"on_reload": "rebuild"} if approved == "by the mirror file" else {}
    settings = {"consistency": "transaction", "source": {"partition_count": 2}, "publish": publish, **WATCHED}
    lines = Lines(tmp_path, spark, tables=TABLES[:1], **settings)
    lines.send(MD_A, (0, load(A, 1)), (1, load(A, 2)), (1, load(A, 4)))
    lines.send((0, at(5, 1, "new", "UPDATE", changeMask="02")), (1, at(6, 3)), (0, at(7, 8)), (1, at(7, 9)))
    assert lines.tick() == Exit.DONE
    assert lines.rows("a") == landed((1, "new"), 2, 3, 4)
    lines.send((1, load(A, 2, "again")), (0, load(A, 1, "again")), (1, at(9, 5)), (0, at(9, 6)))
    lines.send((0, at(11, 1, "last", "UPDATE", changeMask="02")), (1, at(12, 7)))
    code = lines.tick()
    if approved == "by hand":
        assert code == Exit.TABLES_STOPPED and lines.stop("a")[0] == "RELOAD_SEEN"
        assert accept(lines) == Exit.DONE
    assert ticked(lines, 8) == Exit.DONE, lines.stop("a")
    assert lines.rows("a") == landed((1, "again"), (2, "again"), 5, 6), "11 is not whole in the other partition"
    lines.send((0, at(13, 9, "x")), (1, at(13, 10)))
    assert lines.tick() == Exit.DONE
    assert lines.rows("a") == landed((1, "last"), (2, "again"), 5, 6, 7)
