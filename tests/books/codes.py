"""Writes the last chapter of ``docs/runbook.md``: a section for each code that has none of its own in the others."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from open_mirroring.codes import CODES, Code

_RUNBOOK = Path(__file__).resolve().parents[2] / "docs" / "runbook.md"
_HEAD = """\
## Every other code

Written by `make commands` from the one table of codes, `open_mirroring/codes.py`. The chapters above say more of some.
"""


def runbook() -> str:
    """The whole runbook, with this chapter as the table of codes tells it."""
    chapters = _RUNBOOK.read_text(encoding="utf-8").partition(_HEAD.partition("\n")[0])[0]
    own = set(re.findall(r"^### ([A-Z][A-Z_]+)$", chapters, re.MULTILINE))
    return (
        chapters.rstrip("\n")
        + "\n\n"
        + _HEAD
        + "".join(map(_section, (code for code in CODES.values() if code.name not in own)))
    )


def _section(code: Code) -> str:
    step = f"**Next step.** {code.next_step[:1].upper()}{code.next_step[1:]}."
    told = f"{code.means} It is told as {', '.join(code.kinds)}, and ended by {code.lift}."
    return f"\n### {code.name}\n\n{_wrapped(told)}\n\n{_wrapped(step)}\n"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    _RUNBOOK.write_text(runbook(), encoding="utf-8")
