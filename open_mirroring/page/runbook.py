"""Turns the runbook's section about a code into HTML: the few forms that the runbook uses, and no other."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

from markupsafe import Markup, escape

from open_mirroring.operate.words import shown

_CODE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b|\b[A-Z]{3,}\b")
_INLINE = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\(([^)\s]+)\)")
_ITEM = re.compile(r"^(?:[-*]|\d+\.) +")


@cache
def _sections() -> dict[str, tuple[str, str]]:
    """Heading and text of the section by each code that it explains; one of its own goes before a row of a table."""
    text = (resources.files("open_mirroring.page") / "runbook.md").read_text(encoding="utf-8")
    found: dict[str, tuple[str, str]] = {}
    for part in re.split(r"^#{2,3} ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = part.partition("\n")
        found |= {code: (heading, body) for code in _CODE.findall(heading)}
        for line in body.splitlines():
            for code in _CODE.findall(line.split("|")[1]) if line.startswith("| ") else ():
                found.setdefault(code, (heading, body))
    return found


def section(code: str) -> tuple[str, Markup] | None:
    """Heading and text of the section about a code; None where there is none."""
    found = _sections().get(code)
    return None if found is None else (found[0], as_html(found[1]))


def as_html(text: str) -> Markup:
    """Paragraphs, lists, tables and blocks of code."""
    out: list[Markup] = []
    for block in _blocks(text):
        first = block[0]
        if first.startswith("```"):
            out.append(Markup('<pre tabindex="0"><code>{}</code></pre>').format("\n".join(block[1:])))
        elif first.startswith("|"):
            out.append(_table(block))
        elif _ITEM.match(first):
            items = re.split(r"\n(?=(?:[-*]|\d+\.) )", "\n".join(block))
            tag = Markup("ol" if first[0].isdigit() else "ul")
            lines = Markup("").join(Markup("<li>{}</li>").format(as_text(_ITEM.sub("", item))) for item in items)
            out.append(Markup("<{0}>{1}</{0}>").format(tag, lines))
        else:
            out.append(Markup("<p>{}</p>").format(as_text("\n".join(block))))
    return Markup("\n").join(out)


def _blocks(text: str) -> list[list[str]]:
    blocks: list[list[str]] = [[]]
    in_code = False
    for line in text.splitlines():
        if line.startswith("```"):
            in_code = not in_code
            if in_code:
                blocks.append([line])
            else:
                blocks.append([])
        elif in_code or line.strip():
            blocks[-1].append(line)
        else:
            blocks.append([])
    return [block for block in blocks if block]


def _table(block: list[str]) -> Markup:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block if not line.startswith("|-")]
    cells = (Markup("").join(Markup("<td>{}</td>").format(as_text(cell)) for cell in row) for row in rows[1:])
    head = Markup("").join(Markup('<th scope="col">{}</th>').format(as_text(cell)) for cell in rows[0])
    body = Markup("").join(Markup("<tr>{}</tr>").format(row) for row in cells)
    return Markup(
        '<div class="wide" tabindex="0" role="region" aria-label="Codes"><table><thead><tr>{}</tr></thead>'
        "<tbody>{}</tbody></table></div>"
    ).format(head, body)


def as_text(text: str) -> Markup:
    """One line: code, strong words and links to elsewhere."""
    out, at, text = Markup(""), 0, shown(text, also="\n\t")
    for match in _INLINE.finditer(text):
        out += escape(text[at : match.start()])
        code, strong, label, address = match.groups()
        if code:
            out += Markup("<code>{}</code>").format(code)
        elif strong:
            out += Markup("<strong>{}</strong>").format(strong)
        elif address.startswith("https://"):
            out += Markup('<a href="{}" rel="noreferrer">{}</a>').format(address, label)
        else:
            out += escape(label)
        at = match.end()
    return out + escape(text[at:])
