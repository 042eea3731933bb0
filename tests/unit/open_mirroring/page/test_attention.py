"""What needs attention is shown first, with cause, consequence and fix; equal problems are one; trends are shown."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from starlette.testclient import TestClient

from open_mirroring.errors import TerminalError
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.proofs import ProofLedger, RecordedProof
from open_mirroring.operate.history import WEEK, lag_per_hour, verified_per_hour
from open_mirroring.operate.viewing import view_mirror
from open_mirroring.page.attention import Problem, problems
from open_mirroring.page.views import Chart
from open_mirroring.protocols.coverage import Coverage
from open_mirroring.protocols.proving import Kind, Position, Proof
from open_mirroring.protocols.verdicts import Verdict
from tests.hand_published import CUSTOMERS, ORDERS
from tests.page_mirror import PAYMENTS, PageMirror, form_of

HOUR = timedelta(hours=1)


@pytest.fixture
def made(filled_page: PageMirror, tmp_path: Path) -> PageMirror:
    return PageMirror(tmp_path, filled_page)


def found(made: PageMirror) -> list[Problem]:
    view = view_mirror(made.mirror, made.ledger, made.now)
    return problems(made.mirror, made.ledger, view, view.tables)


def prove(made: PageMirror, source: str, ago: timedelta, *, rows: int, missing: int = 0) -> None:
    counts = {Kind.MISSING: missing}
    proof = Proof(Position(2, None), "dbo", 1, rows, rows, counts=counts, proved_at=made.now - ago)
    ProofLedger(made.ledger).record(RecordedProof(str(uuid4()), made.table(source).id, 1, proof))


def test_what_is_fine_is_quiet(made: PageMirror) -> None:
    assert found(made) == []
    client = TestClient(made.app(), base_url="http://127.0.0.1")
    assert "Nothing: 4 tables mirrored." in client.get("/mirrors/shop").text
    assert "Nothing. 1 mirror, no table with a problem." in client.get("/").text


def test_equal_problems_are_one_and_one_form_decides_about_all_their_tables(made: PageMirror) -> None:
    for source in (ORDERS, PAYMENTS, CUSTOMERS):
        made.stop(source, "SENDER_OTHER", "two databases send")
    (one,) = found(made)
    assert one.tables == (CUSTOMERS, ORDERS, PAYMENTS) and one.waiting == 5
    assert one.found == (("two databases send", one.tables),)
    assert "5 changes of the change log are published then" in one.consequence
    assert one.commands[0].text.count("\n") == 2, "one line for each table"
    client = TestClient(made.app(), base_url="http://127.0.0.1")
    label = "Resume this table (3 tables)"
    form = {**form_of(client.get("/").text, label), "who": "Ada", "why": "one database", "source": [*one.tables]}
    for _ in range(2):
        answer = client.post("/mirrors/shop/decide", data=form)
        assert answer.status_code == 200 and answer.text.count("Cleared: SENDER_OTHER") == 3
    assert found(made) == []


def test_what_is_refused_for_one_table_is_done_for_the_others(made: PageMirror) -> None:
    for source in (ORDERS, PAYMENTS):
        made.stop(source, "SENDER_OTHER", "two databases send")
    client = TestClient(made.app(), base_url="http://127.0.0.1")
    form = form_of(client.get("/mirrors/shop").text, "Resume this table (2 tables)")
    made.stop(PAYMENTS, "SCHEMA_CHANGED", "a type changed")
    sent = {**form, "who": "Ada", "why": "one database", "source": [ORDERS, PAYMENTS]}
    answer = client.post("/mirrors/shop/decide", data=sent)
    assert answer.status_code == 409 and "Done in part" in answer.text and "COMMAND_REFUSED" in answer.text
    assert (made.table(ORDERS).stop_code, made.table(PAYMENTS).stop_code) == (None, "SCHEMA_CHANGED")


def test_looking_again_counts_verdicts_or_says_why_it_cannot(made: PageMirror, monkeypatch: pytest.MonkeyPatch) -> None:
    made.stop(ORDERS, "SENDER_OTHER", "two databases send")
    client = TestClient(made.app(), base_url="http://127.0.0.1")
    form = form_of(client.get("/mirrors/shop").text, "Look again now")
    assert "4 tables inspected: 1 stopped, 3 mirrored." in client.post("/mirrors/shop/decide", data=form).text

    def refused(*_: object) -> None:
        raise TerminalError("ACCESS_DENIED", "the client secret has expired")

    monkeypatch.setattr("open_mirroring.operate.deciding.inspect_mirror", refused)
    answer = client.post("/mirrors/shop/decide", data=form)
    assert answer.status_code == 409 and "Not done" in answer.text and "the client secret has expired" in answer.text


def test_dropped_columns_are_chosen_among_those_that_not_all_rows_have_and_recorded_all_or_none(
    made: PageMirror,
) -> None:
    made.stop(ORDERS, "COLUMN_NOT_STREAMED", "changes do not contain name")
    (one,) = found(made)
    assert one.buttons[0].choices[0].values == ("id", "name"), "what was loaded, as no change is known"
    made.drop_a_column()
    client = TestClient(made.app(), base_url="http://127.0.0.1")
    form = {**form_of(client.get("/").text, "Columns were dropped"), "who": "Ada", "why": "x"}
    answer = client.post("/mirrors/shop/decide", data={**form, "subject": ["price", "<b>cost"]})
    assert answer.status_code == 409 and made.table().stop_code == "RENAME_POSSIBLE", "the newest rows have a cost"


def test_a_proof_that_found_differences_needs_attention(made: PageMirror) -> None:
    prove(made, PAYMENTS, timedelta(0), rows=10, missing=2)
    (one,) = found(made)
    assert (one.code, one.verdict, one.found[0][0]) == ("NOT_EQUAL", Verdict.LOSSES, "2 rows differ of 10")
    assert one.consequence == "Rows at the target differ from the source." and "--proof" in one.commands[0].text


def test_what_parts_of_a_table_add_up_to_is_on_both_pages_and_in_the_metrics(made: PageMirror) -> None:
    """The share of rows, the days, the last difference; and that some rows are late."""
    made.mirror.file.write_text(f"{made.mirror.file.read_text()}prove: {{cover_in_days: 7, alert_after_days: 10}}\n")
    began = made.now - timedelta(days=11)
    proved = (made.now - timedelta(days=2), None)
    coverage = Coverage(began, began, "id", ("100",), proved, (30, 0), 40, differed_at=made.now - timedelta(hours=50))
    recorded = RecordedProof(str(uuid4()), made.table(ORDERS).id, 1, Proof(Position(2, None), "dbo", 1), coverage)
    recorded = recorded._replace(proof=replace(recorded.proof, proved_at=made.now))
    ProofLedger(made.ledger).record(recorded)
    kept = ProofLedger(made.ledger).find(recorded.id)
    assert kept is not None and kept.coverage == coverage
    client = TestClient(made.app(), base_url="http://127.0.0.1")
    said = "erified 75 % of its rows within 7 days, last difference 2 d 2 h ago; some rows were not compared for 11 d"
    assert all(said in client.get(page).text for page in ("/mirrors/shop", f"/mirrors/shop/table?source={ORDERS}"))
    metrics = client.get("/metrics").text
    assert f'table_verified_ratio{{mirror="shop",table="{ORDERS}"}} 0.75' in metrics
    found = re.search(rf'table_unverified_seconds{{mirror="shop",table="{ORDERS}"}} (\d+)', metrics)
    assert found is not None and timedelta(days=11).total_seconds() <= int(found[1])


def test_the_lag_of_each_hour_is_that_of_the_oldest_change_that_was_not_published_yet(made: PageMirror) -> None:
    """Batch 1 was logged 20 hours ago, batch 2 10 hours ago; orders are published late, the others at once."""
    published, now, orders = t.published_file.c, made.now, made.table().id
    with made.ledger.begin() as db:
        for number, ago in ((1, 20), (2, 10)):
            same = t.published_file.update().where(published.number == number)
            db.execute(same.values(confirmed_at=now - ago * HOUR))
            db.execute(same.where(published.table_id == orders).values(confirmed_at=now - (ago - 3.5) * HOUR))
    lags = [round(lag / 3600, 1) for lag in lag_per_hour(made.ledger, "shop", now, [now - HOUR / 2])]
    assert len(lags) == WEEK and lags[-24:-15] == [0, 0, 0, 0, 1, 2, 3, 3.5, 0]
    assert lags[-1] == 0.5 and sum(lags) == 2 * (1 + 2 + 3 + 3.5) + 0.5
    assert lag_per_hour(made.ledger, "shop", now, [], hours=2) == [0, 0]


def test_the_share_of_verified_rows_follows_the_newest_proof_of_each_table(made: PageMirror) -> None:
    with made.ledger.begin() as db:
        db.execute(t.proof.delete())
    prove(made, ORDERS, 9 * 24 * HOUR, rows=30)
    prove(made, CUSTOMERS, 10.5 * HOUR, rows=10)
    prove(made, ORDERS, 5.5 * HOUR, rows=30, missing=3)
    tables = [line.state for line in view_mirror(made.mirror, made.ledger, made.now).tables]
    shares, compared = verified_per_hour(made.ledger, tables, made.now)
    assert compared == 2 and [shares[at] for at in (0, -12, -11, -7, -6, -1)] == [0.75, 0.75, 1, 1, 0.925, 0.925]
    assert verified_per_hour(made.ledger, tables[:0], made.now) == ([], 0)


@pytest.mark.parametrize(
    ("values", "trend"),
    [([0, 0, 0, 0], "steady"), ([9, 9, 1, 5], "rising"), ([1, 1, 8, 2], "falling"), ([5, 5, 50, 52], "steady")],
)
def test_a_trend_compares_the_newest_quarter_with_the_one_before(values: list[float], trend: str) -> None:
    assert Chart("Lag", "4 hours", values, str, 0).trend == trend


def test_a_lag_that_is_over_is_not_called_rising() -> None:
    assert Chart("Lag", "4 hours", [0, 0, 9, 0], str, 9, good="falling").trend == "steady"


def test_the_next_step_names_the_mirror_file(made: PageMirror) -> None:
    made.stop(ORDERS, "DEAD_LETTERS_UNNAMED", "no table is named")
    (one,) = found(made)
    assert f"`open-mirroring dead-letters {made.mirror.file} --raw NEWFILE`" in one.next_step
