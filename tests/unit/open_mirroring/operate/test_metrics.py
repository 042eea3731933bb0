"""The figures of a mirror: from the ledger alone, and nothing invented where there is nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from open_mirroring.changes.horizon import MirrorHorizon
from open_mirroring.changes.manifest import OpenFragment
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.documents import FRAGMENTS
from open_mirroring.ledger.extract_ledger import ExtractLedger
from open_mirroring.ledger.horizon import move_horizon
from open_mirroring.operate.viewing import view_mirror
from tests.hand_made_mirror import HandMadeMirror

COMMITTED = datetime(2026, 1, 5, 10, 0, tzinfo=UTC)
NOW = COMMITTED + timedelta(hours=2)


def test_a_mirror_that_never_ran_has_no_ages(made: HandMadeMirror) -> None:
    found = view_mirror(made.mirror, made.ledger, NOW)
    assert (found.last_commit, found.state.open_since, found.oldest_fragment, found.horizon) == (None,) * 4
    assert (len(found.fragments), found.partitions, found.settled_letters) == (0, {}, {})


def test_ages_lags_and_counts(made: HandMadeMirror) -> None:
    """age of the last commit, offset lag against retention, open fragments, dead letters, late changes."""
    made.commit(1, {"dbo.orders": (3, "1:1:1")}, at=COMMITTED)
    assert move_horizon(made.ledger, "shop", 1, MirrorHorizon(1, COMMITTED, 0), [])
    since = COMMITTED - timedelta(hours=1)
    made.keep(FRAGMENTS, "shop", x=OpenFragment("x", "e", "1:1:1", 1, since, ()))
    made.insert(t.bound_range, mirror="shop", name="cdc/0", bound_to=700, batch=1)
    ExtractLedger(made.ledger, "shop").record_offsets({"cdc/0": (600, 1000), "cdc/1": (0, 5)})
    letter = {"mirror": "shop", "origin": "cdc/0", "outcome": "replayed", "settled_at": COMMITTED}
    for place in (1, 2):
        made.insert(t.settled_letter, batch=1, place=place, settled_in=1, **letter)
    publication = {"generation": 1, "kind": "changes", "batch_from": 0, "batch_to": 1, "confirmed_at": COMMITTED}
    for version, counts in enumerate(({"published": 1, "superseded": 2}, {"duplicates": 4, "superseded": 1})):
        values = {"version": version, "counts": json.dumps(counts), **publication}
        made.insert(t.publication, table_id=made.ids["dbo.orders"], **values)
    for place in range(3):
        made.letter(place)
    made.letter(3, "dbo.orders", code="ROW_INVALID")
    made.set_mirror(open_number=2, open_bound_at=COMMITTED + timedelta(hours=1))
    found = view_mirror(made.mirror, made.ledger, NOW, closely=["dbo.orders"])
    assert (found.last_commit, found.state.open_since) == (COMMITTED, COMMITTED + timedelta(hours=1))
    assert found.horizon is not None and found.horizon.at == COMMITTED
    letters = found.report.letters
    assert (len(found.fragments), found.oldest_fragment, letters.without_table.count) == (1, since, 3)
    assert letters.known and letters.tables["dbo.orders"].by_code == {"ROW_INVALID": 1}
    assert found.settled_letters == {"replayed": 2}
    assert {name: lag[:2] for name, lag in found.partitions.items()} == {"cdc/0": (300, 100), "cdc/1": (5, 0)}
    customers, orders = found.tables
    assert orders.totals == {"publications": 2, "published": 1, "superseded": 3, "duplicates": 4}
    assert (customers.totals, customers.marks) == (None, None), "what costs more with the history is asked for by name"
    assert json.loads(json.dumps(found.document()))["partitions"]["cdc/0"]["until_loss"] == 100


def test_the_horizon_does_not_move_past_a_batch_under_way_or_newly_committed(made: HandMadeMirror) -> None:
    """G-05, I29: what was looked at must still be all there is."""
    made.commit(1, {})
    horizon = MirrorHorizon(1, COMMITTED, 0)
    assert not move_horizon(made.ledger, "shop", 0, horizon, [])
    made.set_mirror(open_number=2)
    assert not move_horizon(made.ledger, "shop", 1, horizon, [])
