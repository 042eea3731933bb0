"""The page over HTTP: what it shows, who may see and decide, and what a hostile source cannot do to it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from starlette.requests import Request
from starlette.testclient import TestClient

from open_mirroring.changes.column_notes import ColumnNote, NoteKind
from open_mirroring.config import load_mirror
from open_mirroring.config.schedule import next_after
from open_mirroring.ledger import open_ledger
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.columns import put_notes
from open_mirroring.ledger.declaring import ResetRecord
from open_mirroring.ledger.documents import OFFSETS, Offsets
from open_mirroring.ledger.load_ledger import LoadPlan
from open_mirroring.ledger.reset_ledger import ResetLedger
from open_mirroring.operate.exit_codes import Exit
from open_mirroring.operate.history import rows_per_hour
from open_mirroring.operate.reset_driver import ResetDriver
from open_mirroring.operate.viewing import view_mirror
from open_mirroring.page import AccessDenied, LoopbackDoor, MirrorShelf, Surroundings, TokenDoor, Visitor, build_app
from open_mirroring.page.app import fabric_item
from open_mirroring.page.exposition import METRICS
from open_mirroring.page.runbook import as_html
from open_mirroring.protocols.resetting import ResetStage
from open_mirroring.protocols.verdicts import Verdict
from open_mirroring.reconciliation.inspection import declaration, declare_tables
from spark_jobs.cli.command_line import main
from tests.hand_made_mirror import GUID, HandMadeMirror
from tests.hand_published import CUSTOMERS, ORDERS
from tests.page_mirror import HOSTILE, PAYMENTS, PageMirror, form_of

TOKEN = "a token of more than sixteen characters"


@pytest.fixture
def made(filled_page: PageMirror, tmp_path: Path) -> PageMirror:
    return PageMirror(tmp_path, filled_page)


@pytest.fixture
def client(made: PageMirror) -> TestClient:
    return TestClient(made.app(), base_url="http://127.0.0.1")


def table(source: str, **more: object) -> str:
    return "/mirrors/shop/table?" + urlencode({"source": source, **more})


def audit(made: PageMirror) -> list[tuple[str, Mapping[str, object]]]:
    return [entry for entry in made.audit() if entry[0] != "ARGUMENT_INVALID"]


# --- looking ----------------------------------------------------------------------------------------------------


def test_every_page_says_the_same_in_html_and_json(made: PageMirror, client: TestClient) -> None:
    made.break_things()
    for address in ("/", "/mirrors/shop", table(ORDERS), table(HOSTILE)):
        page = client.get(address)
        assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
        plain = client.get(address, headers={"accept": "application/json"})
        asked = client.get(address + ("&" if "?" in address else "?") + "format=json")
        assert plain.headers["content-type"] == "application/json" and plain.json().keys() == asked.json().keys()
    found = client.get(table(ORDERS, format="json")).json()
    assert (found["table"]["verdict"], found["table"]["code"]) == ("STOP", "TYPE_UNSUPPORTED")
    assert found["taken"] == sum(found["became"].values()) == 4 and found["adds_up"]
    assert [file["number"] for file in found["files"]] == [2, 1]
    mirror = client.get("/mirrors/shop?format=json").json()
    assert mirror["pipeline"]["waiting_changes"] == 5 and mirror["mirror"]["verdict"] == "STOP"
    assert sum(mirror["hours"]["changes"]) == 21 and len(mirror["batches"]) == 4


def test_what_was_read_and_published_is_counted_by_hour(made: PageMirror, client: TestClient) -> None:
    found = client.get("/mirrors/shop?format=json").json()
    assert sum(found["hours"]["rows"]) == 2 * 2 * len(made.batches)
    with made.ledger.begin() as db:
        db.execute(t.published_file.update().values(confirmed_at=made.now - timedelta(hours=5)))
    hours = rows_per_hour(made.ledger, made.mirror.name, made.now)
    assert hours[-6] == sum(hours) > 0


def test_notes_on_a_table_are_on_its_page(made: PageMirror, client: TestClient) -> None:
    """What may differ though nothing is wrong: one who asks about this table must not have to read a run's log."""
    table_id = made.reader.tables()[ORDERS].id
    with made.ledger.begin() as db:
        put_notes(db, table_id, [ColumnNote(1, NoteKind.CHANGED, "<b>city</b>", "0:A:1:1", 2, made.now)])
    page = client.get(table(ORDERS)).text
    assert "unverified since position 0:A:1:1" in page and "<b>city" not in page
    assert "unverified" not in client.get(table(CUSTOMERS)).text
    assert "1 note" in client.get("/mirrors/shop").text


def test_a_load_shows_how_long_the_rest_takes(made: PageMirror, client: TestClient) -> None:
    """Two of four chunks in ten minutes: the other two take twenty."""
    state = made.reader.tables()[ORDERS]
    plan = LoadPlan("", (), (0, 1, 2, 3), done=frozenset({0, 1}))
    with made.ledger.begin() as db:
        mine = t.published_file.c.table_id == state.id
        file = t.published_file.update().where(mine)
        db.execute(file.values(kind="load", confirmed_at=made.now))
        db.execute(file.where(t.published_file.c.number == 1).values(confirmed_at=made.now - timedelta(minutes=10)))
        pending = {"load_state": "pending", "load_plan": plan.to_json()}
        db.execute(t.mirrored_table.update().where(t.mirrored_table.c.id == state.id).values(**pending))
    assert "2 of 4 chunks, about 20 min left" in client.get(table(ORDERS)).text


def test_the_mirrored_database_is_a_link_where_its_guids_are_known(made: PageMirror) -> None:
    zone = f"store: onelake, workspace: {GUID}, item: {GUID}, connection: lake"
    text = re.sub(r"landing_zone:\n(  .*\n)+", f"landing_zone: {{{zone}}}\n", made.file.read_text())
    (made.folder / "lake.yaml").write_text(text)
    address = f"https://app.fabric.microsoft.com/groups/{GUID}/mirroreddatabases/{GUID}"
    assert (fabric_item(load_mirror(made.folder / "lake.yaml")), fabric_item(made.mirror)) == (address, "")


def test_the_verdicts_are_those_that_were_recorded_and_grow_old(made: PageMirror) -> None:
    now = datetime.now(UTC)
    found = view_mirror(made.mirror, made.ledger, now)
    assert found.verdict is Verdict.PASS and found.looked_at is not None
    assert found.next_run == next_after("0 * * * *", now)
    late = view_mirror(made.mirror, made.ledger, now + timedelta(hours=3))
    assert {line.code for line in late.tables} == {"NOT_INSPECTED"} and late.verdict is None
    with made.ledger.begin() as db:
        db.execute(t.document.delete().where(t.document.c.kind == "verdict"))
    assert {line.code for line in view_mirror(made.mirror, made.ledger, now).tables} == {"NOT_INSPECTED"}


def test_the_lag_is_that_of_the_oldest_change_that_is_not_applied(made: PageMirror) -> None:
    found = view_mirror(made.mirror, made.ledger, made.now)
    lags = {line.source: line.lag for line in found.tables}
    assert timedelta(minutes=12) <= lags[PAYMENTS] == found.lag < timedelta(minutes=20)
    waiting = {line.source: (line.waiting.changes, line.waiting.batches) for line in found.tables}
    assert waiting[PAYMENTS] == (5, 1) and waiting[ORDERS] == (0, 0)


def test_tables_are_searched_filtered_sorted_and_cut_into_pages(made: PageMirror, client: TestClient) -> None:
    made.break_things()

    def sources(**asked: object) -> list[str]:
        found = client.get("/mirrors/shop?" + urlencode({"format": "json", **asked})).json()
        return [line["source"] for line in found["tables"]]

    assert sources()[:2] == [ORDERS, HOSTILE], "the worst first"
    assert sources(search="PAY") == [PAYMENTS]
    assert sources(verdict="PASS") == [CUSTOMERS, PAYMENTS]
    assert sources(order="-waiting")[0] == PAYMENTS
    assert sources(order="nonsense", page="x") == sources(page="99999999999") == sources()


def test_a_ledger_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    made = PageMirror(tmp_path)
    made.ledger.dispose()
    for file in tmp_path.glob("ledger.db*"):
        file.unlink()
    client = TestClient(made.app(), base_url="http://127.0.0.1")
    assert "Nothing has run yet" in client.get("/").text and "Nothing has run yet" in client.get("/mirrors/shop").text
    assert not list(tmp_path.glob("ledger.db*"))


def test_a_ledger_that_is_removed_while_the_page_runs_is_not_made_again(made: PageMirror, client: TestClient) -> None:
    assert "Nothing has run yet" not in client.get("/").text
    made.ledger.dispose()
    for file in made.folder.glob("ledger.db*"):
        file.unlink()
    assert "Nothing has run yet" in client.get("/").text and not list(made.folder.glob("ledger.db*"))


def test_a_wrong_mirror_file_is_reported_and_hinders_no_other_one(made: PageMirror, client: TestClient) -> None:
    (made.file.parent / "wrong.yaml").write_text("mirror: <b>\n\ttables: 1\n", encoding="utf-8")
    page = client.get("/").text
    assert "A mirror file is wrong." in page and "wrong.yaml" in page and 'href="/mirrors/shop"' in page
    (made.file.parent / "wrong.yaml").unlink()
    assert "A mirror file is wrong." not in client.get("/").text


def test_the_page_reads_while_a_run_writes(made: PageMirror, client: TestClient) -> None:
    with made.ledger.begin() as db:
        db.execute(t.mirror.update().values(committed=9))
        assert client.get("/mirrors/shop").status_code == 200, "a reader waits for no writer"


def test_a_ledger_of_an_unknown_revision_is_refused(made: PageMirror, client: TestClient) -> None:
    with made.ledger.begin() as db:
        db.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    answer = client.get("/mirrors/shop")
    assert answer.status_code == 503 and "LEDGER_UNFIT" in answer.text
    assert "LEDGER_UNFIT" in client.get("/").text


# --- hostile names and values -----------------------------------------------------------------------------------


def test_names_and_values_of_a_source_stay_text(made: PageMirror, client: TestClient) -> None:
    made.break_things()
    letter = urlencode({"batch": 4, "origin": "f<b>", "place": 4, "source": HOSTILE})
    for address in ("/", "/mirrors/shop", table(ORDERS), table(HOSTILE), f"/mirrors/shop/letter?{letter}"):
        page = re.sub('="[^"]*"', "", client.get(address).text)
        for wrong in ("<img", "<script>alert", "<b>", "<i>", "49‮", "‮"):
            assert wrong not in page, (address, wrong)
    raw = client.get(f"/mirrors/shop/letter?{letter}").text
    assert "&lt;script&gt;alert(document.domain)&lt;/script&gt;\\x00\\xff" in raw
    form = form_of(client.get(table(HOSTILE)).text, "Accept all of MESSAGE_INVALID as lost")
    assert form["source"] == HOSTILE, "what a form sends back is exactly the name"
    assert "‮" not in as_html("a ‮ b `<b>` [x](javascript:1)") and "javascript" not in as_html("[x](javascript:1)")


def test_every_answer_forbids_scripts_and_frames(client: TestClient) -> None:
    for address in ("/", "/mirrors/shop", "/mirrors/none", "/metrics", "/static/page.js", "/nowhere"):
        headers = client.get(address).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
    script = client.get("/static/page.js")
    assert (script.status_code, script.headers["cache-control"]) == (200, "max-age=300")
    assert script.headers["content-type"].startswith("text/javascript")
    for page in ("/", "/mirrors/shop", table(ORDERS)):
        tags = re.sub('="[^"]*"', "", " ".join(re.findall(r"<[^>]*>", client.get(page).text)))
        assert "<script src>" in tags and not re.search(r"<script>|\sstyle|\son\w+", tags)


# --- deciding ---------------------------------------------------------------------------------------------------


def test_a_stopped_table_is_resumed_once_with_name_and_reason(made: PageMirror, client: TestClient) -> None:
    """G-30: the same form sent twice lifts no stop that came later."""
    made.break_things()
    form = {**form_of(client.get(table(ORDERS)).text, "Resume this table"), "who": "Ada", "why": "mended"}
    answer = client.post("/mirrors/shop/decide", data=form)
    assert answer.status_code == 200 and "Cleared: TYPE_UNSUPPORTED" in answer.text and "Now: PASS OK" in answer.text
    assert made.table().stop_code is None
    event, detail = audit(made)[-1]
    assert (event, detail["who"], detail["why"]) == ("RESUMED", "Ada (as typed on the page)", "mended")
    made.stop(ORDERS, "SENDER_OTHER", "x")
    assert client.post("/mirrors/shop/decide", data=form).status_code == 200
    assert made.table().stop_code == "SENDER_OTHER"


def test_dead_letters_are_accepted_all_of_a_code_or_one(made: PageMirror, client: TestClient) -> None:
    made.break_things()
    made.letter(None, batch=3)
    page = client.get("/mirrors/shop").text
    assert "any table may lack a change" in page
    form = {**form_of(page, "Accept all of MESSAGE_INVALID as lost"), "who": "Ada", "why": "not ours"}
    assert "Accepted as lost: 1" in client.post("/mirrors/shop/decide", data=form).text
    letter = "/mirrors/shop/letter?" + urlencode({"batch": 4, "origin": "f<b>", "place": 4, "source": HOSTILE})
    form = {**form_of(client.get(letter).text, "Accept this one as lost"), "who": "Ada", "why": "x"}
    assert client.post("/mirrors/shop/decide", data=form).status_code == 200
    assert view_mirror(made.mirror, made.ledger, made.now).report.letters.count == 0
    again = {**form, "request": "another"}
    answer = client.post("/mirrors/shop/decide", data=again)
    assert answer.status_code == 409 and "ARGUMENT_INVALID" in answer.text


def test_a_reset_is_a_command_and_no_button(made: PageMirror, client: TestClient) -> None:
    made.break_things()
    with made.ledger.begin() as db:
        db.execute(
            t.mirrored_table.update().where(t.mirrored_table.c.source == ORDERS).values(stop_code="SCHEMA_CHANGED")
        )
    page = client.get(table(ORDERS)).text
    assert "open-mirroring reload-table" in page and "Resume this table" not in page
    assert 'href="/runbook/SCHEMA_CHANGED"' in page and client.get("/runbook/SCHEMA_CHANGED").status_code == 200


@pytest.mark.parametrize("code", ["RELOAD_SEEN", "LOAD_REPEATED"])
def test_a_full_load_that_came_again_is_accepted_by_its_button_and_built_by_the_next_run_g125(
    made: PageMirror, client: TestClient, code: str
) -> None:
    made.break_things()
    with made.ledger.begin() as db:
        db.execute(t.mirrored_table.update().where(t.mirrored_table.c.source == ORDERS).values(stop_code=code))
    page = client.get(table(ORDERS)).text
    assert ("Resume this table" in page) is (code == "LOAD_REPEATED")
    form = {**form_of(page, "Accept the newest full load"), "who": "Ada", "why": "it was loaded"}
    for _ in range(2):
        assert "the next run builds the table from it" in client.post("/mirrors/shop/decide", data=form).text
    accepted = made.table().start.accepted
    assert accepted is not None and accepted.who.startswith("Ada") and made.table().stop_code == code
    assert [event for event, _ in audit(made)].count("RELOAD_ACCEPTED") == 1


def test_a_table_in_a_reset_is_said_to_be_gone_by_its_button_g_89(made: PageMirror, client: TestClient) -> None:
    """G-89: where nothing shows it; said too early it is refused, and nothing has changed."""
    resets = ResetLedger(made.ledger, "shop")
    declared = next(one for one in made.mirror.tables if one.source == ORDERS)
    resets.request_reload(declaration(declared)._replace(loads=True), Reason("Ada", "the key changed"))
    made.look()
    form = {**form_of(client.get(table(ORDERS)).text, "The table is gone"), "who": "Eve", "why": "looked"}
    answer = client.post("/mirrors/shop/decide", data=form)
    assert answer.status_code == 409 and "COMMAND_REFUSED" in answer.text
    ResetDriver(made.mirror, made.ledger, ORDERS).drive(timedelta(0))
    assert client.post("/mirrors/shop/decide", data=form).status_code == 200
    reset = made.table().reset
    assert reset is not None and reset.stage is ResetStage.TABLE_GONE


def test_a_table_is_said_to_be_back_by_its_button_g_89(made: PageMirror, client: TestClient) -> None:
    record = ResetRecord(ResetStage.REBUILDING, False, False, (made.table().folder,), False, "Ada", "x", "2026-01-05")
    with made.ledger.begin() as db:
        own = t.mirrored_table.c.source == ORDERS
        db.execute(t.mirrored_table.update().where(own).values(reset=record.to_json()))
    made.look()
    form = {**form_of(client.get(table(ORDERS)).text, "The table is back"), "who": "Eve", "why": "looked"}
    assert "the reset is over" in client.post("/mirrors/shop/decide", data=form).text
    assert made.table().reset is None


def test_a_new_table_is_mirrored_by_its_button_and_looking_again_changes_nothing(
    made: PageMirror, client: TestClient
) -> None:
    made.stop(ORDERS, "NEW_TABLE", "it joined")
    page = client.get(table(ORDERS)).text
    looked = {**form_of(page, "Look again now"), "who": "Ada", "why": "x"}
    assert client.post("/mirrors/shop/decide", data=looked).status_code == 200
    assert made.table().stop_code == "NEW_TABLE"
    form = {**form_of(page, "Mirror this table"), "who": "Ada", "why": "ticket 4711"}
    assert "Cleared: NEW_TABLE" in client.post("/mirrors/shop/decide", data=form).text
    assert made.table().stop_code is None


def test_a_lost_number_shows_the_command_that_publishes_it_again(made: PageMirror, client: TestClient) -> None:
    made.path(2).unlink()
    made.look()
    page = client.get(table(ORDERS)).text
    assert "FILE_MISSING" in page and "open-mirroring repair" in page and "--number 2 " in page


def test_an_unknown_stream_is_accepted_by_its_name(made: PageMirror, client: TestClient) -> None:
    made.stop(ORDERS, "EPOCH_UNKNOWN", "x")
    label = "Accept stream 11111111-2222-3333-4444-555555555555"
    form = {**form_of(client.get(table(ORDERS)).text, label), "who": "Ada", "why": "nothing was lost"}
    assert "has the ordinal" in client.post("/mirrors/shop/decide", data=form).text
    assert made.table().stop_code is None


def test_a_column_that_was_dropped_is_reported_by_choosing_it(made: PageMirror, client: TestClient) -> None:
    made.drop_a_column()
    page = client.get(table(ORDERS)).text
    assert "A column was renamed" in page and '<option value="&lt;b&gt;cost">&lt;b&gt;cost</option>' in page
    assert 'value="id"' not in page, "all rows have it"
    form = {**form_of(page, "Columns were dropped"), "subject": "price", "who": "Ada", "why": "ticket 4711"}
    answer = client.post("/mirrors/shop/decide", data=form).text
    assert "Column price was dropped" in answer and "Cleared: RENAME_POSSIBLE" in answer
    assert audit(made)[-1][0] == "SCHEMA_ACCEPTED"
    renamed = {**form, "request": "another", "subject": "nothing", "renamed_to": "price"}
    assert "ARGUMENT_INVALID" in client.post("/mirrors/shop/decide", data=renamed).text


def test_a_stop_of_reading_is_lifted(made: PageMirror, client: TestClient) -> None:
    with made.ledger.begin() as db:
        db.execute(t.mirror.update().values(stop_code="LOG_CONFLICT", stop_what="another batch 3"))
    page = client.get("/mirrors/shop").text
    assert "Nothing new is read from the source." in page and "LOG_CONFLICT" in client.get(table(ORDERS)).text
    form = {**form_of(page, "Resume reading"), "who": "Ada", "why": "restored"}
    assert "Cleared: LOG_CONFLICT" in client.post("/mirrors/shop/decide", data=form).text


def test_a_decision_needs_a_name_and_a_reason(made: PageMirror, client: TestClient) -> None:
    made.break_things()
    form = form_of(client.get(table(ORDERS)).text, "Resume this table")
    for wrong in ({}, {"who": "Ada"}, {"why": "x"}, {"who": " ", "why": " "}):
        assert client.post("/mirrors/shop/decide", data={**form, **wrong}).status_code == 400
    assert client.post("/mirrors/shop/decide", data={**form, "who": "A", "why": "x" * 70_000}).status_code == 413
    unknown = {**form, "who": "Ada", "why": "x", "action": "drop-everything"}
    assert client.post("/mirrors/shop/decide", data=unknown).status_code == 409
    assert made.table().stop_code is not None


def test_a_form_of_another_site_decides_nothing(made: PageMirror, client: TestClient) -> None:
    made.break_things()
    form = {**form_of(client.get(table(ORDERS)).text, "Resume this table"), "who": "Ada", "why": "x"}
    send = {"url": "/mirrors/shop/decide", "data": form}
    assert client.post(**send, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert client.post(**{**send, "data": {**form, "form_token": "guessed"}}).status_code == 403
    client.cookies.clear()
    assert client.post(**send).status_code == 403
    assert client.get("/mirrors/shop/decide").status_code == 405
    assert made.table().stop_code is not None and not [e for e, _ in made.audit() if e == "RESUMED"]


# --- who may come in --------------------------------------------------------------------------------------------


def test_the_loopback_door_answers_to_its_own_names_only(made: PageMirror) -> None:
    for name, status in (("127.0.0.1:8090", 200), ("localhost", 200), ("[::1]:8090", 200), ("evil.example", 421)):
        assert TestClient(made.app(), base_url=f"http://{name}").get("/").status_code == status, name


def test_the_token_door_opens_to_the_token_only(made: PageMirror) -> None:
    client = TestClient(made.app(TokenDoor(TOKEN)), base_url="http://mirrors.example")
    for address in ("/", "/mirrors/shop", "/metrics", "/runbook/FILE_MISSING", table(ORDERS)):
        answer = client.get(address)
        assert answer.status_code == 401 and "orders" not in answer.text
    assert client.post("/mirrors/shop/decide", data={}).status_code == 401
    assert client.get("/", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert client.get("/", headers={"authorization": "Bearer wrong"}).status_code == 401
    assert client.post("/enter", data={"token": "wrong"}).status_code == 401
    entered = client.post("/enter", data={"token": TOKEN})
    assert entered.status_code == 200 and "token" not in str(entered.url), "it stays in no address"
    assert client.get("/mirrors/shop").status_code == 200
    cookie = next(cookie for cookie in client.cookies.jar if cookie.name == "open_mirroring_token")
    assert cookie.has_nonstandard_attr("HttpOnly")


def test_the_command_serves_this_machine_alone_unless_a_token_is_set(
    made: PageMirror, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served: list[Any] = []
    monkeypatch.setattr("uvicorn.run", lambda app, **settings: served.append((app, settings)))
    monkeypatch.delenv("OPEN_MIRRORING_UI_TOKEN", raising=False)

    def ui(*arguments: str) -> int:
        return main(["ui", str(made.file), *arguments])

    assert ui() == Exit.DONE and served[-1][1]["host"] == "127.0.0.1" and not served[-1][1]["access_log"]
    assert TestClient(served[-1][0], base_url="http://localhost").get("/mirrors/shop").status_code == 200
    for host in ("0.0.0.0", "::", "mirrors.example", "192.168.0.7"):
        assert ui("--host", host) == Exit.USAGE and "ARGUMENT_INVALID" in capsys.readouterr().err
    monkeypatch.setenv("OPEN_MIRRORING_UI_TOKEN", "short")
    assert ui() == Exit.USAGE and len(served) == 1
    monkeypatch.setenv("OPEN_MIRRORING_UI_TOKEN", TOKEN)
    assert ui("--host", "0.0.0.0") == Exit.DONE and TOKEN not in capsys.readouterr().out
    client = TestClient(served[-1][0], base_url="http://mirrors.example")
    assert client.get("/").status_code == 401
    assert main(["ui", str(made.folder / "none")]) == Exit.USAGE


@dataclass(frozen=True)
class NamedDoor:
    """Lets in by a header, as a mount in Airflow does by its login."""

    rights: Mapping[str, str]

    async def admit(self, request: Request) -> Visitor:
        name = request.headers.get("x-name", "")
        if name not in self.rights:
            raise AccessDenied(401, "who are you?", login="/login")
        rights = self.rights[name]
        return Visitor(name, lambda mirror: "look" in rights, lambda mirror: "decide" in rights)

    def cookies(self, request: Request) -> Mapping[str, str]:
        return {}


def test_viewers_look_and_editors_decide(made: PageMirror) -> None:
    made.break_things()
    app = made.app(NamedDoor({"Viola": "look", "Edith": "look decide", "Nora": ""}))

    def visit(name: str) -> TestClient:
        return TestClient(app, base_url="http://airflow.example", headers={"x-name": name})

    assert visit("").get("/").status_code == 401 and "/login" in visit("").get("/").text
    assert "shop" not in visit("Nora").get("/").text and visit("Nora").get("/mirrors/shop").status_code == 404
    assert "shop" not in visit("Nora").get("/metrics").text
    page = visit("Viola").get(table(ORDERS)).text
    assert "TYPE_UNSUPPORTED" in page and "<form method" not in page and "may decide" in page
    letter = "/mirrors/shop/letter?" + urlencode({"batch": 4, "origin": "f<b>", "place": 4, "source": HOSTILE})
    assert visit("Viola").get(letter).status_code == 403, "what a message holds is for who decides"
    edith = visit("Edith")
    form = form_of(edith.get(table(ORDERS)).text, "Resume this table") | {"why": "mended"}
    viola = visit("Viola")
    viola.cookies = edith.cookies
    assert viola.post("/mirrors/shop/decide", data=form).status_code == 403
    assert edith.post("/mirrors/shop/decide", data={**form, "who": "Mallory"}).status_code == 200
    assert audit(made)[-1][1]["who"] == "Edith", "the name is that of the login"


# --- metrics ----------------------------------------------------------------------------------------------------


def test_metrics_are_in_the_format_of_prometheus(made: PageMirror, client: TestClient) -> None:
    made.break_things()
    text = client.get("/metrics").text
    assert client.get("/metrics").headers["content-type"].startswith("text/plain; version=0.0.4")
    label = r'\w+="(?:[^"\\\n]|\\["\\n])*"'
    sample = re.compile(rf"^[a-z_]+\{{{label}(?:,{label})*\}} -?[0-9][0-9.e+]*$")
    lines = text.splitlines()
    assert [line for line in lines if not line.startswith("#") and not sample.match(line)] == []
    assert {line.split()[2] for line in lines if line.startswith("# TYPE")} == {metric.name for metric in METRICS}
    assert 'open_mirroring_table_stopped{mirror="shop",table="dbo.orders",code="TYPE_UNSUPPORTED"} 1' in lines
    assert 'open_mirroring_tables{mirror="shop",verdict="STOP"} 1' in lines
    assert any(line.startswith('open_mirroring_dead_letters{mirror="shop",table="dbo.<img') for line in lines)
    assert 'open_mirroring_table_waiting_changes{mirror="shop",table="dbo.payments"} 5' in lines


def test_a_mirror_whose_ledger_does_not_answer_is_down_in_the_metrics(made: PageMirror, tmp_path: Path) -> None:
    around = Surroundings(
        MirrorShelf([made.file]), LoopbackDoor(), ledger_url=lambda _: f"sqlite:///{tmp_path / 'none.db'}"
    )
    text = TestClient(build_app(around), base_url="http://127.0.0.1").get("/metrics").text
    assert 'open_mirroring_up{mirror="shop"} 0' in text


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        ("0 * * * *", "2026-01-05T10:00", "2026-01-05T11:00"),
        ("*/15 9-17 * * mon-fri", "2026-01-09T17:50", "2026-01-12T09:00"),
        ("30 2 1 * *", "2026-01-05T10:00", "2026-02-01T02:30"),
        ("0 0 29 2 *", "2026-01-05T10:00", "2028-02-29T00:00"),
        ("0 12 13 * 5", "2026-01-05T10:00", "2026-01-09T12:00"),
        ("5,35 */6 * jan sun", "2026-01-04T18:35", "2026-01-11T00:05"),
        ("0 0 * * 7", "2026-01-05T10:00", "2026-01-11T00:00"),
    ],
)
def test_the_next_moment_of_a_schedule(cron: str, after: str, expected: str) -> None:
    assert next_after(cron, datetime.fromisoformat(after)) == datetime.fromisoformat(expected)
    assert json.dumps(next_after("0 0 30 2 *", datetime.fromisoformat(after))) == "null"


def test_the_page_over_a_ledger_of_each_dialect(tmp_path: Path, ledger_url: str) -> None:
    """PostgreSQL counts in decimals, and SQLite forgets the zone of a moment."""
    made = HandMadeMirror(tmp_path)
    around = Surroundings(MirrorShelf([made.file]), LoopbackDoor(), ledger_url=lambda _: ledger_url)
    client = TestClient(build_app(around), base_url="http://127.0.0.1")
    made.ledger = open_ledger(ledger_url)
    assert client.get("/mirrors/shop?format=json").status_code == 200, "no table is there yet"
    made.ids = declare_tables(made.mirror, made.ledger)
    made.accept(ORDERS, GUID, 0)
    now = datetime.now(UTC)
    made.commit(1, {ORDERS: (3, "0000000A:01:1")}, counts={"messages": 3, "changes": 3}, at=now - timedelta(minutes=5))
    made.letter(4, ORDERS)
    made.keep(OFFSETS, "shop", **{"cdc/0": Offsets(0, 9, now)})
    found = client.get("/mirrors/shop?format=json").json()
    orders = next(line for line in found["tables"] if line["source"] == ORDERS)
    assert (orders["waiting"]["changes"], orders["dead_letters"]["open"], found["mirror"]["behind"]) == (3, 1, 9)
    assert found["hours"]["changes"][-1] == 3 and 290 < found["mirror"]["lag"] < 3000
    for address in ("/", "/mirrors/shop", table(ORDERS), table(ORDERS, format="json")):
        assert client.get(address).status_code == 200, address
    assert 'open_mirroring_partition_behind{mirror="shop",partition="cdc/0"} 9' in client.get("/metrics").text
    made.stop(ORDERS, "SENDER_OTHER")
    form = {**form_of(client.get(table(ORDERS)).text, "Resume this table"), "who": "Ada", "why": "x"}
    assert "Cleared: SENDER_OTHER" in client.post("/mirrors/shop/decide", data=form).text
