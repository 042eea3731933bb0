"""Checks paths in a landing zone, the same for every store."""

from __future__ import annotations

import re

_UNPLAIN = re.compile(r"[\\\x00-\x1f\x7f]")


def why_unsafe(path: str) -> str:
    """Why a path is not relative, plain and inside the zone; empty when it is."""
    if not path or path.startswith("/"):
        return "is not relative to the zone"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "has an empty, '.' or '..' part"
    if _UNPLAIN.search(path):
        return "contains a backslash or a control character"
    return ""
