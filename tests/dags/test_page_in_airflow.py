"""The page as Airflow serves it: its login, its permissions, its menu."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlencode

import pytest
from airflow.api_fastapi.app import create_app, get_auth_manager, purge_cached_app
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from fastapi.testclient import TestClient

from open_mirroring.ledger import tables as t
from tests.hand_published import ORDERS
from tests.page_mirror import PageMirror, form_of

pytestmark = pytest.mark.airflow

TABLE = "/open_mirroring/mirrors/shop/table?" + urlencode({"source": ORDERS})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> PageMirror:
    made = PageMirror(tmp_path_factory.mktemp("page"))
    made.fill()
    made.break_things()
    return made


@pytest.fixture
def visit(mirrors: Path, made: PageMirror) -> Callable[[str], TestClient]:
    """A browser of somebody with a role in Airflow; of nobody for the empty one."""
    text = made.file.read_text(encoding="utf-8")
    text = text.replace("ledger: sqlite:///", f"ledger: sqlite:///{made.folder}/")
    (mirrors / "shop.yaml").write_text(text, encoding="utf-8")
    purge_cached_app()
    app = create_app(apps="core")

    def visitor(role: str) -> TestClient:
        token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username=f"a {role}", role=role)) if role else ""
        return TestClient(app, base_url="http://testserver", cookies={"_token": token} if token else None)

    return visitor


def test_airflows_own_permissions_decide_who_looks_and_who_decides(
    visit: Callable[[str], TestClient], made: PageMirror
) -> None:
    nobody = visit("").get(TABLE)
    assert nobody.status_code == 401 and "log in to Airflow" in nobody.text and "TYPE_UNSUPPORTED" not in nobody.text
    assert visit("").get("/open_mirroring/metrics").status_code == 401
    viewer, editor = visit("viewer"), visit("user")
    page = viewer.get(TABLE)
    assert page.status_code == 200 and "TYPE_UNSUPPORTED" in page.text and "<form method" not in page.text
    assert 'href="/open_mirroring/static/page.css"' in page.text and 'href="/dags/shop__replicate"' in page.text
    form = form_of(editor.get(TABLE).text, "Resume this table") | {"why": "mended"}
    for name, value in editor.cookies.items():
        if name != "_token":
            viewer.cookies.set(name, value)
    assert viewer.post("/open_mirroring/mirrors/shop/decide", data=form).status_code == 403
    assert visit("").post("/open_mirroring/mirrors/shop/decide", data=form).status_code == 401
    assert "Cleared" in editor.post("/open_mirroring/mirrors/shop/decide", data=form).text
    event, detail = made.audit()[-1]
    assert (event, detail["who"]) == ("RESUMED", "a user")
    with made.ledger.connect() as db:
        assert db.scalar(t.mirrored_table.select().where(t.mirrored_table.c.stop_code.is_not(None))) is None


def test_the_page_is_in_airflows_menu(visit: Callable[[str], TestClient]) -> None:
    plugins = visit("admin").get("/api/v2/plugins").json()["plugins"]
    views = next(plugin["external_views"] for plugin in plugins if plugin["name"] == "open_mirroring")
    assert [(view["name"], view["href"]) for view in views] == [("Mirrors", "/open_mirroring/")]
    assert visit("admin").get("/open_mirroring/").status_code == 200
