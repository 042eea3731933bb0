"""The page in a real browser: on a desk and on a phone, light and dark, by keyboard alone, without a script of its own.

``pytest tests/browser/test_page.py --screenshots docs/images`` makes the pictures of the documents anew.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from open_mirroring.config import Mirror
from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.opening import ZoneAddress
from open_mirroring.ledger.documents import VERDICTS, KeptVerdict
from open_mirroring.page import TokenDoor
from open_mirroring.protocols.verdicts import Verdict
from open_mirroring.reconciliation.inspection import zone_address
from spark_jobs.cli.command_line import _parser
from tests.hand_published import ORDERS
from tests.page_mirror import PAYMENTS, PageMirror, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium; on Debian: apt-get install chromium"),
]

DESK, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
TOKEN = "a token of more than sixteen characters"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=300_000)
    with sync_playwright() as playwright:
        # As root, which containers are, Chromium has no sandbox; it visits this machine's own server only.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Page]]:
    """A page of a browser of its own; whatever goes wrong in it fails the test."""
    contexts, wrong = [], list[str]()

    def visitor(**settings: Any) -> Page:
        context = browser.new_context(**{"viewport": DESK, **settings})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(20_000)
        # What is refused answers 409, which Chromium reports, too.
        page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        return page

    yield visitor
    for context in contexts:
        context.close()
    assert [text for text in wrong if "409 (Conflict)" not in text] == []


@pytest.fixture
def made(filled_page: PageMirror, tmp_path: Path) -> PageMirror:
    made = PageMirror(tmp_path, filled_page)
    made.break_things()
    return made


def addresses(made: PageMirror) -> list[str]:
    letter = urlencode({"batch": 4, "origin": "f<b>", "place": 4, "source": made.hostile})
    tables = ["/mirrors/shop/table?" + urlencode({"source": source}) for source in (ORDERS, made.hostile)]
    return ["/", "/mirrors/shop", *tables, f"/mirrors/shop/letter?{letter}", "/runbook/FILE_MISSING"]


@pytest.mark.parametrize(
    "settings",
    [{"viewport": DESK, "color_scheme": "light"}, {"viewport": PHONE, "color_scheme": "dark"}],
    ids=["desk-light", "phone-dark"],
)
def test_every_page_fits_its_screen_and_is_accessible(
    made: PageMirror, visit: Callable[..., Page], settings: dict[str, Any]
) -> None:
    """Hostile names and values among them: no dialog, no error, no picture of theirs."""
    from axe_playwright_python.sync_playwright import Axe

    page = visit(**settings)
    with served(made.app()) as address:
        for path in addresses(made):
            page.goto(address + path)
            page.evaluate("document.querySelectorAll('details').forEach(e => { e.open = true; })")
            found = Axe().run(page)
            assert found.violations_count == 0, f"{path}: {found.generate_report()}"
            width = page.evaluate("document.scrollingElement.scrollWidth")
            assert width <= settings["viewport"]["width"], path
            assert page.locator("img, iframe, object, embed, b, i").count() == 0
            body = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (body == "rgb(255, 255, 255)") == (settings["color_scheme"] == "light")


def test_a_table_stops_the_page_says_why_and_the_button_fixes_it_by_keyboard_alone(
    made: PageMirror, visit: Callable[..., Page]
) -> None:
    from playwright.sync_api import expect

    page = visit()

    def go_to(text: str) -> None:
        """Tab until something of this name has the focus, and it can be seen there."""
        for _ in range(60):
            page.keyboard.press("Tab")
            at = page.evaluate("""() => { const e = document.activeElement, s = getComputedStyle(e);
                return [(e.labels?.[0] ?? e).textContent.trim(), s.outlineStyle]; }""")
            if at[0].startswith(text):
                assert at[1] != "none", f"{text} does not show that it has the focus"
                return
        pytest.fail(f"{text} cannot be reached by keyboard")

    with served(made.app()) as address:
        page.goto(address)
        go_to("Skip to the content")
        page.keyboard.press("Enter")
        go_to("shop")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="shop", level=1)).to_be_visible()
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name=ORDERS))
        expect(row).to_contain_text("stopped")
        expect(row.locator("svg.shape")).to_be_visible()
        go_to(ORDERS)
        page.keyboard.press("Enter")
        expect(page.get_by_text("the column <b>total</b> is int in the log and was decimal")).to_be_visible()
        go_to("TYPE_UNSUPPORTED")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_contain_text("TYPE_UNSUPPORTED")
        page.go_back()
        go_to("Resume this table")
        page.keyboard.press("Enter")
        go_to("Your name")
        page.keyboard.type("Ada Lovelace")
        go_to("Why")
        page.keyboard.type("cast at the source, ticket 4711")
        go_to("Resume this table")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", name="Done")).to_be_visible()
        expect(page.get_by_role("status")).to_contain_text("Now: PASS OK")
        go_to(f"Back to {ORDERS}")
        page.keyboard.press("Enter")
        expect(page.locator(".headline")).to_contain_text("mirrored")
        go_to("Decisions and findings")
        page.keyboard.press("Enter")
        expect(page.get_by_role("row").filter(has_text="RESUMED")).to_contain_text(
            "Ada Lovelace (as typed on the page)"
        )
    assert made.table().stop_code is None


def test_the_page_works_without_a_script_and_forgets_no_reason(made: PageMirror, visit: Callable[..., Page]) -> None:
    from playwright.sync_api import expect

    page = visit(java_script_enabled=False, viewport=PHONE)
    with served(made.app()) as address:
        page.goto(f"{address}/mirrors/shop")
        page.get_by_label("Name", exact=True).fill("order")
        page.get_by_label("State").select_option(label="stopped (1)")
        page.get_by_role("button", name="Show").click()
        expect(page.get_by_text("1 table of 4")).to_be_visible()
        page.get_by_role("row").get_by_role("link", name=ORDERS).click()
        page.locator("summary", has_text="Resume this table").click()
        page.get_by_label("Your name").fill("Ada")
        page.get_by_role("button", name="Resume this table").click()
        expect(page.get_by_label("Why")).to_be_focused()
        page.get_by_label("Why").fill("mended")
        page.get_by_role("button", name="Resume this table").click()
        expect(page.get_by_role("heading", name="Done")).to_be_visible()


def test_the_token_is_asked_for_once_and_stays_in_no_address(made: PageMirror, visit: Callable[..., Page]) -> None:
    from playwright.sync_api import expect

    page = visit()
    with served(made.app(TokenDoor(TOKEN))) as address:
        page.goto(f"{address}/?token={TOKEN}")
        expect(page.get_by_role("heading", name="Mirrors", exact=True)).to_be_visible()
        assert TOKEN not in page.url.replace("%20", " ").replace("+", " ")
        page.goto(f"{address}/mirrors/shop")
        expect(page.get_by_role("heading", name="Tables")).to_be_visible()
        assert page.evaluate("document.cookie") == ""


class Operator:
    """Someone who was called at night: reads the first screen, clicks, and copies commands."""

    def __init__(self, page: Page, made: PageMirror) -> None:
        self.page, self.made, self.clicks = page, made, 0

    def reads(self, *texts: str) -> None:
        """On the screen as it is, without a click."""
        from playwright.sync_api import expect

        for text in texts:
            expect(self.page.get_by_role("main")).to_contain_text(text)

    def clicks_on(self, role: Any, name: str) -> None:
        self.page.get_by_role(role, name=name).click()
        self.clicks += 1

    def decides(self, label: str, *choices: str) -> None:
        self.page.locator("summary", has_text=label).click()
        form = self.page.locator("details[open] form")
        for choice in choices:
            form.get_by_label(choice, exact=True).check()
        form.get_by_label("Your name").fill("Ada Lovelace")
        form.get_by_label("Why").fill("ticket 4711")
        form.get_by_role("button", name=label).click()
        self.clicks += 2 + len(choices)

    def copies(self, start: str) -> str:
        """A command that the command line takes as it is on the page."""
        command = self.page.locator(".command code", has_text=f"open-mirroring {start}").first.inner_text()
        assert _parser().parse_args(shlex.split(command)[1:]).file == self.made.file
        return command

    def finds_nothing_wrong(self, clicks: int) -> None:
        assert self.clicks == clicks <= 3
        self.page.goto("/")
        self.reads("Nothing. 1 mirror, no table with a problem.")


def a_dropped_column(ada: Operator) -> None:
    ada.reads(
        ORDERS,
        "the column was renamed, or one was dropped and one added",
        "price is gone",
        "Nothing is published until the stop is lifted",
    )
    ada.decides("Columns were dropped", "price")
    ada.reads("Cleared: RENAME_POSSIBLE", "PASS")
    ada.finds_nothing_wrong(clicks=3)


def a_lost_file(ada: Operator) -> None:
    ada.reads(ORDERS, "A published file is missing", "2", "move the same file back")
    assert "--number 2 " in ada.copies("repair")
    (ada.made.folder / "lost").rename(ada.made.path(2))
    ada.clicks_on("button", "Look again now")
    ada.finds_nothing_wrong(clicks=1)


def an_unreadable_message(ada: Operator) -> None:
    ada.reads(PAYMENTS, "A message does not have the format of the source", "cut after 2,048 bytes")
    ada.reads("rows at the target may be missing or out of date", "deliver an intact copy")
    assert ada.copies("replay-dead-letters").endswith(f"--table {PAYMENTS}")
    ada.decides("Accept all of MESSAGE_INVALID as lost")
    ada.finds_nothing_wrong(clicks=2)


def a_paused_target(ada: Operator) -> None:
    ada.reads("and 1 more table", "The Fabric capacity is paused", "Resume the Fabric capacity")
    assert ada.page.get_by_role("article").count() == 1, "what all tables have is one problem"
    ada.clicks_on("button", "Look again now")
    ada.finds_nothing_wrong(clicks=1)


def an_expired_login(ada: Operator) -> None:
    ada.reads("It is unknown whether the target is up to date", 'press "Look again now"')
    ada.copies("check")
    ada.clicks_on("button", "Look again now")
    ada.reads("Not done", "ACCESS_DENIED", "the client secret has expired", "renew it in the connection")
    EXPIRED.clear()
    ada.clicks_on("link", "Back to shop")
    ada.clicks_on("button", "Look again now")
    ada.finds_nothing_wrong(clicks=3)


EXPIRED: list[str] = []


def zone(mirror: Mirror) -> ZoneAddress:
    if EXPIRED:
        raise TerminalError("ACCESS_DENIED", EXPIRED[0], next_step="renew it in the connection")
    return zone_address(mirror)


def break_for(story: Any, made: PageMirror) -> None:
    kept: dict[str, Any] = {"evidence": {"applied": 0, "backlog": [0, 0, None]}, "confirmed": 2}
    for state in made.reader.tables().values():
        if story is a_paused_target:
            paused = KeptVerdict(Verdict.HOLD, "PAUSED", "the target is paused", recorded_at=made.now, **kept)
            made.keep(VERDICTS, state.id, **{"": paused})
        elif story is an_expired_login:
            late = made.now - timedelta(hours=5)
            made.keep(VERDICTS, state.id, **{"": KeptVerdict(Verdict.PASS, "OK", "", recorded_at=late, **kept)})
    if story is a_dropped_column:
        made.drop_a_column()
    elif story is a_lost_file:
        made.path(2).rename(made.folder / "lost")
        made.look()
    elif story is an_unreadable_message:
        made.log(4, {}, ago=timedelta(minutes=2), rejected=True)
        made.letter(PAYMENTS, reason="cut after 2,048 bytes")
    elif story is an_expired_login:
        EXPIRED.append("the client secret has expired (AADSTS7000222)")


def test_five_failures_are_understood_on_the_first_screen_and_fixed_by_three_clicks_or_one_command(
    filled_page: PageMirror, tmp_path: Path, visit: Callable[..., Page]
) -> None:
    for story in (a_dropped_column, a_lost_file, an_unreadable_message, a_paused_target, an_expired_login):
        (tmp_path / story.__name__).mkdir()
        made = PageMirror(tmp_path / story.__name__, filled_page)
        break_for(story, made)
        with served(made.app(zone=zone)) as address:
            page = visit(base_url=address)
            page.goto("/")
            story(Operator(page, made))


def test_pictures_for_the_documents(tmp_path: Path, visit: Callable[..., Page], request: pytest.FixtureRequest) -> None:
    folder = request.config.getoption("--screenshots") or tmp_path
    made = PageMirror(tmp_path / "made", hostile="dbo.order_lines")
    made.live_a_week()
    made.break_things(reason="cut after 2,048 bytes", batch=100)
    made.drop_a_column("cost")
    page = visit(viewport={"width": 1100, "height": 1280})
    with served(made.app()) as address:
        for name, path in (("page", "/mirrors/shop"), ("page-fix", "/")):
            page.goto(address + path)
            if name == "page-fix":
                page.set_viewport_size({"width": 1100, "height": 740})
                page.locator("summary", has_text="Columns were dropped").click()
            # Where the mirror file is differs from machine to machine.
            page.evaluate(
                """folder => document.querySelectorAll("code, .stage span").forEach(
                    e => { e.textContent = e.textContent.replaceAll(folder, ""); })""",
                f"{made.folder}/",
            )
            page.screenshot(path=folder / f"{name}.png")
            assert (folder / f"{name}.png").stat().st_size < 200_000
