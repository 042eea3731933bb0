"""One mistake in a mirror file, as it is reported: where it is, what is wrong, how to correct it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from open_mirroring.errors import TerminalError

SettingPath = tuple[str | int, ...]
"""A place in a mirror file, outermost first: ``("tables", 0, "target")``."""


def path_text(path: SettingPath) -> str:
    """``("tables", 0, "target")`` → ``tables[0].target``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            # Keys come from the file: a line break or a bidirectional character must not forge a log line.
            shown = part if part.isprintable() else repr(part)[1:-1]
            text += f".{shown}" if text else shown
    return text


class Problem(NamedTuple):
    """One mistake. *line* counts from 1; *path* is the setting as :func:`path_text` writes it, or empty."""

    code: str
    file: Path
    line: int
    path: str
    what: str
    way_out: str

    def __str__(self) -> str:
        setting = f"{self.path}: " if self.path else ""
        return f"{self.file}:{self.line}: {self.code}: {setting}{self.what}. Way out: {self.way_out}"


class ConfigError(TerminalError):
    """Mirror files with mistakes; the code is ``CONFIG_INVALID`` and :attr:`problems` holds every one of them.

    Attributes:
        problems: all mistakes found, by file and line; never empty.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems), key=lambda p: (str(p.file), p.line, p.path, p.code, p.what)))
        count = len(self.problems)
        super().__init__(
            "CONFIG_INVALID",
            f"{count} {'mistake' if count == 1 else 'mistakes'} found:\n" + "\n".join(map(str, self.problems)) + "\n",
            where=", ".join(sorted({str(problem.file) for problem in self.problems})),
            way_out="mend every line named above, then run `open-mirroring check` on the file",
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (ConfigError, (self.problems,))
