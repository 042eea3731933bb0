"""Finds tables that are mirrored but for the case of their name, so that their changes are not ignored (G-13)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from spark_jobs.sources.contract.decoded import Refusal, shown


class TableNames:
    """The mirrored tables by name, ``schema.table``."""

    def __init__(self, mirrored: Iterable[str]) -> None:
        self._spelled = {_folded(name): name for name in mirrored}

    def meant_by(self, name: str) -> str | None:
        """The mirrored table whose name differs from this one at most in case, in blanks around it, or unseen."""
        return self._spelled.get(_folded(name))

    def refuse_other_case(self, name: str) -> None:
        """Refuse a change of a table that is mirrored but for the case of its name, instead of ignoring it (G-13)."""
        meant = self.meant_by(name)
        if meant is not None:
            raise Refusal("TABLE_NAME_DIFFERS", f"a change of {shown(name)}, and the mirror file says {shown(meant)}")


def _folded(name: str) -> str:
    """A name without what databases take no notice of: case, blanks at the end; and without what nobody sees."""
    if name.isascii():
        return ".".join(part.strip() for part in name.casefold().split("."))
    seen = (sign for sign in unicodedata.normalize("NFKC", name) if unicodedata.category(sign) != "Cf")
    return ".".join(part.strip() for part in "".join(seen).casefold().split("."))
