"""What the page offers for a table follows what can be done about it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from open_mirroring.config import load_mirror
from open_mirroring.ledger import requests
from open_mirroring.operate.mirror_view import Judgement, TableView
from open_mirroring.operate.viewing import view_mirror
from open_mirroring.page import fixes
from open_mirroring.protocols.table_losses import CHANGES_IGNORED, DEAD_LETTERS_OPEN, TABLE_EMPTIED, TABLE_SUSPENDED
from open_mirroring.protocols.verdicts import Verdict
from tests.hand_made_mirror import MIRROR_FILE, HandMadeMirror

QLIK = MIRROR_FILE.replace("sqlserver-ces", "qlik-change-table")
LOADED = "key: [order_id], initial_load: {format: qlik-full-load, path: q/dbo.orders, stream_from: beginning}"


@pytest.fixture
def stopped(tmp_path: Path) -> TableView:
    """A table whose stream began anew."""
    now = datetime.now(UTC)
    made = HandMadeMirror(tmp_path)
    line = next(one for one in view_mirror(made.mirror, made.ledger, now).tables if one.source == "dbo.orders")
    return replace(line, judgement=Judgement(Verdict.STOP, "EPOCH_UNKNOWN", "it began anew", now))


@pytest.mark.parametrize(
    ("text", "offers"),
    [(MIRROR_FILE, False), (QLIK, False), (QLIK.replace("key: [order_id]", LOADED), True)],
    ids=["change events", "without the task's load", "with it"],
)
def test_a_full_load_is_accepted_only_where_the_table_begins_with_one_g_128(
    stopped: TableView, tmp_path: Path, text: str, offers: bool
) -> None:
    """G-128: elsewhere the button would be refused by the next run, and the stop would stay."""
    file = tmp_path / "mirrors" / "shop.yaml"
    file.write_text(text, encoding="utf-8")
    found = fixes.of_table(load_mirror(file), stopped, ("2",), ())
    assert [one.action for one in found[0] if one.subject or one.action == requests.ACCEPT_RELOAD] == [
        *([requests.ACCEPT_RELOAD] if offers else []),
        requests.ACCEPT_EPOCH,
    ]


@pytest.mark.parametrize("code", [CHANGES_IGNORED, TABLE_SUSPENDED, TABLE_EMPTIED, DEAD_LETTERS_OPEN])
def test_changes_that_nothing_brings_back_offer_to_build_the_table_again(
    stopped: TableView, tmp_path: Path, code: str
) -> None:
    """The runbook's way out is a reset; without its command the page would only say that rows are missing."""
    found = fixes.of_loss(load_mirror(tmp_path / "mirrors" / "shop.yaml"), code, "dbo.orders")
    resets = [one.text for one in found[1] if " reload-table " in one.text]
    assert len(resets) == (code != DEAD_LETTERS_OPEN)
