"""Builds the web app: its URLs, which visitors get an answer, and the security headers of every answer."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

from fastapi import Depends, FastAPI
from sqlalchemy import Engine
from sqlalchemy.exc import DatabaseError
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from open_mirroring.config import Mirror
from open_mirroring.config.landing_zone import is_guid
from open_mirroring.errors import MirroringError
from open_mirroring.landing_zone.opening import ZoneAddress
from open_mirroring.ledger import open_ledger
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.opening import ledger_error, ledger_to_look
from open_mirroring.operate.deciding import LOOK, decide_and_look
from open_mirroring.page import views
from open_mirroring.page.doors import AccessDenied, Door, Visitor, cookie
from open_mirroring.page.exposition import CONTENT_TYPE, exposition
from open_mirroring.page.shelf import MirrorShelf
from open_mirroring.reconciliation.inspection import zone_address

CSRF_COOKIE = "open_mirroring_form"
_FORM_BYTES = 64 * 1024
_SAFETY = {
    # No script, style, picture or frame but our own, and none inside a page: what a source sends stays text.
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True)
class Link:
    """A link to another place with information about a mirror, such as its DAGs in Airflow."""

    label: str
    address: str


@dataclass(frozen=True)
class Surroundings:
    """Where the page is mounted: the mirrors, the access control, and how a mirror's ledger and landing zone are found.

    *links* returns links to show for a mirror. *home* is the link back to the surrounding site. The results of
    *ledger_url* and *zone* may contain secrets.
    """

    shelf: MirrorShelf
    door: Door
    ledger_url: Callable[[Mirror], str] = Mirror.ledger_url
    zone: Callable[[Mirror], ZoneAddress] = zone_address
    links: Callable[[Mirror], Sequence[Link]] = lambda _: ()
    home: Link | None = None


class _Page:
    """Answers requests. Methods that query ledgers are not async, so that they run in parallel threads."""

    def __init__(self, around: Surroundings) -> None:
        self.around = around
        self._ledgers: dict[str, Engine] = {}

    def ledger(self, mirror: Mirror) -> Engine | None:
        """Return the mirror's ledger, opened for reading only; None if no run of the mirror has created it."""
        url = self.around.ledger_url(mirror)
        known = self._ledgers.get(url)
        # Opening an SQLite file that was removed would create an empty file.
        if known is not None and known.dialect.name == "sqlite" and not Path(known.url.database or "").is_file():
            del self._ledgers[url]
        if url not in self._ledgers:
            found = ledger_to_look(url)
            if found is None:
                return None
            self._ledgers[url] = found
        return self._ledgers[url]

    def mirrors(self, request: Request) -> Response:
        """The list of all mirrors, one line each."""
        now = datetime.now(UTC)
        mirrors, problems = self.around.shelf.look()
        shown = []
        for mirror in mirrors.values():
            if not _visitor(request).looks(mirror.name):
                continue
            try:
                shown.append(views.entry(mirror, self.ledger(mirror), now))
            except (MirroringError, DatabaseError) as error:
                shown.append({"name": mirror.name, "failed": _said(error)})
        document = {"title": "Mirrors", "taken_at": now, "mirrors": shown, "problems": [str(p) for p in problems]}
        return self._answer(request, "mirrors.html", document)

    def mirror(self, request: Request) -> Response:
        """The page of one mirror with its tables."""
        mirror = self._mirror(request)
        now, ledger = datetime.now(UTC), self.ledger(mirror)
        asked = views.TableQuery.of(request.query_params)
        found = None if ledger is None else views.mirror(mirror, ledger, now, asked)
        document = found or views.not_started(mirror, now)
        return self._answer(request, "mirror.html" if found else "not_started.html", document, mirror)

    def table(self, request: Request) -> Response:
        """The page of one table."""
        mirror = self._mirror(request)
        ledger, source = self.ledger(mirror), request.query_params.get("source", "")
        found = None if ledger is None else views.table(mirror, ledger, source, datetime.now(UTC))
        if found is None:
            raise AccessDenied(404, f"the ledger of {mirror.name} has no table {source!r}")
        return self._answer(request, "table.html", found, mirror)

    def letter(self, request: Request) -> Response:
        """The content of one dead letter.

        Only visitors who may decide about the mirror see the content, because a message may contain any data.
        """
        mirror = self._mirror(request)
        if not _visitor(request).decides(mirror.name):
            raise AccessDenied(403, "only who may decide about a mirror may see what its messages hold")
        ledger = self.ledger(mirror)
        found = None if ledger is None else views.letter(mirror, ledger, request.query_params)
        if found is None:
            raise AccessDenied(404, "no such dead letter is open")
        return self._answer(request, "letter.html", found, mirror)

    def runbook(self, request: Request) -> Response:
        """The section of the runbook about a code."""
        found = views.runbook(request.path_params["code"])
        if found is None:
            raise AccessDenied(404, "the runbook has no section of this name")
        return self._answer(request, "runbook.html", found)

    def metrics(self, request: Request) -> Response:
        """All metrics in Prometheus' format."""
        mirrors, _ = self.around.shelf.look()
        found: list[tuple[Mirror, Engine | None]] = []
        for mirror in mirrors.values():
            if _visitor(request).looks(mirror.name):
                try:
                    found.append((mirror, self.ledger(mirror)))
                except (MirroringError, DatabaseError):
                    found.append((mirror, None))
        return Response(exposition(found, datetime.now(UTC)), media_type=CONTENT_TYPE)

    def decide(self, request: Request, form: Mapping[str, str]) -> Response:
        """Carry out a visitor's decision, and show its result."""
        mirror, visitor = self._mirror(request), _visitor(request)
        if not visitor.decides(mirror.name):
            raise AccessDenied(403, f"you may look at {mirror.name}, and not decide about it")
        _check_origin(request, form)
        action, why = form.get("action", ""), form.get("why", "").strip()
        typed = form.get("who", "").strip()
        who = visitor.name or (f"{typed} (as typed on the page)" if typed else "")
        if not (who and why) and action != LOOK:
            raise AccessDenied(400, "a decision needs a name and a reason: both go into the audit")
        ledger = open_ledger(self.around.ledger_url(mirror))
        said, failed = list[str](), list[str]()
        try:
            for number, source in enumerate(sources := request.state.sources or [""]):
                # A request id has an effect once, so each table gets an id of its own.
                one = {**form, "source": source, "request": f"{form.get('request', '')}:{number}"}
                try:
                    found = decide_and_look(mirror, ledger, self.around.zone(mirror), action, one, Reason(who, why))
                except MirroringError as error:
                    failed.append(f"{source}: {error}" if len(sources) > 1 else str(error))
                else:
                    said += [f"{source}: {text}" if len(sources) > 1 else text for text in found]
        finally:
            ledger.dispose()
        document = {
            "title": "Done in part" if failed and said else "Not done" if failed else "Done",
            "mirror": {"mirror": mirror.name},
            "action": action,
            "source": sources[0] if len(sources) == 1 else "",
            "said": said,
            "failed": failed,
        }
        return self._answer(request, "decided.html", document, mirror, status=409 if failed else 200)

    def _mirror(self, request: Request) -> Mirror:
        name = request.path_params["mirror"]
        mirror = self.around.shelf.look()[0].get(name)
        # A visitor who may not see a mirror does not learn whether the mirror exists.
        if mirror is None or not _visitor(request).looks(name):
            raise AccessDenied(404, f"no mirror {name!r}")
        return mirror

    def refused(self, request: Request, error: Exception) -> Response:
        """An error page with the reason why a request was refused."""
        denied = error if isinstance(error, AccessDenied) else AccessDenied(503, _said(error))
        document = {"title": "Not shown", "what": denied.what, "login": denied.login, "asks_token": denied.asks_token}
        return self._answer(request, "refused.html", document, status=denied.status)

    def _answer(
        self,
        request: Request,
        template: str,
        document: Mapping[str, Any],
        mirror: Mirror | None = None,
        *,
        status: int = 200,
    ) -> Response:
        if views.wants_json(request):
            return views.json_response(document, status)
        visitor = getattr(request.state, "visitor", None)
        token = request.cookies.get(CSRF_COOKIE) or secrets.token_urlsafe(32)
        context = {
            **document,
            "base": request.scope.get("root_path", ""),
            "home": self.around.home,
            "visitor": visitor,
            "may_decide": (lambda _: False) if visitor is None else visitor.decides,
            "links": [] if mirror is None else self.around.links(mirror),
            "fabric_item": "" if mirror is None else fabric_item(mirror),
            "form_token": token,
            "request_id": f"page:{secrets.token_hex(16)}",
            "json_address": str(request.url.include_query_params(format="json").remove_query_params("token")),
        }
        answer = Response(views.html(template, context), status, media_type="text/html")
        if CSRF_COOKIE not in request.cookies:
            answer.headers.append("set-cookie", cookie(request, CSRF_COOKIE, token))
        return answer


def fabric_item(mirror: Mirror) -> str:
    """Return the URL of the mirrored database in Fabric.

    The URL contains GUIDs, so it is empty if the mirror file gives workspace or database by name.
    """
    workspace, item = mirror.landing_zone.workspace or "", mirror.landing_zone.item or ""
    if not (is_guid(workspace) and is_guid(item)):
        return ""
    return f"https://app.fabric.microsoft.com/groups/{workspace}/mirroreddatabases/{item}"


def build_app(around: Surroundings) -> FastAPI:
    """Build the app with all its routes; the door in *around* checks each visitor."""
    page = _Page(around)
    app = FastAPI(title="Open mirroring", docs_url=None, redoc_url=None, openapi_url=None)

    async def admit(request: Request) -> None:
        request.state.visitor = await around.door.admit(request)

    @app.middleware("http")
    async def safely(request: Request, answer: Callable[[Request], Awaitable[Response]]) -> Response:
        is_static = request.url.path.startswith(f"{request.scope.get('root_path', '')}/static/")
        response = await answer(request)
        if is_static:
            response.headers["cache-control"] = "max-age=300"
        for name, value in _SAFETY.items():
            response.headers.setdefault(name, value)
        return response

    def look(path: str, function: Callable[[Request], Response]) -> None:
        def looking(request: Request) -> Response:
            found = around.door.cookies(request)
            if found and not views.wants_json(request):
                # The token leaves the address, so that it is in no history and no referrer.
                response: Response = RedirectResponse(str(request.url.remove_query_params("token")), 303)
                for name, value in found.items():
                    response.headers.append("set-cookie", cookie(request, name, value))
                return response
            return function(request)

        app.add_api_route(path, looking, dependencies=[Depends(admit)], response_model=None)

    look("/", page.mirrors)
    look("/mirrors/{mirror}", page.mirror)
    look("/mirrors/{mirror}/table", page.table)
    look("/mirrors/{mirror}/letter", page.letter)
    look("/runbook/{code}", page.runbook)
    look("/metrics", page.metrics)

    async def read_form(request: Request) -> None:
        body = b""
        async for chunk in request.stream():
            body += chunk
            if len(body) > _FORM_BYTES:
                raise AccessDenied(413, "this form is too large")
        sent = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
        chosen = "\n".join(value for name, value in sent if name == "subject")
        request.state.form = {**dict(sent), "subject": chosen}
        request.state.sources = [value for name, value in sent if name == "source"]

    def deciding(request: Request) -> Response:
        return page.decide(request, request.state.form)

    admitted, with_form = Depends(admit), Depends(read_form)

    app.add_api_route(
        "/mirrors/{mirror}/decide", deciding, methods=["POST"], dependencies=[admitted, with_form], response_model=None
    )

    def enter(request: Request) -> Response:
        token = urlencode({"token": request.state.form.get("token", "")})
        return RedirectResponse(f"{request.scope.get('root_path', '')}/?{token}", 303)

    app.add_api_route("/enter", enter, methods=["POST"], dependencies=[with_form], response_model=None)

    app.mount("/static", StaticFiles(packages=[("open_mirroring.page", "static")]))
    for kind in (AccessDenied, MirroringError, DatabaseError):
        app.add_exception_handler(kind, page.refused)
    return app


def _visitor(request: Request) -> Visitor:
    visitor = request.state.visitor
    assert isinstance(visitor, Visitor)
    return visitor


def _said(error: Exception) -> str:
    # A database's error text contains the SQL statement, and may contain the address of the database.
    if isinstance(error, DatabaseError):
        return str(ledger_error(error) or f"the ledger failed: {type(error.orig).__name__}")
    return str(error)


def _check_origin(request: Request, form: Mapping[str, str]) -> None:
    """Refuse a form that another site sent (cross-site request forgery): its token must match the cookie."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    known = request.cookies.get(CSRF_COOKIE, "")
    if (
        site not in ("same-origin", "none")
        or not known
        or not hmac.compare_digest(known.encode(), form.get("form_token", "").encode())
    ):
        raise AccessDenied(403, "this form is not of this page, or too old: load the page again")
