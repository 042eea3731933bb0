"""Turns the runbook's section about a code into HTML."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from open_mirroring.operate.words import shown

_CODE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b|\b[A-Z]{3,}\b")
_INLINE = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\(([^)\s]+)\)")
_WIDE = '<div class="wide" tabindex="0" role="region" aria-label="Codes">'
_CODE_BLOCK = Markup('<pre tabindex="0"><code>{}</code></pre>\n')


@cache
def _sections() -> dict[str, tuple[str, str]]:
    """Heading and text of the section for each code; a section of its own goes before a row in a table."""
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
    """Return heading and HTML of the runbook's section about a code; None if the runbook has no such section."""
    found = _sections().get(code)
    return None if found is None else (found[0], as_html(found[1]))


_MARKDOWN = MarkdownIt("commonmark", {"html": False}).disable("inline").enable("table")
_MARKDOWN.add_render_rule("table_open", lambda *_: f"{_WIDE}<table>")
_MARKDOWN.add_render_rule("table_close", lambda *_: "</table></div>")
_MARKDOWN.add_render_rule("fence", lambda _, tokens, at, *__: _CODE_BLOCK.format(tokens[at].content))


def as_html(text: str) -> Markup:
    """Convert Markdown with paragraphs, lists, tables and code blocks to safe HTML."""
    tokens = _MARKDOWN.parse(text)
    for token in tokens:
        if token.type == "inline":
            token.children = [Token("html_inline", "", 0, content=as_text(token.content))]
        elif token.type == "th_open":
            token.attrSet("scope", "col")
    return Markup(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))


def as_text(text: str) -> Markup:
    """Convert one line of Markdown to safe HTML: code, strong text and https links. Anything else is escaped."""
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
