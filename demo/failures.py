"""The error of the demo."""

from __future__ import annotations

from pathlib import Path

_TAIL = 40


class DemoFailed(Exception):
    """The demo did not end well.

    Args:
        what: one sentence for the reader.
        log: the file that tells more; its end is shown.
    """

    def __init__(self, what: str, log: Path | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.log = log


def tail(log: Path, lines: int = _TAIL) -> str:
    """The last lines of a log, or a text that says that there is no log."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return f"(no log: {error})"
    return "\n".join(text.splitlines()[-lines:]) or "(the log is empty)"
