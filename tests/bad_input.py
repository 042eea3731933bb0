"""What every test of bad input asserts: nothing is lost without a trace, and whoever is concerned reads what to do."""

from __future__ import annotations

from collections.abc import Mapping

from open_mirroring.protocols.verdicts import Verdict
from open_mirroring.reconciliation.inspection import inspect_mirror
from spark_jobs.dead_letters.listing import dead_letters
from tests.pipeline import Pipeline

DISPOSITIONS = ("changes", "fragments", "metadata", "ignored", "rejected")
ACCOUNTS = ("published", "compacted", "duplicates", "superseded", "in_load", "rejected", "waiting")


def settled(pipeline: Pipeline, counts: Mapping[str, int], messages: int) -> None:
    """Every message of a batch has one disposition, and every change of a table that goes on one account (I1, I7)."""
    assert counts["messages"] == messages == sum(counts.get(name, 0) for name in DISPOSITIONS)
    for source, state in pipeline.reader.tables().items():
        numbers = pipeline.numbers(state.folder)
        assert numbers == list(range(1, len(numbers) + 1)), source
        for publication in pipeline.reader.publications({state.id: state.row.generation}).get(state.id, ()):
            counted = publication.counts
            assert counted.get("changes", 0) == sum(counted.get(name, 0) for name in ACCOUNTS), (source, counted)


def stopped(pipeline: Pipeline, source: str, code: str, *words: str) -> None:
    """The table is stopped with this code: nothing of it is published, and both say what to do.

    What stands before a change of structure is published (G-61).
    """
    state = pipeline.reader.tables()[source]
    before = int(code == "SCHEMA_CHANGED")
    assert (state.stop_code, state.row.published_batch, state.row.confirmed) == (code, before, before), state.stop_what
    assert [word for word in words if word not in (state.stop_what or "")] == [], state.stop_what
    finding = inspect_mirror(pipeline.mirror, pipeline.ledger, record=False)[source]
    assert (finding.verdict, finding.code) == (Verdict.STOP, code)
    assert len(finding.next_step.split()) > 5 and "do what the message says" not in finding.next_step


def stops(pipeline: Pipeline) -> set[str]:
    return {source for source, state in pipeline.reader.tables().items() if state.stop_code}


def listed_next_steps(pipeline: Pipeline) -> dict[tuple[str, int], str]:
    """What an operator reads beside each dead letter, by its coordinates."""
    found = dead_letters(pipeline.log, pipeline.reader, 1_000)
    assert not found.more
    return {(letter.origin, letter.place): letter.next_step for letter in found.letters}
