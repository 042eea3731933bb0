"""Opening a ledger: it has exactly the declared tables, made once, whoever comes first."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.ledger import close_ledgers, open_ledger, opening
from open_mirroring.ledger.declaring import TableDeclaration, declare
from open_mirroring.ledger.tables import metadata

ROOT = Path(__file__).resolve().parents[4]
OPENERS = 4


def differences(ledger: sa.Engine) -> list[Any]:
    """What would have to be migrated to make the ledger what the tables say."""
    with ledger.connect() as db:
        context = MigrationContext.configure(db, opts={"compare_type": True, "compare_server_default": True})
        found: list[Any] = compare_metadata(context, metadata)
    return found


def bare_database(url: str, *statements: str) -> None:
    """A database that somebody else filled."""
    parsed = sa.make_url(url)
    if parsed.get_backend_name() == "sqlite":
        assert parsed.database is not None
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    engine = sa.create_engine(url)
    with engine.begin() as db:
        for statement in statements:
            db.execute(sa.text(statement))
    engine.dispose()


def test_a_new_ledger_has_exactly_the_tables_that_are_declared(ledger_url: str) -> None:
    assert differences(open_ledger(ledger_url)) == []


def test_the_newest_revision_is_noted_right() -> None:
    assert ScriptDirectory.from_config(opening._alembic()).get_current_head() == opening.HEAD


def test_opening_a_ledger_of_this_revision_loads_no_alembic(tmp_path: Path) -> None:
    """Alembic loads slowly. The ledger is made by the first call and found by the second."""
    program = (
        "import sys; from open_mirroring.ledger import open_ledger; "
        "open_ledger(sys.argv[1]); open_ledger(sys.argv[1]); sys.exit('alembic' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program, f"sqlite:///{tmp_path}/ledger.db"], cwd=ROOT, check=True)


def test_a_ledger_of_an_earlier_revision_is_migrated(
    ledger_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first real migration will be the only one: here it is one of the test's own."""
    open_ledger(ledger_url)
    migration = (
        "import sqlalchemy as sa\nfrom alembic import op\n"
        "revision = '0004'\ndown_revision = '0003'\n"
        "def upgrade():\n    op.create_table('later', sa.Column('id', sa.Integer, primary_key=True))\n"
    )
    (tmp_path / "0004_later.py").write_text(migration, encoding="utf-8")
    config = opening._alembic()
    versions = f"{config.get_main_option('script_location')}/versions"
    config.set_main_option("path_separator", "os")
    config.set_main_option("version_locations", f"{versions}{os.pathsep}{tmp_path}")
    monkeypatch.setattr(opening, "_alembic", lambda: config)
    monkeypatch.setattr(opening, "HEAD", "0004")
    for _ in range(2):
        ledger = open_ledger(ledger_url)
    assert [(kind, subject.name) for kind, subject, *_ in differences(ledger)] == [("remove_table", "later")]


def test_a_difference_would_be_found(ledger_url: str) -> None:
    """Otherwise the test above would say nothing."""
    ledger = open_ledger(ledger_url)
    with ledger.begin() as db:
        db.execute(sa.text("ALTER TABLE mirrored_table DROP COLUMN marker_etag"))
        db.execute(sa.text("DROP TABLE document"))
    assert {(kind, getattr(subject, "name", subject)) for kind, subject, *_ in differences(ledger)} == {
        ("add_table", "document"),
        ("add_column", None),
    }


def test_opening_again_changes_nothing(ledger_url: str) -> None:
    first = open_ledger(ledger_url)
    declared = [TableDeclaration("dbo.a", "dbo.schema/a", ("id",), False)]
    ids = declare(first, "m", declared)
    second = open_ledger(ledger_url)
    assert declare(second, "m", declared) == ids
    assert differences(second) == []


def test_threads_that_open_a_new_ledger_at_once_all_succeed(ledger_url: str) -> None:
    start = Barrier(OPENERS)

    def opened(_: int) -> list[Any]:
        start.wait()
        return differences(open_ledger(ledger_url))

    with ThreadPoolExecutor(OPENERS) as pool:
        assert list(pool.map(opened, range(OPENERS))) == [[]] * OPENERS


def test_connections_that_are_the_first_at_once_wait_for_each_other(tmp_path: Path) -> None:
    """SQLite answers *locked* at once, whatever its timeout, to all but one that switch to a write-ahead log."""

    def connect(url: str, together: Barrier) -> str:
        engine = sa.create_engine(url, poolclass=sa.NullPool)
        opening.make_sqlite_transactional(engine)
        together.wait()
        with engine.connect() as connection:
            return str(connection.exec_driver_sql("PRAGMA journal_mode").scalar())

    with ThreadPoolExecutor(OPENERS) as pool:
        for number in range(100):
            url, together = f"sqlite:///{tmp_path / str(number)}.db", Barrier(OPENERS)
            modes = [pool.submit(connect, url, together) for _ in range(OPENERS)]
            assert [mode.result() for mode in modes] == ["wal"] * OPENERS


def test_a_ledger_of_an_unknown_revision_is_refused_and_left_alone(ledger_url: str) -> None:
    ledger = open_ledger(ledger_url)
    with ledger.begin() as db:
        db.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
    for look in (open_ledger, opening.ledger_to_look):
        with pytest.raises(TerminalError, match="LEDGER_UNFIT: the ledger has revision 9999"):
            look(ledger_url)
    with ledger.connect() as db:
        assert db.scalar(sa.text("SELECT version_num FROM alembic_version")) == "9999"


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param(["CREATE TABLE mirror (x INTEGER)"], id="a table of our name"),
        pytest.param(["CREATE TABLE audit (x INTEGER)"], id="another table of our name"),
        pytest.param(
            [
                "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)",
                "INSERT INTO alembic_version VALUES ('5f2621c13b39')",
                "CREATE TABLE dag (dag_id VARCHAR(250))",
            ],
            id="another product that migrates by Alembic",
        ),
    ],
)
def test_a_database_of_something_else_is_refused_and_left_alone(ledger_url: str, statements: list[str]) -> None:
    bare_database(ledger_url, *statements)
    engine = sa.create_engine(ledger_url)
    before = sa.inspect(engine).get_table_names()
    with pytest.raises(TerminalError) as refused:
        open_ledger(ledger_url)
    assert refused.value.code == "LEDGER_UNFIT"
    assert sa.inspect(engine).get_table_names() == before


@pytest.mark.parametrize("content", [b"this is no database at all" * 99, b"SQLite format 3\0" + b"\xff" * 5_000])
def test_a_file_that_is_no_database_is_reported_and_left_alone(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "ledger.db"
    file.write_bytes(content)
    for look in (open_ledger, opening.ledger_to_look):
        with pytest.raises(TerminalError, match=r"LEDGER_DAMAGED.*ledger\.db"):
            look(f"sqlite:///{file}")
    assert file.read_bytes() == content


def test_a_ledger_that_can_only_be_read_is_reported(ledger_url: str, tmp_path: Path) -> None:
    """By a server that takes no writes, such as a standby's, and by a file whose rights are not ours."""
    if ledger_url.startswith("postgresql"):
        with pytest.raises(TerminalError, match=r"ACCESS_DENIED.*25006") as denied:
            open_ledger(f"{ledger_url}%20-c%20default_transaction_read_only%3Don")
        assert str(sa.make_url(ledger_url).password) not in str(denied.value)
        return
    bare_database(ledger_url)
    file = sa.make_url(ledger_url).database
    engine = sa.create_engine(f"sqlite:///file:{file}?mode=ro&uri=true")
    with pytest.raises(sa.exc.OperationalError) as raised, engine.begin() as db:
        db.execute(sa.text("CREATE TABLE canary (x INTEGER)"))
    story = opening.ledger_error(raised.value)
    assert isinstance(story, TerminalError) and story.code == "ACCESS_DENIED" and "canary" not in str(story)


def test_a_ledger_whose_disk_is_full_is_reported_and_passes() -> None:
    """S-26: SQLite's own limit of pages answers as a disk does that has no room."""
    engine = sa.create_engine("sqlite://")
    with pytest.raises(sa.exc.OperationalError) as raised, engine.begin() as db:
        db.exec_driver_sql("PRAGMA max_page_count = 2")
        db.exec_driver_sql("CREATE TABLE filled (x BLOB)")
        db.exec_driver_sql("INSERT INTO filled VALUES (zeroblob(100000))")
    story = opening.ledger_error(raised.value, "ledger.db")
    assert (
        isinstance(story, TransientError)
        and str(story).startswith("DISK_FULL: ")
        and "SQLITE_FULL (ledger.db)" in str(story)
    )


def test_a_kept_ledger_is_complete_in_its_file_once_it_is_closed(tmp_path: Path) -> None:
    """Whoever copies the file between two commands has everything; the next command finds it again."""
    url, log_of_writes = f"sqlite:///{tmp_path}/ledger.db", tmp_path / "ledger.db-wal"
    kept = open_ledger(url, keep=True)
    assert log_of_writes.exists() and kept.pool.checkedin() == 1
    close_ledgers()
    assert not log_of_writes.exists()
    assert open_ledger(url, keep=True) is kept
    assert differences(kept) == []
    close_ledgers()


def test_a_ledger_that_is_not_kept_has_no_open_connection(tmp_path: Path) -> None:
    open_ledger(f"sqlite:///{tmp_path}/ledger.db")
    assert not (tmp_path / "ledger.db-wal").exists()


def test_few_ledgers_are_kept(tmp_path: Path) -> None:
    first = open_ledger(f"sqlite:///{tmp_path}/0.db", keep=True)
    for number in range(1, opening._MOST_KEPT + 1):
        open_ledger(f"sqlite:///{tmp_path}/{number}.db", keep=True)
    assert not (tmp_path / "0.db-wal").exists()
    assert open_ledger(f"sqlite:///{tmp_path}/0.db", keep=True) is not first
    close_ledgers()
