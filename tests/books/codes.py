"""Writes ``docs/runbook.md``: symptom, cause and fix of every code, and what not to do."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

from open_mirroring.codes import CODES, Code, Kind

_RUNBOOK = Path(__file__).resolve().parents[2] / "docs" / "runbook.md"
_HEAD = """\
# Runbook: what does this code mean, and what do I do?

Look up the code that the message, `open-mirroring status` or the task's log names. Written by `make commands` from
`open_mirroring/codes.py`. The message next to the code has the table, the place and the details.

| You see | It means | Do |
|---|---|---|
| exit code 3, STOP | some tables are stopped | fix the cause, then [lift the stop](how-to/resume.md) |
| exit code 5, HOLD | tables wait | usually nothing: it passes |
| exit code 6, LOSSES | rows are missing or old | the fix of the code, or [dead letters](how-to/dead-letters.md) |
| exit code 7 of `prove` | a table differs from its source | [prove and correct](how-to/prove.md) |
| exit code 1, 2 or 4 | a job or command failed | the fix of the code; after 4 the next run tries again |
| the ledger is gone or old | nothing is published | [recover](how-to/disaster-recovery.md) |

Two rules before anything else. Find out first *who* changed something: most stops mean that another person or program
wrote into the landing zone, or restored an old ledger. And never restart mirroring in Fabric to fix one table: that
rebuilds [every table](https://learn.microsoft.com/fabric/mirroring/open-mirroring-best-practices) of the database.
"""
_CHAPTERS = {
    Kind.STOP: ("Stops", "The table is not published; its changes are still read and logged."),
    Kind.HOLD: ("Holds", "The table waits. What waited is published at once afterwards."),
    Kind.LOSS: ("Losses", "The table is published, but lacks something."),
    Kind.LETTER: ("Dead letters", "A message or row is set aside. Some of them stop their table."),
    Kind.ERROR: ("Errors", "A command, a job or a mirror file is refused. Nothing is committed partially."),
    Kind.NOTE: ("Notes", "Something is worth a look. It stops nothing."),
}
_SYMPTOMS = {
    Kind.STOP: "the table is stopped",
    Kind.HOLD: "the table waits",
    Kind.LOSS: "the table has losses",
    Kind.LETTER: "a dead letter",
    Kind.ERROR: "a job or command fails",
    Kind.NOTE: "a note in `status` and in the run",
}


def runbook() -> str:
    """The complete runbook, as the table of codes has it."""
    chapters = [_HEAD]
    for kind, (title, about) in _CHAPTERS.items():
        codes = [code for code in CODES.values() if code.kinds[0] is kind]
        chapters += [f"\n## {title}\n\n{about}\n", *map(_section, codes)]
    return "".join(chapters)


def _section(code: Code) -> str:
    symptom = ", or ".join(_SYMPTOMS[kind] for kind in code.kinds)
    parts = [
        f"**Symptom.** {_sentence(symptom)}",
        f"**Cause.** {code.means}",
        f"**Fix.** {_sentence(code.next_step)}",
        f"**Ends** {code.lift}.",
        *([f"**Do not** {code.never}."] if code.never else []),
    ]
    return f"\n### {code.name}\n\n" + "".join(f"{_wrapped(part)}\n\n" for part in parts).removesuffix("\n")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _wrapped(text: str) -> str:
    quoted = re.sub(r"`[^`]*`", lambda found: found[0].replace(" ", "\0"), text)  # a command stays on one line
    return textwrap.fill(quoted, 120, break_long_words=False, break_on_hyphens=False).replace("\0", " ")


if __name__ == "__main__":
    _RUNBOOK.write_text(runbook(), encoding="utf-8")
