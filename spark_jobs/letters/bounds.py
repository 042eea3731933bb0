"""Limits how many dead letters of a batch the ledger lists one by one; the others are only counted."""

from __future__ import annotations

from collections.abc import Iterable

from open_mirroring.changes.manifest import SeenLetter

LETTERS_SHOWN = 1_000
"""Of a task, and of a batch."""
REASON = 300
"""Characters of a letter's reason; the log has all of it."""


def bounded_letters(letters: Iterable[SeenLetter], at_most: int) -> list[SeenLetter]:
    """At most so many dead letters one by one; one entry for each table and code stands for the others."""
    single, more = list[SeenLetter](), dict[tuple[str | None, str], int]()
    for letter in letters:
        if letter.place >= 0 and len(single) < at_most:
            single.append(letter)
        else:
            at = (letter.source, letter.code)
            more[at] = more.get(at, 0) + letter.letters
    rest = [
        SeenLetter(f"({code} of {source or 'no table'})", -1, source, code, "", letters=count)
        for (source, code), count in more.items()
    ]
    # Those that stand for many come first: the last one is compared with the next row of a message.
    return [*rest, *single]
