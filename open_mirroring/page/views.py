"""Computes the content of each page as a dict, which a template turns into HTML, or which is sent as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import sqlalchemy as sa
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from sqlalchemy import Engine
from starlette.requests import Request
from starlette.responses import Response

from open_mirroring.changes.manifest import LetterPlace, Manifest, counts_of
from open_mirroring.codes import next_step_of
from open_mirroring.config import Mirror, Table
from open_mirroring.config.storage import log_place
from open_mirroring.errors import MirroringError
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.proofs import ProofLedger
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.ledger.requests import ACCEPT_LETTERS
from open_mirroring.operate import words
from open_mirroring.operate.deciding import LOOK
from open_mirroring.operate.history import (
    HOURS,
    SHOWN,
    WEEK,
    Letter,
    decisions,
    lag_per_hour,
    load_left,
    logged_per_hour,
    newest_files,
    open_letters,
    rows_per_hour,
    verified_per_hour,
)
from open_mirroring.operate.mirror_view import BoundOffsets, MirrorView, TableView, plain
from open_mirroring.operate.operations import PROVE
from open_mirroring.operate.places import places
from open_mirroring.operate.viewing import view_mirror
from open_mirroring.page.attention import problems
from open_mirroring.page.runbook import as_text, section
from open_mirroring.protocols.verdicts import Verdict
from open_mirroring.reconciliation.deep_check import DISPOSITIONS, TAKEN
from open_mirroring.storage.arrow_files import arrow_files, arrow_path

SHOWN_BYTES = 2_000


def raw_text(mirror: Mirror, ledger: Engine, at: LetterPlace) -> str | None:
    """Return the first bytes of a dead letter's message as a string.

    The result is None if the change log does not contain the message, or cannot be read from this machine.
    """
    c = t.log_batch.c
    query = sa.select(c.manifest).where(c.mirror == mirror.name, c.number == at.batch)
    text = t.first(ledger, query)
    if text is None:
        return None
    wanted = [("kind", "=", "rejected"), ("origin", "=", at.origin), ("place", "=", at.place)]
    for file in Manifest.from_json(text).files:
        try:
            path = log_place(mirror) / str(file["path"])
            if not path.exists():
                continue
            where = {"filesystem": arrow_files(path), "partitioning": None}
            found = pq.read_table(arrow_path(path), columns=["raw"], filters=wanted, **where)
        except (OSError, pa.ArrowException, MirroringError):
            continue
        for raw in pc.drop_null(found["raw"]).to_pylist():
            return escaped(raw)
    return None


def escaped(raw: bytes) -> str:
    """Return the first 2,000 bytes as a string of printable characters."""
    text = raw[:SHOWN_BYTES].decode("utf-8", errors="backslashreplace")
    said = words.shown(text, also="\n\t")
    more = len(raw) - SHOWN_BYTES
    return said + (f" … and {more:,} bytes more" if more > 0 else "")


ROWS_PER_PAGE = 100
_BATCHES = 20
_LETTERS = 10_000


@dataclass(frozen=True)
class TableQuery:
    """Which tables of a mirror to show: part of a name, verdict, sort order, page number."""

    search: str = ""
    verdict: str = ""
    order: str = "verdict"
    descending: bool = False
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> TableQuery:
        """Parse the query of a URL. Invalid values are replaced by defaults."""
        order, page = query.get("order", ""), query.get("page", "1")
        name = order.removeprefix("-")
        known = name if name in ORDERS else "verdict"
        number = int(page) if page.isdecimal() and len(page) < 6 else 1
        return cls(
            query.get("search", "")[:200], query.get("verdict", ""), known, order.startswith("-"), max(1, number)
        )

    def address(self, **changed: object) -> str:
        """Return the URL query for the same selection of tables, with the values in *changed* replaced.

        Without a *page* in *changed*, the query leads to the first page.
        """
        values = {
            "search": self.search,
            "verdict": self.verdict,
            "order": ("-" if self.descending else "") + self.order,
        }
        return "?" + urlencode({**values, **changed})


ORDERS: Mapping[str, Callable[[TableView], Any]] = {
    "verdict": lambda table: (words.SEVERITY.index(table.verdict), table.source),
    "table": lambda table: table.source,
    "lag": lambda table: table.lag,
    "waiting": lambda table: table.waiting.changes,
    "backlog": lambda table: table.backlog.files,
    "letters": lambda table: table.dead_letters.count,
}


def entry(mirror: Mirror, ledger: Engine | None, now: datetime) -> dict[str, Any]:
    """Return a mirror's entry in the list of all mirrors.

    Without a ledger (no run yet), the entry has only the mirror's name, and the paths and addresses that the mirror
    uses.
    """
    if ledger is None:
        return {"name": mirror.name, "failed": "", "mirror": None, "places": places(mirror)}
    found = view_mirror(mirror, ledger, now)
    of_all = {"tables": found.tables, "attention": problems(mirror, ledger, found, found.tables)}
    return {"name": mirror.name, "failed": "", **of_all, **_whole(mirror, ledger, found, HOURS)}


def mirror(mirror: Mirror, ledger: Engine, now: datetime, asked: TableQuery) -> dict[str, Any]:
    """The content of the page of one mirror, with the tables that *asked* selects."""
    found = view_mirror(mirror, ledger, now)
    wanted = [
        table
        for table in found.tables
        if asked.search.casefold() in table.source.casefold()
        and asked.verdict in ("", words.verdict_name(table.verdict))
    ]
    wanted.sort(key=ORDERS[asked.order], reverse=asked.descending)
    pages = max(1, -(-len(wanted) // ROWS_PER_PAGE))
    page = min(asked.page, pages)
    verified, compared = verified_per_hour(ledger, [table.state for table in found.tables], now)
    has_letters = found.report.letters.without_table.count > 0
    return {
        "title": mirror.name,
        "taken_at": now,
        **_whole(mirror, ledger, found, WEEK),
        "file": str(mirror.file),
        "number_of_tables": len(found.tables),
        "attention": problems(mirror, ledger, found, found.tables),
        "asked": asked,
        "matching": len(wanted),
        "pages": pages,
        "page": page,
        "tables": wanted[(page - 1) * ROWS_PER_PAGE : page * ROWS_PER_PAGE],
        "letters": _letters(mirror, open_letters(ledger, mirror.name, None)) if has_letters else [],
        "batches": _batches(ledger, mirror.name),
        "verified": verified,
        "verified_tables": compared,
        "decisions": decisions(ledger, mirror.name, None),
        "places": places(mirror),
    }


def not_started(mirror: Mirror, now: datetime) -> dict[str, Any]:
    """The content of the page of a mirror that has no ledger yet."""
    return {
        "title": mirror.name,
        "taken_at": now,
        "mirror": {"mirror": mirror.name, "file": str(mirror.file)},
        "places": places(mirror),
    }


def table(mirror: Mirror, ledger: Engine, source: str, now: datetime) -> dict[str, Any] | None:
    """The content of the page of one table; None if the ledger has no such table."""
    found = view_mirror(mirror, ledger, now, closely=[source])
    table = next((table for table in found.tables if table.source == source), None)
    if table is None:
        return None
    state, totals, reader = table.state, table.totals or {}, LedgerReader(ledger, mirror.name)
    lists = reader.column_lists([state.id]).get(state.id, ())
    became = {name: totals.get(name, 0) for name in DISPOSITIONS}
    taken = sum(totals.get(name, 0) for name in TAKEN)
    return {
        "title": f"{source} of {mirror.name}",
        "taken_at": now,
        "mirror": found,
        "read": BoundOffsets.of(found.bound_offsets),
        "table": table,
        "columns": [
            {"name": c.landed_name, "type": c.type, "content": c.content}
            if c.content
            else {"name": c.name, "type": c.type, **({"renamed": c.renamed} if c.renamed else {})}
            for c in state.columns.columns
        ],
        "rows": [text for one in mirror.targets if one.source == source for text in _rows(one)],
        "column_lists": [{"columns": _names(one.cols), "whole": one.whole, "since": one.first_pos} for one in lists],
        "taken": taken,
        "became": became,
        "adds_up": taken == sum(became.values()),
        "load_left": load_left(ledger, state),
        "files": [{**file._asdict(), "fate": _fate(file.number, table)} for file in newest_files(ledger, state)],
        "letters": _letters(mirror, open_letters(ledger, mirror.name, source)),
        "proofs": ProofLedger(ledger).history(state.id, state.row.generation, SHOWN),
        "decisions": decisions(ledger, mirror.name, source),
        "epochs": reader.epochs([state.id]).get(state.id, {}),
        "attention": problems(mirror, ledger, found, [table]),
        "prove": PROVE.command(mirror.file, tables=source),
    }


def _rows(table: Table) -> Iterator[str]:
    """What the mirror file says of the rows of a table."""
    if table.where is not None:
        yield f"only those with {table.where}"
    if table.keeps_deleted:
        yield "deleted ones stay"
    if table.history is not None:
        yield f"their history is in {table.history.target}"
    if table.keys_of_rows is not None:
        yield f"one for each {'version' if table.key else 'change'} of a row of {'.'.join(table.source_name)}"
    if table.append_only:
        yield "only appended to, files without markers"


def letter(mirror: Mirror, ledger: Engine, query: Mapping[str, str]) -> dict[str, Any] | None:
    """The content of the page of one open dead letter, with the bytes of its message.

    *query* names the dead letter by ``batch``, ``origin`` and ``place``. The result is None if the ledger has no such
    open dead letter, or only after 10,000 older ones.
    """
    batch, place = query.get("batch", ""), query.get("place", "")
    if not (batch.isdecimal() and place.isdecimal()):
        return None
    at, source = LetterPlace(int(batch), query.get("origin", ""), int(place)), query.get("source") or None
    found = next((one for one in open_letters(ledger, mirror.name, source, _LETTERS) if one.at == at), None)
    if found is None:
        return None
    return {
        "title": "Dead letter",
        "mirror": {"mirror": mirror.name},
        "letter": _letters(mirror, [found])[0],
        "raw": raw_text(mirror, ledger, at),
    }


def runbook(code: str) -> dict[str, Any] | None:
    """The content of the page with the runbook's section about a code; None if the runbook has no such section."""
    found = section(code)
    return None if found is None else {"title": found[0], "code": code, "text": found[1]}


def _whole(mirror: Mirror, ledger: Engine, found: MirrorView, hours: int) -> dict[str, Any]:
    """The mirror's view, what waits at each step of the pipeline, and series of the last *hours* for the charts."""
    waiting = [table for table in found.tables if table.waiting.changes and table.verdict is not Verdict.STOP]
    backlog = [table for table in found.tables if table.backlog.files]
    since = [table.waiting.since for table in waiting if table.waiting.since]
    changes = sum(table.waiting.changes for table in waiting)
    pipeline = {
        "waiting_changes": changes,
        "waiting_tables": len(waiting),
        "waiting_since": min(since, default=None),
        "lag": found.taken_at - min(since, default=found.taken_at),
        "stopped_changes": sum(table.waiting.changes for table in found.tables) - changes,
        "backlog_files": sum(table.backlog.files for table in backlog),
        "backlog_bytes": sum(table.backlog.bytes for table in backlog),
        "backlog_tables": len(backlog),
        "backlog_since": min((table.backlog.oldest for table in backlog if table.backlog.oldest), default=None),
        "published_at": max((table.published_at for table in found.tables if table.published_at), default=None),
        "looked": any(table.applied is not None for table in found.tables),
    }
    of = ledger, mirror.name, found.taken_at
    lags = lag_per_hour(*of, since, hours=hours)
    by_hour = {"changes": logged_per_hour(*of), "rows": rows_per_hour(*of), "lag": lags}
    return {"mirror": found, "pipeline": pipeline, "hours": by_hour}


_STEADY = 0.1
"""A change of less than this share of the highest value counts as steady."""


class Chart(NamedTuple):
    """One chart: *values* per hour, the oldest first, drawn as a line or as bars (*kind* is its CSS class).

    *top* is the value at the upper edge. *good* is the trend (rising or falling) that means an improvement; empty if
    neither does.
    """

    title: str
    span: str
    values: Sequence[float]
    words: Callable[[float], str]
    top: float
    kind: str = "line"
    good: str = ""

    @property
    def trend(self) -> str:
        """The trend of the values: rising, falling or steady.

        The mean of the newest quarter of the values is compared with the mean of the quarter before. If a falling
        trend is good and the newest value is 0, the trend is steady, whatever the earlier values were.
        """
        quarter = max(1, len(self.values) // 4)
        change = sum(self.values[-quarter:]) - sum(self.values[-2 * quarter : -quarter])
        is_over = self.good == "falling" and not self.values[-1]
        if is_over or abs(change) <= _STEADY * max(self.values) * quarter:
            return "steady"
        return "rising" if change > 0 else "falling"


def _charts(hours: Mapping[str, Sequence[float]], lag: timedelta, verified: Sequence[float] = ()) -> list[Chart]:
    """The charts of a mirror; each shows at a glance whether things get better or worse."""
    day, week = "24 hours", "7 days"
    lags, count = [*hours["lag"], lag.total_seconds()], "{:,.0f}".format
    return [
        Chart("Lag, 24 hours", day, lags[-HOURS:], _lag, max(lags[-HOURS:]), good="falling"),
        Chart("Lag, 7 days", week, lags, _lag, max(lags), good="falling"),
        Chart("Changes read/h", day, hours["changes"], count, max(hours["changes"]), "read"),
        Chart("Rows published/h", day, hours["rows"], count, max(hours["rows"]), "sent"),
        *([Chart("Rows verified", week, verified, _share, 1, good="rising")] if verified else ()),
    ]


def _share(share: float) -> str:
    # Never rounded up: 100 % is shown only for a share of exactly 1.
    return f"{int(share * 1000) / 10:g} %"


def _lag(seconds: float) -> str:
    return words.age(timedelta(seconds=seconds)) if seconds else "none"


def _batches(ledger: Engine, mirror: str) -> list[dict[str, Any]]:
    c = t.log_batch.c
    query = sa.select(c.number, c.bound_at, c.committed_at, c.manifest).where(c.mirror == mirror)
    found = []
    for number, bound, committed, manifest in t.rows(ledger, query.order_by(c.number.desc()).limit(_BATCHES)):
        counts = {name: count for name, count in counts_of(manifest).items() if count}
        times = {"bound_at": bound, "committed_at": committed, "took": committed - bound}
        found.append({"number": number, **times, "messages": counts.pop("messages", 0), "counts": counts})
    return found


def _letters(mirror: Mirror, letters: Sequence[Letter]) -> list[dict[str, Any]]:
    return [
        {**letter._asdict(), "next_step": words.to_copy(next_step_of(letter.code), mirror.file)} for letter in letters
    ]


def _names(cols: str) -> list[str]:
    """The names of a column list, which is a JSON list of names, or of lists that begin with them."""
    return [str(column[0] if isinstance(column, list) else column) for column in json.loads(cols)]


def _fate(number: int, table: TableView) -> str:
    if table.applied is None:
        return "not known"
    if number <= table.applied:
        return "applied"
    # Fabric leaves the newest file in its folder, so nothing shows whether this file was applied (F-35).
    return "waits at the target" if table.backlog.files else "not known: the newest file stays there"


def wants_json(request: Request) -> bool:
    """Whether the request asks for JSON instead of HTML."""
    accept = request.headers.get("accept", "")
    return request.query_params.get("format") == "json" or ("application/json" in accept and "text/html" not in accept)


def json_response(document: Mapping[str, Any], status: int) -> Response:
    """Send the content of a page as JSON."""
    text = json.dumps(plain(document), ensure_ascii=False, indent=1)
    return Response(text, status, media_type="application/json")


def html(template: str, context: Mapping[str, Any]) -> str:
    """Render the content of a page with a template."""
    return _TEMPLATES.get_template(template).render(context)


def _length(length: timedelta) -> str:
    seconds = length.total_seconds()
    return f"{seconds:.1f} s" if seconds < 10 else words.age(length)


def _visible(value: object) -> object:
    """Make unprintable characters of a text visible before it is shown."""
    return words.shown(value, also="\n\t") if isinstance(value, str) and not isinstance(value, Markup) else value


_TEMPLATES = Environment(
    loader=PackageLoader("open_mirroring.page"),
    autoescape=True,
    finalize=_visible,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_TEMPLATES.globals |= {
    "ago": lambda moment, now: "never" if moment is None else f"{words.age(now - moment)} ago",
    "age": words.age,
    "verified_words": words.verified_words,
    "amount": words.amount,
    "length": _length,
    "name_of": words.verdict_name,
    "size": words.size,
    "verdict_words": words.verdict_words,
    "has_section": lambda code: section(code) is not None,
    "look_action": LOOK,
    "accept_letters": ACCEPT_LETTERS,
    "charts": _charts,
}
_FILTERS: dict[str, Callable[..., Any]] = {
    # For a value that a form sends back or a visitor copies: escaped, but not shortened or changed.
    "exact": lambda value: escape(str(value)),
    "moment": lambda moment: "" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC",
    # Let a long name break after a dot or an underscore, or before a capital, rather than elsewhere.
    "name": lambda name: Markup(re.sub("(?<=[._])|(?<=[a-z])(?=[A-Z])", "<wbr>", str(escape(words.shown(name))))),
    "query": urlencode,
    "said": as_text,
}
_TEMPLATES.filters |= _FILTERS
