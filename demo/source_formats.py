"""The formats that the demo can use: what each needs, and which kinds of events every table must meet in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

CHANGES = ("inserts", "updates", "deletes", "key_changes", "duplicates")
"""What every format has: kinds of change, and messages or rows that come twice."""
LATE_ACROSS_RUNS = "late_across_runs"


@dataclass(frozen=True, slots=True)
class SourceFormat:
    """A format and the way it takes in the demo.

    Args:
        name: what ``make demo SOURCE=`` calls it.
        carries: how the changes come, in words.
        kinds: what every table must have seen, as the workload generator counts it.
        is_late: whether changes come after newer ones; then every table must have seen one late across runs, too.
        absent: what the format does not have, and why: said at the end.
        with_export: whether first rows come from files, by the initial load; else the stream begins with them.
        with_broker: whether it needs a Kafka broker.
    """

    name: str
    carries: str
    kinds: tuple[str, ...]
    is_late: bool
    absent: tuple[str, ...] = ()
    with_export: bool = True
    with_broker: bool = False

    @property
    def mirror_file(self) -> Path:
        """The mirror file of a demo in this format."""
        return Path(__file__).parent / "mirrors" / f"{self.name}.yaml"

    @property
    def columns(self) -> tuple[str, ...]:
        """Everything that is shown of a table, and must not be 0."""
        return (*self.kinds, LATE_ACROSS_RUNS) if self.is_late else self.kinds


CES = SourceFormat(
    "ces",
    "SQL Server change events in the files of an Event Hubs Capture",
    (*CHANGES, "split_events", "late_events"),
    is_late=True,
)
QLIK_KAFKA = SourceFormat(
    "qlik-kafka",
    "Qlik messages, JSON, through a Kafka broker of the demo's own",
    (*CHANGES, "replays", "late_events"),
    is_late=True,
    absent=("no split events: a Qlik message is a complete change",),
    with_export=False,
    with_broker=True,
)
QLIK_CHANGE_TABLE = SourceFormat(
    "qlik-change-table",
    "Qlik change tables, written by a file target",
    CHANGES,
    is_late=False,
    absent=(
        "no split events: a change is one row, an update one more for the row before it",
        "no late events: a task stores the changes of each table in their order",
    ),
)
FORMATS: Mapping[str, SourceFormat] = MappingProxyType({one.name: one for one in (CES, QLIK_KAFKA, QLIK_CHANGE_TABLE)})
"""By name."""
