"""Makes text of a source safe to show: no invisible character can change what a person reads."""

from __future__ import annotations


def visible(text: str) -> str:
    """What does not print, or turns the direction of what follows, is shown by its number; lines stay lines."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode("ascii") for c in text)
