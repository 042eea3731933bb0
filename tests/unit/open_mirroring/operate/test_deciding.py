"""Decisions of operators, whoever asks for them: the page, the command line, or a run in Airflow."""

from __future__ import annotations

from pathlib import Path

import pytest

from open_mirroring.errors import TerminalError
from open_mirroring.ledger.auditing import Reason
from open_mirroring.operate.deciding import decide
from tests.hand_made_mirror import HandMadeMirror


def test_whoever_asks_for_a_decision_that_is_none_is_reported_those_there_are(tmp_path: Path) -> None:
    """Each name that is reported is one that can be asked for."""
    made, reason = HandMadeMirror(tmp_path), Reason("ada", "why")
    with pytest.raises(TerminalError, match="ARGUMENT_INVALID") as unknown:
        decide(made.mirror, made.ledger, "forget", {}, reason)
    named = unknown.value.next_step.removeprefix("name one of: ").split(", ")
    assert {"resume", "accept-epoch", "target-says-gone"} <= {*named}
    for name in named:
        try:
            decide(made.mirror, made.ledger, name, {"source": "dbo.none"}, reason)
        except TerminalError as refused:
            assert "no decision" not in refused.what, name
