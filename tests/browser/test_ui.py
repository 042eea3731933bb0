"""What ``make ui`` leaves running can be looked at: log in, see the mirror's DAGs, and its runs in green."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from demo.place import clean_environment

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
LOGIN = re.compile(r"user (\S+), password (\S+)")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.long,
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium; on Debian: apt-get install chromium"),
]


class Pages(NamedTuple):
    address: str
    user: str
    password: str


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """The pages of a demo that has proved itself and goes on; stopped as Ctrl-C does."""
    demo = subprocess.Popen(
        [sys.executable, "-m", "demo.run", "--keep", "--folder", str(tmp_path_factory.mktemp("ui") / "demo")],
        cwd=ROOT,
        env=clean_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    output, address = [], ""
    try:
        assert demo.stdout is not None
        for line in demo.stdout:
            output.append(line)
            if "Airflow's pages:" in line:
                address = line.split()[-1]
            elif address and (login := LOGIN.search(line)):
                break
        else:
            pytest.fail("".join(output))
        yield Pages(address, login[1], login[2])
        assert "NOT PROVED" not in "".join(output)
    finally:
        demo.send_signal(signal.SIGINT)
        rest, _ = demo.communicate(timeout=300)
    assert demo.returncode == 0, rest


def test_the_runs_of_the_mirror_are_green_on_airflows_pages(pages: Pages, tmp_path: Path) -> None:
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=300_000)
    with sync_playwright() as playwright:
        # As root, which containers are, Chromium has no sandbox; it visits this machine's own server only.
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.set_default_timeout(60_000)
        try:
            page.goto(pages.address)
            page.locator("input[name=username]").fill(pages.user)
            page.locator("input[name=password]").fill(pages.password)
            page.locator("button[type=submit]").click()
            # Until it is logged in, the answer to the login would take the place of any other page.
            expect(page.get_by_role("heading", name="Welcome")).to_be_visible()
            page.goto(f"{pages.address}/dags")
            for dag_id in ("shop__initial_load", "shop__replicate", "shop__reconcile"):
                expect(page.get_by_text(dag_id, exact=True).first).to_be_visible()
            page.goto(f"{pages.address}/dags/shop__replicate/runs")
            expect(page.get_by_text("success", exact=False).nth(2)).to_be_visible()
            expect(page.locator("table").get_by_text("failed", exact=False)).to_have_count(0)
            runs = page.request.get(f"{pages.address}/api/v2/dags/shop__replicate/dagRuns").json()["dag_runs"]
            notes = {run["dag_run_id"]: run["note"] for run in runs if run["state"] == "success"}
            # A run that reads one piece of a message and not yet the other begins with what it waits for.
            assert not {run: note for run, note in notes.items() if not str(note).startswith(("4 tables: ", "HOLD: "))}
            page.get_by_role("button", name="Browse").click()
            with page.context.expect_page() as opened:
                page.locator('a[href$="/open_mirroring/"]').click()
            mirrors = opened.value
            mirrors.get_by_role("link", name="shop", exact=True).first.click()
            expect(mirrors.locator(".headline")).to_contain_text("mirrored")
            expect(mirrors.get_by_role("link", name="Runs")).to_have_attribute("href", "/dags/shop__replicate")
        finally:
            page.screenshot(path=tmp_path / "page.png")
            browser.close()
