"""The page in a real browser: on a desk and on a phone, light and dark, by keyboard alone, without a script of its own.

``pytest tests/browser/test_page.py --screenshots docs/images`` makes the pictures of the documents anew.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

from open_mirroring.page import TokenDoor
from tests.hand_published import ORDERS
from tests.page_mirror import PageMirror, served

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
        page.on("console", lambda said: wrong.append(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        return page

    yield visitor
    for context in contexts:
        context.close()
    assert wrong == []


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


def test_a_table_stops_the_page_says_why_and_the_button_mends_it_by_keyboard_alone(
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
        expect(page.get_by_role("row").filter(has_text="RESUMED")).to_contain_text(
            "Ada Lovelace (as typed on the page)"
        )
    assert made.table().stop_code is None


def test_the_page_works_without_a_script_and_forgets_no_reason(made: PageMirror, visit: Callable[..., Page]) -> None:
    from playwright.sync_api import expect

    page = visit(java_script_enabled=False, viewport=PHONE)
    with served(made.app()) as address:
        page.goto(f"{address}/mirrors/shop")
        page.get_by_label("Name").fill("order")
        page.get_by_label("Verdict").select_option(label="stopped (1)")
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
        expect(page.get_by_role("heading", name="Mirrors")).to_be_visible()
        assert TOKEN not in page.url.replace("%20", " ").replace("+", " ")
        page.goto(f"{address}/mirrors/shop")
        expect(page.get_by_role("heading", name="Tables")).to_be_visible()
        assert page.evaluate("document.cookie") == ""


def test_pictures_for_the_documents(tmp_path: Path, visit: Callable[..., Page], request: pytest.FixtureRequest) -> None:
    folder = request.config.getoption("--screenshots") or tmp_path
    made = PageMirror(tmp_path / "made", hostile="dbo.order_lines")
    made.fill()
    made.break_things(stop="the column total is money in the log and was decimal(9,2)", reason="cut after 2,048 bytes")
    page = visit(viewport={"width": 1100, "height": 760})
    with served(made.app()) as address:
        for name, path in (("page", "/mirrors/shop"), ("page-table", addresses(made)[2])):
            page.goto(address + path)
            # Where the mirror file is differs from machine to machine.
            page.evaluate(
                """folder => document.querySelectorAll("code").forEach(
                    e => { e.textContent = e.textContent.replaceAll(folder, ""); })""",
                f"{made.folder}/",
            )
            page.screenshot(path=folder / f"{name}.png")
            assert (folder / f"{name}.png").stat().st_size < 150_000
