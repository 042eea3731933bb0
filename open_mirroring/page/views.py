"""Computes what each page shows, as values that become HTML by a template, or JSON as they are."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import sqlalchemy as sa
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from sqlalchemy import Engine
from starlette.requests import Request
from starlette.responses import Response

from open_mirroring.changes.dead_letters import WAYS_OUT as LETTER_WAYS_OUT
from open_mirroring.changes.manifest import LetterPlace, Manifest
from open_mirroring.config import Mirror
from open_mirroring.config.storage import log_place
from open_mirroring.errors import MirroringError
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.requests import ACCEPT_LETTERS
from open_mirroring.operate import words
from open_mirroring.operate.deciding import LOOK
from open_mirroring.operate.overview import MirrorOverview, TableLine, overview, published_since
from open_mirroring.operate.places import places
from open_mirroring.operate.status import plain
from open_mirroring.operate.table_story import Letter, decisions, open_letters, table_story
from open_mirroring.page import ways_out
from open_mirroring.page.runbook import as_text, section
from open_mirroring.protocols import table_losses
from open_mirroring.protocols.verdicts import Verdict
from open_mirroring.storage.arrow_files import arrow_files, arrow_path

SHOWN_BYTES = 2_000


def raw_text(mirror: Mirror, ledger: Engine, at: LetterPlace) -> str | None:
    """The first bytes of a message; None where the log has none of it, or cannot be read from here."""
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
    """Bytes as printable text, at most so many."""
    text = raw[:SHOWN_BYTES].decode("utf-8", errors="backslashreplace")
    said = words.shown(text, also="\n\t")
    more = len(raw) - SHOWN_BYTES
    return said + (f" … and {more:,} bytes more" if more > 0 else "")


_HEIGHT, _STEP = 28, 5
_SHAPES = {
    "STOP": '<path d="M5 1h6l4 4v6l-4 4H5l-4-4V5z"/><path class="cut" d="M5 5l6 6M11 5l-6 6"/>',
    "LOSSES": '<path d="M8 1l7 13H1z"/><path class="cut" d="M8 6v4M8 11.6v.8"/>',
    "HOLD": '<rect x="1" y="1" width="14" height="14" rx="2"/><path class="cut" d="M6 5v6M10 5v6"/>',
    "PASS": '<circle cx="8" cy="8" r="7"/><path class="cut" d="M4.5 8.2l2.5 2.5 4.5-5"/>',
    "UNKNOWN": '<path d="M8 0.8L15.2 8 8 15.2 0.8 8z"/><path class="cut" d="M6.4 6.4a1.7 1.7 0 1 1 1.6 2v1M8 11v.6"/>',
}
ROWS_PER_PAGE = 100
_BATCHES = 20
_WORST = 5
_LETTERS = 10_000


def sparkline(values: Sequence[int], name: str) -> Markup:
    """Bars, one for each value, with the sum and the highest in words for those who do not see them."""
    highest = max(values, default=0)
    label = f"{name}: {sum(values):,} in {len(values)} hours, at most {highest:,} in one"
    bars = []
    for at, value in enumerate(values):
        height = max(2, round(_HEIGHT * value / highest)) if value else 1
        bars.append(f'<rect x="{at * _STEP}" y="{_HEIGHT - height}" width="{_STEP - 1}" height="{height}"/>')
    return Markup(
        '<svg class="spark" role="img" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        "<title>{label}</title>{bars}</svg>"
    ).format(width=len(values) * _STEP, height=_HEIGHT, label=label, bars=Markup("".join(bars)))


def shape(verdict: str) -> Markup:
    """The shape of a verdict, for those who do not tell its colour; the word stands beside it."""
    return Markup('<svg class="shape" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">{}</svg>').format(
        Markup(_SHAPES[verdict])
    )


class MirrorEntry(NamedTuple):
    """A mirror in the list of all: *failed* says why there is no overview though something has run.

    *places* are where it reads and writes, for one of which nothing has run yet.
    """

    name: str
    overview: MirrorOverview | None
    failed: str
    places: Mapping[str, str]

    @property
    def pipeline(self) -> dict[str, Any]:
        """What waits at each step; empty without an overview."""
        return {} if self.overview is None else _pipeline(self.overview)


@dataclass(frozen=True)
class TableQuery:
    """What of a mirror's tables is asked for: a part of their name, a verdict, an order, a page."""

    search: str = ""
    verdict: str = ""
    order: str = "verdict"
    descending: bool = False
    page: int = 1

    @classmethod
    def of(cls, query: Mapping[str, str]) -> TableQuery:
        """From the address; what is wrong in it is left out."""
        order, page = query.get("order", ""), query.get("page", "1")
        name = order.removeprefix("-")
        known = name if name in ORDERS else "verdict"
        number = int(page) if page.isdecimal() and len(page) < 6 else 1
        return cls(
            query.get("search", "")[:200], query.get("verdict", ""), known, order.startswith("-"), max(1, number)
        )

    def address(self, **changed: object) -> str:
        """The query that asks for the same, with something changed."""
        values = {
            "search": self.search,
            "verdict": self.verdict,
            "order": ("-" if self.descending else "") + self.order,
        }
        return "?" + urlencode({**values, **changed})


ORDERS: Mapping[str, Callable[[TableLine, datetime], Any]] = {
    "verdict": lambda line, _: (words.SEVERITY.index(line.verdict), line.source),
    "table": lambda line, _: line.source,
    "lag": lambda line, now: line.lag(now),
    "waiting": lambda line, _: line.waiting_rows,
    "backlog": lambda line, _: line.backlog.files,
    "letters": lambda line, _: line.letters,
}


def mirrors(entries: Sequence[MirrorEntry], problems: Sequence[str], now: datetime) -> dict[str, Any]:
    """All mirrors."""
    return {"title": "Mirrors", "taken_at": now, "mirrors": entries, "problems": problems}


def mirror(mirror: Mirror, ledger: Engine, now: datetime, asked: TableQuery) -> dict[str, Any]:
    """One mirror, with the tables that are asked for."""
    found = overview(mirror, ledger, now)
    wanted = [
        line
        for line in found.tables
        if asked.search.casefold() in line.source.casefold() and asked.verdict in ("", name_of(line.verdict))
    ]
    wanted.sort(key=lambda line: ORDERS[asked.order](line, now), reverse=asked.descending)
    pages = max(1, -(-len(wanted) // ROWS_PER_PAGE))
    page = min(asked.page, pages)
    shown = wanted[(page - 1) * ROWS_PER_PAGE : page * ROWS_PER_PAGE]
    return {
        "title": mirror.name,
        "taken_at": now,
        "mirror": {**_whole(found), "file": str(mirror.file)},
        "pipeline": _pipeline(found),
        "worst": [line for line in found.tables if line.verdict is Verdict.STOP][:_WORST],
        "asked": asked,
        "matching": len(wanted),
        "pages": pages,
        "page": page,
        "tables": shown,
        "letters": _letters(open_letters(ledger, mirror.name, None)) if found.letters else [],
        "ways_out": ways_out.of_mirror(mirror, found),
        "batches": _batches(ledger, mirror.name),
        "decisions": decisions(ledger, mirror.name, None),
        "places": places(mirror),
    }


def not_started(mirror: Mirror, now: datetime) -> dict[str, Any]:
    """A mirror whose ledger is not there yet."""
    return {
        "title": mirror.name,
        "taken_at": now,
        "mirror": {"mirror": mirror.name, "file": str(mirror.file)},
        "places": places(mirror),
    }


def table(mirror: Mirror, ledger: Engine, source: str, now: datetime) -> dict[str, Any] | None:
    """One table; None when there is none of this name."""
    story = table_story(mirror, ledger, source)
    found = overview(mirror, ledger, now)
    line = next((line for line in found.tables if line.source == source), None)
    if story is None or line is None:
        return None
    columns = tuple(dict.fromkeys(name for one in story.column_lists for name in _names(one.cols)))
    return {
        "title": f"{source} of {mirror.name}",
        "taken_at": now,
        "mirror": _whole(found),
        "table": line,
        "generation": story.state.row.generation,
        "keys": story.state.keys,
        "columns": [
            {"name": c.landed_name, "type": c.type, "tells": c.tells}
            if c.tells
            else {"name": c.name, "type": c.type, **({"renamed": c.renamed} if c.renamed else {})}
            for c in story.state.columns.columns
        ],
        "column_lists": [
            {"columns": _names(one.cols), "whole": one.whole, "since": one.first_pos} for one in story.column_lists
        ],
        "marks": story.marks,
        "confirmed": story.state.row.confirmed,
        "taken": story.taken,
        "became": story.became,
        "adds_up": story.adds_up,
        "loaded": story.loaded,
        "publications": story.publications,
        "load": story.load,
        "load_left": story.load_left,
        "reset": "" if story.state.reset is None else str(story.state.reset),
        "files": [
            {**plain(file), "confirmed_at": file.confirmed_at, "fate": _fate(file.number, line)} for file in story.files
        ],
        "letters": _letters(story.letters),
        "proofs": story.proofs,
        "decisions": story.decisions,
        "epochs": story.epochs,
        "unknown_epochs": story.unknown,
        "ways_out": ways_out.of_table(mirror, line, story.unknown, columns),
        "prove": ways_out.proof(mirror, source),
    }


def letter(mirror: Mirror, ledger: Engine, query: Mapping[str, str]) -> dict[str, Any] | None:
    """One open dead letter with the bytes of its message."""
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
        "letter": _letters([found])[0],
        "raw": raw_text(mirror, ledger, at),
    }


def runbook(code: str) -> dict[str, Any] | None:
    """The runbook's section about a code."""
    found = section(code)
    return None if found is None else {"title": found[0], "code": code, "text": found[1]}


def decided(mirror: Mirror, action: str, source: str, said: Sequence[str], failed: str) -> dict[str, Any]:
    """What came of a decision."""
    title = "Not done" if failed else "Done"
    return {
        "title": title,
        "mirror": {"mirror": mirror.name},
        "action": action,
        "source": source,
        "said": said,
        "failed": failed,
    }


def name_of(verdict: Verdict | None) -> str:
    """The verdict as addresses and classes name it."""
    return "UNKNOWN" if verdict is None else verdict.value


def _whole(found: MirrorOverview) -> dict[str, Any]:
    """The mirror itself, without its tables."""
    names = (
        "mirror",
        "taken_at",
        "committed",
        "last_commit",
        "open_batch",
        "open_since",
        "behind",
        "stop",
        "losses",
        "notes",
        "letters",
        "hours",
        "hours_out",
        "looked_at",
        "next_run",
        "verdict",
        "counts",
        "lag",
        "proved",
    )
    return {**{name: getattr(found, name) for name in names}, "number_of_tables": len(found.tables)}


def _pipeline(found: MirrorOverview) -> dict[str, Any]:
    waiting = [line for line in found.tables if line.waiting_rows]
    backlog = [line for line in found.tables if line.backlog.files]
    return {
        "waiting_rows": sum(line.waiting_rows for line in waiting),
        "waiting_tables": len(waiting),
        "waiting_since": min((line.waiting_since for line in waiting if line.waiting_since), default=None),
        "backlog_files": sum(line.backlog.files for line in backlog),
        "backlog_bytes": sum(line.backlog.bytes for line in backlog),
        "backlog_tables": len(backlog),
        "backlog_since": min((line.backlog.oldest for line in backlog if line.backlog.oldest), default=None),
        "published_at": max((line.published_at for line in found.tables if line.published_at), default=None),
        "looked": any(line.applied is not None for line in found.tables),
    }


class _Counted(msgspec.Struct):
    counts: dict[str, int]


def _batches(ledger: Engine, mirror: str) -> list[dict[str, Any]]:
    c = t.log_batch.c
    query = sa.select(c.number, c.bound_at, c.committed_at, c.manifest).where(c.mirror == mirror)
    with ledger.connect() as db:
        rows = db.execute(query.order_by(c.number.desc()).limit(_BATCHES)).tuples().all()
        files = published_since(db, mirror, rows[-1][1]) if rows else []
    found = []
    for number, bound, committed, manifest in rows:
        counts = msgspec.json.decode(manifest, type=_Counted).counts
        published = [at for behind, to, at in files if behind < number <= to]
        found.append(
            {
                "number": number,
                "bound_at": bound,
                "committed_at": committed,
                "took": committed - bound,
                "published_at": max(published, default=None),
                "messages": counts.get("messages", 0),
                "counts": {name: count for name, count in counts.items() if count and name != "messages"},
            }
        )
    return found


def _letters(letters: Sequence[Letter]) -> list[dict[str, Any]]:
    return [
        {**letter._asdict(), "way_out": LETTER_WAYS_OUT.get(letter.code, "find out from its contents what it is")}
        for letter in letters
    ]


def _names(cols: str) -> list[str]:
    """The names of a column list, which is a JSON list of names, or of lists that begin with them."""
    return [str(column[0] if isinstance(column, list) else column) for column in json.loads(cols)]


def _fate(number: int, line: TableLine) -> str:
    if line.applied is None:
        return "not known"
    if number <= line.applied:
        return "applied"
    # The service leaves the newest file where it is, so nothing there tells whether it was applied (F-35).
    return "waits at the target" if line.backlog.files else "not known: the newest file stays there"


def wants_json(request: Request) -> bool:
    """Whether JSON is asked for."""
    accept = request.headers.get("accept", "")
    return request.query_params.get("format") == "json" or ("application/json" in accept and "text/html" not in accept)


def json_response(document: Mapping[str, Any], status: int) -> Response:
    """The values as JSON."""
    text = json.dumps(plain(document), ensure_ascii=False, indent=1)
    return Response(text, status, media_type="application/json")


def html(template: str, context: Mapping[str, Any]) -> str:
    """The values as a page."""
    return _TEMPLATES.get_template(template).render(context)


def _ago(moment: datetime | None, now: datetime) -> str:
    return "never" if moment is None else f"{words.age(now - moment)} ago"


def _moment(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _length(length: timedelta) -> str:
    seconds = length.total_seconds()
    return f"{seconds:.1f} s" if seconds < 10 else words.age(length)


def _exact(value: object) -> Markup:
    """A value that comes back in a form, or is copied: escaped, and otherwise as it is."""
    return escape(str(value))


def _visible(value: object) -> object:
    """A value for people."""
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
    "ago": _ago,
    "age": words.age,
    "amount": words.amount,
    "length": _length,
    "name_of": name_of,
    "shape": shape,
    "size": words.size,
    "sparkline": sparkline,
    "verdict_words": words.verdict_words,
    "has_section": lambda code: section(code) is not None,
    "look_action": LOOK,
    "accept_letters": ACCEPT_LETTERS,
    "homeless": table_losses.DEAD_LETTERS_HOMELESS,
}
_TEMPLATES.filters |= {"exact": _exact, "moment": _moment, "query": urlencode, "said": as_text}
