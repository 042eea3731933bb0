"""What operators decide is checked, fenced, and written down with who and why."""

from __future__ import annotations

import pytest

from open_mirroring.codes import WHY_RESET
from open_mirroring.errors import TerminalError
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.decisions import EPOCH_UNKNOWN, accept_epoch, open_stops, resume_extraction, resume_table
from open_mirroring.ledger.publish_ledger import PublishLedger
from open_mirroring.protocols.publishing import Lost
from tests.hand_made_mirror import GUID, OTHER_GUID, HandMadeMirror

REASON = Reason("ada", "the column is back")
LOW = "0000000A:01:1"


def refused(call: object, *arguments: object) -> TerminalError:
    with pytest.raises(TerminalError) as caught:
        call(*arguments)  # type: ignore[operator]
    assert caught.value.next_step
    return caught.value


def test_resuming_clears_the_stop_of_that_table_alone_and_writes_it_down(made: HandMadeMirror) -> None:
    made.stop("dbo.orders", "PARTIAL_ROWS", "2 of 3 columns")
    made.stop("dbo.customers", "PARTIAL_ROWS")
    cleared = resume_table(made.ledger, "shop", "dbo.orders", REASON)
    assert (cleared.code, cleared.what) == ("PARTIAL_ROWS", "2 of 3 columns")
    assert made.table("dbo.orders").stop_code is None
    assert [stop.source for stop in open_stops(made.ledger, "shop")] == ["dbo.customers"]
    stop = {"code": "PARTIAL_ROWS", "what": "2 of 3 columns"}
    detail = {"who": "ada", "why": "the column is back", "cleared": stop}
    assert made.audit() == [("dbo.orders", "RESUMED", detail)]


def test_a_decision_fences_whoever_was_at_work_on_the_table(made: HandMadeMirror) -> None:
    """A run that saw the table stopped, or not yet, must not write over the decision."""
    made.stop("dbo.orders", "PARTIAL_ROWS")
    publisher, table_id = PublishLedger(made.ledger, "shop"), made.ids["dbo.orders"]
    version = publisher.acquire([table_id])[table_id].row.version
    resume_table(made.ledger, "shop", "dbo.orders", REASON)
    assert publisher.stop({table_id: (version, "CONFLICT", "late")}) == {table_id: Lost()}
    assert made.table("dbo.orders").stop_code is None


@pytest.mark.parametrize("code", sorted(WHY_RESET))
def test_a_stop_that_needs_a_reset_is_not_lifted(made: HandMadeMirror, code: str) -> None:
    made.stop("dbo.orders", code)
    error = refused(resume_table, made.ledger, "shop", "dbo.orders", REASON)
    assert error.code == "COMMAND_REFUSED"
    assert code in error.what and WHY_RESET[code] in error.what
    assert made.table("dbo.orders").stop_code == code
    assert made.audit() == []


def test_an_unknown_stream_is_not_lifted_by_resuming_g_01(made: HandMadeMirror) -> None:
    made.stop("dbo.orders", "EPOCH_UNKNOWN")
    error = refused(resume_table, made.ledger, "shop", "dbo.orders", REASON)
    assert error.code == "COMMAND_REFUSED"
    assert "accept-epoch" in error.next_step
    assert made.table("dbo.orders").stop_code == "EPOCH_UNKNOWN"


def test_what_is_not_stopped_or_not_there_cannot_be_resumed(made: HandMadeMirror) -> None:
    assert refused(resume_table, made.ledger, "shop", "dbo.orders", REASON).code == "COMMAND_REFUSED"
    assert refused(resume_table, made.ledger, "shop", "dbo.nothing", REASON).code == "ARGUMENT_INVALID"
    assert refused(resume_extraction, made.ledger, "shop", REASON).code == "COMMAND_REFUSED"
    assert refused(resume_extraction, made.ledger, "other", REASON).code == "COMMAND_REFUSED"


def test_an_accepted_stream_comes_after_all_earlier_ones_g_01(made: HandMadeMirror) -> None:
    made.accept("dbo.orders", GUID, 0)
    made.commit(1, {"dbo.orders": (1, LOW)})
    made.commit(2, {"dbo.orders": (1, LOW)}, epoch=OTHER_GUID)
    made.stop("dbo.orders", "EPOCH_UNKNOWN")
    # As an operator copies it from somewhere else.
    ordinal, cleared, unknown = accept_epoch(made.ledger, "shop", "dbo.orders", f" {OTHER_GUID.upper()} ", REASON)
    assert (ordinal, unknown) == (1, ())
    assert cleared is not None and cleared.code == "EPOCH_UNKNOWN"
    assert made.reader.epochs([made.ids["dbo.orders"]]) == {made.ids["dbo.orders"]: {GUID: 0, OTHER_GUID: 1}}
    assert made.table("dbo.orders").stop_code is None
    [(source, event, detail)] = made.audit()
    assert (source, event, detail["epoch"], detail["ordinal"]) == ("dbo.orders", "EPOCH_ACCEPTED", OTHER_GUID, 1)
    assert (detail["who"], detail["why"]) == REASON


def test_a_table_stays_stopped_while_another_stream_is_unknown(made: HandMadeMirror) -> None:
    made.commit(1, {"dbo.orders": (1, LOW)})
    made.commit(2, {"dbo.orders": (1, LOW)}, epoch=OTHER_GUID)
    made.stop("dbo.orders", "EPOCH_UNKNOWN")
    assert accept_epoch(made.ledger, "shop", "dbo.orders", OTHER_GUID, REASON) == (0, None, (GUID,))
    assert made.table("dbo.orders").stop_code == "EPOCH_UNKNOWN"
    ordinal, _, unknown = accept_epoch(made.ledger, "shop", "dbo.orders", GUID, REASON)
    assert (ordinal, unknown) == (1, ())
    assert made.table("dbo.orders").stop_code is None


def test_accepting_a_stream_leaves_a_stop_of_another_cause(made: HandMadeMirror) -> None:
    made.commit(1, {"dbo.orders": (1, LOW)})
    made.stop("dbo.orders", "FILE_MISSING")
    assert accept_epoch(made.ledger, "shop", "dbo.orders", GUID, REASON)[1] is None
    assert made.table("dbo.orders").stop_code == "FILE_MISSING"


def test_only_a_stream_that_was_seen_and_is_unknown_can_be_accepted(made: HandMadeMirror) -> None:
    made.accept("dbo.orders", GUID, 0)
    made.commit(1, {"dbo.orders": (1, LOW), "dbo.customers": (1, LOW)})
    made.commit(2, {"dbo.customers": (1, LOW)}, epoch=OTHER_GUID)
    assert refused(accept_epoch, made.ledger, "shop", "dbo.orders", GUID, REASON).code == "COMMAND_REFUSED"
    error = refused(accept_epoch, made.ledger, "shop", "dbo.orders", OTHER_GUID, REASON)
    assert error.code == "COMMAND_REFUSED", "it was seen, but not of this table"
    assert refused(accept_epoch, made.ledger, "shop", "dbo.nothing", GUID, REASON).code == "ARGUMENT_INVALID"
    assert made.audit() == []


def test_a_stopped_mirror_is_resumed_by_a_decision_of_its_own(made: HandMadeMirror) -> None:
    made.set_mirror(stop_code="LOG_CONFLICT", stop_what="other files")
    made.stop("dbo.orders", "FILE_MISSING")
    assert [(stop.source, stop.code) for stop in open_stops(made.ledger, "shop")] == [
        (None, "LOG_CONFLICT"),
        ("dbo.orders", "FILE_MISSING"),
    ]
    cleared = resume_extraction(made.ledger, "shop", REASON)
    assert (cleared.code, cleared.what) == ("LOG_CONFLICT", "other files")
    assert made.reader.mirror().stop_code is None
    assert made.table("dbo.orders").stop_code == "FILE_MISSING"
    assert [(source, event) for source, event, _ in made.audit()] == [(None, "EXTRACTION_RESUMED")]


def test_a_decision_is_taken_once_and_lifts_no_later_stop_g_30(made: HandMadeMirror) -> None:
    """G-30: repeated by its request, it answers what it cleared; without one, or by another, it is a decision anew."""
    made.stop("dbo.orders", "PARTIAL_ROWS", "2 of 3 columns")
    made.set_mirror(stop_code="LOG_CONFLICT", stop_what="x")
    first = resume_table(made.ledger, "shop", "dbo.orders", REASON, request="a")
    read = resume_extraction(made.ledger, "shop", REASON, request="b")
    made.stop("dbo.orders", "ROW_INCOMPLETE", "another one")
    made.set_mirror(stop_code="LOG_CONFLICT", stop_what="again")
    written = made.audit()
    assert resume_table(made.ledger, "shop", "dbo.orders", REASON, request="a") == first
    assert resume_extraction(made.ledger, "shop", REASON, request="b") == read
    assert made.audit() == written
    assert {stop.what for stop in open_stops(made.ledger, "shop")} == {"again", "another one"}
    assert refused(lambda: resume_extraction(made.ledger, "shop", REASON, request="a")).code == "ARGUMENT_INVALID"
    assert resume_table(made.ledger, "shop", "dbo.orders", REASON, request="c").code == "ROW_INCOMPLETE"


def test_an_accepted_stream_answers_its_request_g_30(made: HandMadeMirror) -> None:
    """G-30: without a request, COMMAND_REFUSED says that it is done already."""
    made.accept("dbo.orders", GUID, 0)
    made.commit(1, {"dbo.orders": (1, LOW)}, epoch=OTHER_GUID)
    made.stop("dbo.orders", EPOCH_UNKNOWN)
    first = accept_epoch(made.ledger, "shop", "dbo.orders", OTHER_GUID, REASON, request="a")
    ordinal, cleared, unknown = first
    assert (ordinal, cleared and cleared.code, unknown) == (1, EPOCH_UNKNOWN, ())
    assert accept_epoch(made.ledger, "shop", "dbo.orders", OTHER_GUID, REASON, request="a") == first
    known = refused(accept_epoch, made.ledger, "shop", "dbo.orders", OTHER_GUID, REASON)
    assert known.code == "COMMAND_REFUSED"
