"""Driving protocols whose requests stay unanswered."""

from __future__ import annotations

import pytest

from open_mirroring.errors import TransientError
from open_mirroring.protocols import publishing as p
from open_mirroring.protocols.driving import MAX_UNKNOWN, drive

SILENT = TransientError("UNREACHABLE", "the ledger does not answer")


@pytest.mark.parametrize("why", [TransientError("UNREACHABLE", "no answer"), None])
def test_one_outage_has_one_code(why: TransientError | None) -> None:
    """The error of the call that gave no answer is raised, as it is where the same store is read outside a protocol."""
    asked = 0

    def answer(requests: object) -> dict[str, p.Unknown]:
        nonlocal asked
        asked += 1
        return {"": p.Unknown(why)}

    with pytest.raises(TransientError) as raised:
        drive({"": p.start()}, p.step, answer, lambda *_: False, SILENT)
    assert raised.value is (why or SILENT)
    assert asked == MAX_UNKNOWN + 1
