"""Dead letters decoded again after their cause was mended: as if they had been read in the first place (G-06, I17)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from open_mirroring.errors import TerminalError
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.dead_letters import accept_letters, settled_letters
from open_mirroring.ledger.decisions import resume_table
from spark_jobs.dead_letters.listing import dead_letters
from spark_jobs.dead_letters.open_letters import LetterChoice, read_open_letters
from spark_jobs.reconcile_sequence import reconcile_deep
from spark_jobs.replay_dead_letters import Replayed, replay_letters
from tests.e2e.test_histories import FOLDERS, TABLES, assert_mirrored, history, slices
from tests.pipeline import Pipeline
from workload_generator.delivery import Delivery
from workload_generator.qlik_messages import QlikMessageOptions, render
from workload_generator.transports import json_lines

ORDERS = "dbo.orders"


def mirror_of_messages(folder: Path, spark: Any) -> Pipeline:
    """A mirror that takes every change for malformed: it expects shorter sequences than its messages have."""
    return Pipeline(folder, spark, TABLES, source={"format": "qlik-message", "sequence_digits": 20})


def mend(pipeline: Pipeline) -> None:
    pipeline.file.write_text(pipeline.file.read_text().replace("sequence_digits: 20", "sequence_digits: 35"))


def replay(pipeline: Pipeline, spark: Any, **choice: Any) -> Replayed:
    return replay_letters(pipeline.mirror, pipeline.ledger, spark, LetterChoice(**choice))


def resume(pipeline: Pipeline) -> None:
    """Lift the stops of all tables: a letter that hides its key stops its table until somebody has looked."""
    for source in FOLDERS:
        lifted = resume_table(pipeline.ledger, pipeline.name, source, Reason("ann", "mended the setting"))
        assert lifted.code == "CHANGES_RECOVERED"


def delivered(pipeline: Pipeline, seed: int, parts: int) -> Any:
    made = history(seed=seed, transactions=30)
    messages = render(made, QlikMessageOptions(), Delivery(partitions=2, scheme="key", seed=seed))
    for at, part in enumerate(slices(messages, parts)):
        pipeline.deliver(f"{at}.jsonl", json_lines(part, layout="wrapped"))
    return made


def test_what_today_s_settings_can_read_is_published_as_if_it_always_had_been(tmp_path: Path, spark) -> None:
    """G-06, G-05, I16, I17: nothing twice, nothing reverted; and replaying once more changes nothing."""
    pipeline = mirror_of_messages(tmp_path, spark)
    made = history(seed=51, transactions=40)
    early, late = slices(render(made, QlikMessageOptions(), Delivery(partitions=2, scheme="key", seed=51)), 2)
    pipeline.deliver("0.jsonl", json_lines(early, layout="wrapped"))
    extracted, _ = pipeline.tick()
    rejected = extracted.counts["rejected"]
    assert rejected == len(read_open_letters(pipeline.mirror, pipeline.ledger)) > 0
    assert replay(pipeline, spark).replayed == 0, "nothing was mended yet"
    assert len(read_open_letters(pipeline.mirror, pipeline.ledger)) == rejected, "they stay as they are, once"

    mend(pipeline)
    # What is newer was read meanwhile: of a key that it changed, the replayed change is superseded.
    pipeline.deliver("1.jsonl", json_lines(late, layout="wrapped"))
    pipeline.tick()
    done = replay(pipeline, spark)
    assert (done.replayed, done.left, done.counts["messages"]) == (rejected, {}, rejected)
    resume(pipeline)
    pipeline.publish()
    pipeline.service.poll()
    assert_mirrored(pipeline, made)
    assert dead_letters(pipeline.log, pipeline.reader, 10, settled_letters(pipeline.ledger, "test")).letters == []
    numbers = {folder: pipeline.numbers(folder) for folder in FOLDERS.values()}
    again = replay(pipeline, spark)
    assert (again.batch, again.replayed, pipeline.publish().files) == (None, 0, {})
    assert {folder: pipeline.numbers(folder) for folder in FOLDERS.values()} == numbers
    assert pipeline.reader.mirror().unnamed_rejects == 0
    assert reconcile_deep(pipeline.mirror, pipeline.ledger, spark).findings == [], "every count still adds up (I1)"


def test_only_chosen_letters_are_replayed(tmp_path: Path, spark) -> None:
    pipeline = mirror_of_messages(tmp_path, spark)
    delivered(pipeline, 52, 1)
    pipeline.tick()
    mend(pipeline)
    letters = read_open_letters(pipeline.mirror, pipeline.ledger)
    assert replay(pipeline, spark, code="MESSAGE_INVALID").replayed == 0
    done = replay(pipeline, spark, at=letters[0].at)
    assert (done.replayed, len(read_open_letters(pipeline.mirror, pipeline.ledger))) == (1, len(letters) - 1)


def test_a_replay_that_was_killed_is_finished_by_the_next_tick(tmp_path: Path, spark) -> None:
    """I19, I29."""
    pipeline = mirror_of_messages(tmp_path, spark)
    made = delivered(pipeline, 53, 1)
    pipeline.tick()
    mend(pipeline)
    pipeline.killed("replay_dead_letters", "extract.sealed")
    pipeline.extract()
    resume(pipeline)
    pipeline.tick()
    assert_mirrored(pipeline, made)
    assert read_open_letters(pipeline.mirror, pipeline.ledger) == []


def test_reading_a_source_again_settles_the_letters_of_its_messages(tmp_path: Path, spark) -> None:
    """I25, G-06: what is read now replaces them; what still cannot be read is there once, not twice."""
    from open_mirroring.protocols.backfilling import Backfill, parse_interval

    pipeline = mirror_of_messages(tmp_path, spark)
    made = delivered(pipeline, 54, 2)
    pipeline.deliver("2.jsonl", b'{"topic": "t", "partition": 0, "offset": 9, "value": "{broken"}\n')
    pipeline.tick()
    before = pipeline.reader.mirror().unnamed_rejects
    everything = Backfill(parse_interval("2020-01-01", "2100-01-01"), reread=True)
    pipeline.tick(everything)
    assert pipeline.reader.mirror().unnamed_rejects == before
    mend(pipeline)
    pipeline.tick(everything)
    assert [letter.at.origin for letter in read_open_letters(pipeline.mirror, pipeline.ledger)] == ["t/0"]
    assert pipeline.reader.mirror().unnamed_rejects == 1
    resume(pipeline)
    pipeline.tick()
    assert_mirrored(pipeline, made)


def test_a_table_that_a_letter_stopped_can_be_resumed_once_it_was_replayed(tmp_path: Path, spark) -> None:
    """G-06, I1: and not before."""
    pipeline = mirror_of_messages(tmp_path, spark)
    made = delivered(pipeline, 55, 1)
    pipeline.tick()
    reason = Reason("ann", "mended the setting")
    codes = {state.stop_code for state in pipeline.reader.tables().values()}
    assert codes == {"KEY_UNKNOWN"}, codes
    with pytest.raises(TerminalError, match="COMMAND_REFUSED"):
        resume_table(pipeline.ledger, pipeline.name, ORDERS, reason)
    mend(pipeline)
    done = replay(pipeline, spark)
    assert set(done.healed) == set(FOLDERS)
    resume(pipeline)
    pipeline.tick()
    assert_mirrored(pipeline, made)


def test_letters_that_are_accepted_as_lost_are_no_risk_any_more(tmp_path: Path, spark) -> None:
    """G-06: by name, with a reason, once, and in the audit; a replay leaves them alone."""
    pipeline = mirror_of_messages(tmp_path, spark)
    pipeline.deliver("0.jsonl", b'{"topic": "t", "partition": 0, "offset": 9, "value": "{broken"}\n')
    pipeline.tick()
    (letter,) = read_open_letters(pipeline.mirror, pipeline.ledger)
    assert pipeline.reader.mirror().unnamed_rejects == 1
    lost = {letter.at: letter.rows}
    assert accept_letters(pipeline.ledger, pipeline.name, lost, Reason("ann", "a test message")) == 1
    assert accept_letters(pipeline.ledger, pipeline.name, lost, Reason("ann", "a test message")) == 0
    assert pipeline.reader.mirror().unnamed_rejects == 0
    assert replay(pipeline, spark).batch is None
