"""Decides which tables may publish now. Pure; a problem of one table never holds another one (I24)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from open_mirroring.protocols.verdicts import Finding, Verdict


class GateResult(NamedTuple):
    """Tables by what they may do; the values of *held* and *stopped* are ``CODE: what is the matter``.

    A table with losses passes: what is missing gets no more by waiting.
    """

    passing: tuple[str, ...]
    held: dict[str, str]
    stopped: dict[str, str]


def gate(findings: Mapping[str, Finding]) -> GateResult:
    """Sort tables by their findings; names in order, so that equal findings give equal results."""
    passing = tuple(t for t in sorted(findings) if findings[t].verdict in (Verdict.PASS, Verdict.LOSSES))
    reasons: dict[Verdict, dict[str, str]] = {verdict: {} for verdict in Verdict}
    for table in sorted(findings):
        finding = findings[table]
        reasons[finding.verdict][table] = f"{finding.code}: {finding.what}"
    return GateResult(passing, reasons[Verdict.HOLD], reasons[Verdict.STOP])
