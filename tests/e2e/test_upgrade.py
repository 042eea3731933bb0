"""Ledger and change log of an earlier version go on under this one."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command

from open_mirroring.ledger import tables as t
from open_mirroring.ledger.opening import _alembic, pending_migrations
from open_mirroring.operate.exit_codes import Exit
from tests.ces_messages import event
from tests.e2e.test_lost_ledger import forget, published, said
from tests.e2e.test_rebuild_ledger import APPLY
from tests.e2e.test_reload_table import deliver, orders, row
from tests.pipeline import Pipeline

EARLIER = "0011"
"""Before proofs, versions of files, and the places of column lists."""


def make_earlier(pipeline: Pipeline) -> None:
    """The ledger as an earlier version would have it: what it had no table or column for is not there."""
    newer = pipeline.folder / "newer.db"
    pipeline.ledger.dispose()
    for file in pipeline.folder.glob("ledger.db*"):
        file.rename(str(file).replace("ledger.db", "newer.db"))
    engine = sa.create_engine(pipeline.mirror.ledger_url())
    config = _alembic()
    with engine.begin() as db:
        config.attributes["connection"] = db
        command.upgrade(config, EARLIER)
    earlier = sa.MetaData()
    earlier.reflect(engine)
    with sa.create_engine(f"sqlite:///{newer}").connect() as source, engine.begin() as db:
        for table in earlier.sorted_tables:
            if table.name != "alembic_version":
                # The columns as they were then, read and written as plain text and numbers.
                names = ",".join(f'"{column.name}"' for column in table.c)
                values = ",".join(f":v{at}" for at in range(len(table.c)))
                into = sa.text(f"INSERT INTO {table.name} ({names}) VALUES ({values})")
                for one in source.execute(sa.text(f"SELECT {names} FROM {table.name}")):
                    db.execute(into, {f"v{at}": value for at, value in enumerate(one)})
    engine.dispose()
    # And no batch of it left a record beside its rows.
    shutil.rmtree(pipeline.log / "_batches")


def test_a_mirror_of_an_earlier_version_goes_on(tmp_path: Path, spark: Any, capsys: Any) -> None:
    """`upgrade --check` tells the steps and takes none; `upgrade` does, and the next run publishes what is new."""
    pipeline = published(tmp_path, spark)
    make_earlier(pipeline)
    steps = pending_migrations(pipeline.mirror.ledger_url())
    assert steps and steps[0].revision > EARLIER and all(step.what for step in steps)
    code, text = said(capsys, pipeline, "upgrade", "--check")
    assert code == Exit.DONE and "nothing was changed" in text and "2 batches have no record" in text, text
    assert [f"ledger: {step.revision}: {step.what}" in text for step in steps] == [True] * len(steps)
    assert pending_migrations(pipeline.mirror.ledger_url()) == steps
    code, text = said(capsys, pipeline, "upgrade")
    assert code == Exit.DONE and f"done: {len(steps)} steps of the ledger, 2 records" in text, text
    assert "nothing to do" in said(capsys, pipeline, "upgrade", "--check")[1]

    deliver(pipeline, "3.jsonl", event("UPD", row(1, "Ida"), row(1, "Ada"), commit=20))
    pipeline.tick()
    assert [one["name"] for one in orders(pipeline)] == ["Ida", "Eve"]
    assert said(capsys, pipeline, "reconcile")[0] == Exit.DONE
    forget(pipeline)
    assert said(capsys, pipeline, "rebuild-ledger", *APPLY)[0] == Exit.DONE, "the records that it wrote are enough"
    deliver(pipeline, "4.jsonl", event("UPD", row(2, "Fay"), row(2, "Eve"), commit=30))
    pipeline.tick()
    assert [one["name"] for one in orders(pipeline)] == ["Ida", "Fay"]


def test_an_upgrade_tells_of_batches_that_no_record_can_be_written_of(tmp_path: Path, spark: Any, capsys: Any) -> None:
    """G-80: what maintenance dropped before there were records is not known: then only a backup is left."""
    pipeline = published(tmp_path, spark)
    shutil.rmtree(pipeline.log / "_batches")
    with pipeline.ledger.begin() as db:
        now = datetime.now(UTC)
        horizon = {"mirror": pipeline.mirror.name, "batch": 1, "at": now, "dropped": 1, "moved_at": now}
        db.execute(t.mirror_horizon.insert().values(horizon))
    code, text = said(capsys, pipeline, "upgrade")
    assert code == Exit.DONE and "1 records" in text, text
    assert "of 1 batches" in text and "back up the ledger" in text, text
    code, text = said(capsys, pipeline, "upgrade", "--check")
    assert "nothing to do" in text and "of 1 batches" in text, text


def test_an_upgrade_says_that_the_ledger_is_lost_g_31(tmp_path: Path, spark: Any, capsys: Any) -> None:
    """G-31: it begins no ledger beside what was published, and never says that there is nothing to do."""
    pipeline = published(tmp_path, spark)
    forget(pipeline)
    for more in (["--check"], []):
        code, text = said(capsys, pipeline, "upgrade", *more)
        assert code == Exit.TERMINAL and "LEDGER_LOST" in text, text
        assert not list(pipeline.folder.glob("ledger.db*")), "looking creates nothing"
