"""Whether a table that is not mirrored is one that was meant to be: names are compared as the source spells them."""

from __future__ import annotations

from collections.abc import Iterable

from spark_jobs.sources.contract.decoded import Refusal, shown


class TableNames:
    """The mirrored tables by name, ``schema.table``."""

    def __init__(self, mirrored: Iterable[str]) -> None:
        self._spelled = {name.casefold(): name for name in mirrored}

    def meant_by(self, name: str) -> str | None:
        """The mirrored table whose name differs from this one at most in case."""
        return self._spelled.get(name.casefold())

    def refuse_other_case(self, name: str) -> None:
        """Refuse a change of a table that is mirrored but for the case of its name, instead of ignoring it (G-13).

        Most databases take no notice of case, so that one table was meant; where they do, nobody can tell.

        Raises:
            Refusal: ``TABLE_CASE``.
        """
        meant = self.meant_by(name)
        if meant is not None:
            raise Refusal("TABLE_CASE", f"a change of {shown(name)}, and the mirror file says {shown(meant)}")
