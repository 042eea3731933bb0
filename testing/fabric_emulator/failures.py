"""The errors of the emulator: a table fails, or the emulator itself cannot work."""

from __future__ import annotations

from open_mirroring.landing_zone.layout import METADATA_FILE


class EmulatorError(Exception):
    """The emulator itself cannot continue; no table caused it."""

    def __init__(self, code: str, what: str, *, next_step: str) -> None:
        super().__init__(f"{code}: {what} Next step: {next_step}")
        self.code = code
        self.what = what
        self.next_step = next_step


class TableFailure(Exception):
    """A table cannot continue; it stays ``Failed`` while other tables continue.

    Args:
        code: the ``errorCode`` in the monitoring. ``SchemaMergeFailure`` is the service's own (field), the others are
            the emulator's.
        what: one sentence with the offending value.
        next_step: the documented repair of the table.
        by_replacement: True when a valid file under the same name repairs the table (F-40, Microsoft Learn: best
            practices); False when only a re-created folder does (F-87, F-89).
    """

    def __init__(self, code: str, what: str, *, next_step: str, by_replacement: bool) -> None:
        super().__init__(f"{what} Next step: {next_step}")
        self.code = code
        self.by_replacement = by_replacement


def bad_file(code: str, what: str) -> TableFailure:
    """The content of a file is wrong: replacing it under the same name repairs the table (F-40)."""
    return TableFailure(
        code,
        what,
        next_step="delete the file and put a valid one under exactly the same name (F-40)",
        by_replacement=True,
    )


def invalid_metadata(what: str) -> TableFailure:
    """A table's ``_metadata.json`` is wrong: replacing it repairs the table."""
    return bad_file("InvalidMetadata", f"{METADATA_FILE} cannot be used: {what}")


def needs_rebuild(code: str, what: str) -> TableFailure:
    """The table and its next file contradict each other: only a new folder repairs it (F-75, F-87)."""
    return TableFailure(
        code,
        what,
        next_step="delete the table's folder and create it again with a full load (F-75)",
        by_replacement=False,
    )
