"""The command line: what it prints, what it refuses, its exit codes; all that needs no JVM."""

from __future__ import annotations

import base64
import json
import os
import pwd
import re
import sqlite3
import stat
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError, OperationalError

from open_mirroring.changes.manifest import Manifest
from open_mirroring.config import Mirror
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.documents import VERDICTS
from open_mirroring.operate.exit_codes import Exit
from open_mirroring.operate.mirror_view import MirrorView
from open_mirroring.operate.viewing import view_mirror
from open_mirroring.reconciliation import inspection
from open_mirroring.reconciliation.losses import look
from spark_jobs.changelog.change_log import ChangeLog
from spark_jobs.changelog.schema import CHANGE, REJECTED, LogRow
from spark_jobs.changelog.writing import LogWriter
from spark_jobs.cli import command_line, looking, tick
from spark_jobs.cli.command_line import main
from spark_jobs.cli.reporting import WIDTH, proved_text, tick_text
from spark_jobs.cli.status_text import colours_wanted, status_text
from spark_jobs.cli.tick import Ticked
from spark_jobs.extract_changes import Extracted
from spark_jobs.publish.changes import Published
from tests.hand_made_mirror import GUID, MIRROR_FILE, HandMadeMirror

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[4]
LOW = "0000000A:01:1"


def status_of_mirror(made: HandMadeMirror) -> MirrorView:
    return view_mirror(made.mirror, made.ledger, datetime.now(UTC), findings={})


class Ran:
    """One command run in this process: exit code and what it printed."""

    def __init__(self, capsys: pytest.CaptureFixture[str], *argv: object) -> None:
        capsys.readouterr()
        try:
            self.code: int | str | None = main([str(argument) for argument in argv])
        except SystemExit as ended:
            self.code = ended.code
        self.out, self.err = capsys.readouterr()

    @property
    def json(self) -> Any:
        return json.loads(self.out)


# --- check ------------------------------------------------------------------------------------------------------

BROKEN = """\
mirror: Shop
source: {format: sqlserver-ces, transport: capture}
landing_zone: {store: local, path: zone}
ledger: sqlite:///ledger.db
change_log: log
tables:
  - {source: dbo.orders, target: dbo/orders, keys: [order_id]}
schedule: every day
"""


def test_check_reports_every_mistake_at_once_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(BROKEN, encoding="utf-8")
    ran = Ran(capsys, "check", file)
    assert ran.code == Exit.USAGE
    found = {line.removeprefix(f"{file}:").partition(":")[0] for line in ran.err.splitlines() if str(file) in line}
    assert found == {"1", "2", "7", "8"}
    assert "did you mean 'key'?" in ran.err
    assert "Traceback" not in ran.err and ran.out == ""


def test_check_of_a_right_file_on_a_ready_machine_says_ok_and_creates_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mirrors" / "shop.yaml"
    file.parent.mkdir()
    file.write_text(MIRROR_FILE, encoding="utf-8")
    missing = Ran(capsys, "check", file)
    assert missing.code == Exit.USAGE
    assert f"{file}:2: PLACE_MISSING" in missing.out
    (tmp_path / "source").mkdir()
    ran = Ran(capsys, "check", file)
    assert ran.code == Exit.DONE
    assert ran.out.splitlines()[0] == f"{file}: OK"
    assert "2 tables" in ran.out
    assert "a transaction may show in parts" in ran.out, "the weaker promise is named"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mirrors", "source"]


def test_check_of_a_folder_finds_mirrors_that_get_in_each_others_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(MIRROR_FILE.replace("shop", name), encoding="utf-8")
    ran = Ran(capsys, "check", tmp_path)
    assert ran.code == Exit.USAGE
    assert "MIRROR_CLASH" in ran.err
    (tmp_path / "empty").mkdir()
    assert Ran(capsys, "check", tmp_path / "empty").code == Exit.USAGE


# --- doctor -----------------------------------------------------------------------------------------------------


def test_the_doctor_shows_the_next_step_of_whatever_is_wrong(
    made: HandMadeMirror, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def examined() -> dict[str, dict[str, Any]]:
        return {one["what"]: one for one in Ran(capsys, "doctor", made.file, "--json").json}

    sound = examined()
    assert all(sound[what]["sound"] for what in ("versions", "spark", "mirror shop", "ledger of shop"))
    made.commit(1, {}, at=datetime.now(UTC) + timedelta(hours=3))
    assert "apart" in examined()["clock compared with the ledger of shop"]["found"]
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    for said, is_sound in (('openjdk version "1.8.0_402"', False), ('openjdk version "21-ea"', True), ("", False)):
        java.write_text(f"#!/bin/sh\necho '{said}' >&2\n", encoding="utf-8")
        java.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        assert examined()["java"]["sound"] is is_sound
    with monkeypatch.context() as joining:
        joining.setenv("SPARK_REMOTE", "sc://server:15002/;token=canary-7f3a")
        over_connect = examined()
        assert "sc://server:15002/," in over_connect["spark connect"]["found"] and "java" not in over_connect
    assert "canary-7f3a" not in str(over_connect)
    with made.ledger.begin() as db:
        db.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    ran = Ran(capsys, "doctor", made.file)
    assert ran.code == Exit.USAGE and ran.out.count("LEDGER_UNFIT") == 1 and "  Fix: install" in ran.out
    checked = Ran(capsys, "check", made.file)
    assert checked.code == Exit.USAGE and "LEDGER_UNFIT: ledger: " in checked.out
    assert "need an operator.\nFAIL" in ran.out
    assert Ran(capsys, "doctor", tmp_path / "none.yaml").code == Exit.USAGE


def test_a_check_shows_a_ledger_that_is_damaged(made: HandMadeMirror, capsys: pytest.CaptureFixture[str]) -> None:
    """Its header is sound, so that SQLite opens it."""
    made.ledger.dispose()
    with Path(made.ledger.url.database or "").open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 3996)
    ran = Ran(capsys, "check", made.file)
    assert ran.code == Exit.USAGE and ran.out.count("LEDGER_DAMAGED: ledger: ") == 1
    assert Ran(capsys, "doctor", made.file).out.count("LEDGER_DAMAGED") == 1


@pytest.mark.parametrize("other", ["4.99.1", "4.0.5"])
def test_the_doctor_shows_two_versions_of_spark_and_the_command_that_makes_them_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, other: str
) -> None:
    """Registries have versions of pyspark that no client belongs to, and a plain installation brings both."""
    story = tmp_path / f"pyspark-{other}.dist-info"
    story.mkdir()
    (story / "METADATA").write_text(f"Metadata-Version: 2.1\nName: pyspark\nVersion: {other}\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    ran = Ran(capsys, "doctor")
    client = version("pyspark-client")
    assert ran.code == Exit.USAGE and f"FAIL  spark: pyspark {other}, pyspark-client {client}" in ran.out
    assert f"--no-deps 'pyspark=={client}' 'pyspark-client=={client}'" in ran.out


def test_the_doctor_shows_how_near_the_last_day_is_to_what_the_target_takes_f_91(
    made: HandMadeMirror, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files of a day ago do not count, those of a generation that ended do."""

    def published(number: int, generation: int, size: int, hours_ago: int) -> dict[str, Any]:
        with made.ledger.begin() as db:
            table_id = db.execute(sa.select(t.mirrored_table.c.id).limit(1)).scalar_one()
            texts = dict.fromkeys(("etag", "digest", "first_position", "last_position", "kind"), "x")
            at = datetime.now(UTC) - timedelta(hours=hours_ago)
            place = {"table_id": table_id, "generation": generation, "number": number, "confirmed_at": at}
            db.execute(
                sa.insert(t.published_file).values(**place, **texts, size=size, rows=1, batch_from=0, batch_to=1)
            )
        found = Ran(capsys, "doctor", made.file, "--json").json
        return next(one for one in found if one["what"] == "published by shop in 24 hours")

    assert published(1, 1, 9 * 10**12, hours_ago=25)["sound"]
    assert published(2, 1, 5 * 10**11, hours_ago=23)["sound"]
    full = published(1, 2, 4 * 10**11, hours_ago=1)
    assert not full["sound"] and "takes on one day" in full["found"] and "divide the tables" in full["next_step"]


# --- status -----------------------------------------------------------------------------------------------------


def test_status_before_the_first_run_says_so_and_creates_no_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mirrors" / "shop.yaml"
    file.parent.mkdir()
    file.write_text(MIRROR_FILE, encoding="utf-8")
    said = f"mirror shop: nothing has run yet; there is no ledger at sqlite:///{tmp_path}/ledger.db\n"
    status = Ran(capsys, "status", file)
    assert status.code == Exit.DONE and status.out.startswith(said), "the path may be mistyped"
    home = f"  home          {tmp_path}, where relative paths start; OPEN_MIRRORING_HOME names another folder"
    assert home in status.out.splitlines()
    letters = Ran(capsys, "dead-letters", file)
    assert (letters.code, letters.err) == (Exit.DONE, status.out)
    document = Ran(capsys, "status", file, "--json").json
    assert (document["started"], document["tables"]) == (False, [])
    assert document["places"]["ledger"] == f"sqlite:///{tmp_path}/ledger.db"
    assert Ran(capsys, "resume", file, "--table", "dbo.orders", "--why", "x").code == Exit.TERMINAL
    assert [path.name for path in tmp_path.iterdir()] == ["mirrors"]


def test_status_shows_every_table_and_3_says_that_one_is_stopped(
    made: HandMadeMirror, capsys: pytest.CaptureFixture[str]
) -> None:
    made.accept("dbo.orders", GUID, 0)
    made.commit(1, {"dbo.orders": (3, LOW)})
    ran = Ran(capsys, "status", made.file, "--wide")
    assert ran.code == Exit.DONE
    assert f"0:{LOW}" in ran.out and "none: this source" not in ran.out
    made.stop("dbo.orders", "PARTIAL_ROWS", "2 of 3 columns")
    stopped = Ran(capsys, "status", made.file)
    assert stopped.code == Exit.TABLES_STOPPED
    assert "Stopped: PARTIAL_ROWS\n    dbo.orders: 2 of 3 columns (since 2026-01-05 09:00 UTC)\n" in stopped.out
    document = Ran(capsys, "status", made.file, "--json").json
    assert {table["source"]: table["verdict"] for table in document["tables"]} == {
        "dbo.customers": "PASS",
        "dbo.orders": "STOP",
    }


def test_status_says_first_whether_all_is_well_and_fits_a_terminal(
    made: HandMadeMirror, capsys: pytest.CaptureFixture[str]
) -> None:
    made.accept("dbo.orders", GUID, 0)
    made.commit(1, {"dbo.orders": (3, LOW)}, at=datetime.now(UTC) - timedelta(minutes=2))
    assert Ran(capsys, "status", made.file).out.splitlines()[0] == (
        "shop: 2 of 2 tables mirrored, lag 2 min; last logged 2 min ago"
    )
    made.stop("dbo.orders", "SENDER_OTHER", "another one sends \x1b[2J")
    first, *rest = Ran(capsys, "status", made.file).out.splitlines()
    assert first.startswith("shop: 1 of 2 tables mirrored, 1 stopped")
    at = rest.index("Needs attention")
    assert rest[at + 1] == "  Stopped: SENDER_OTHER" and rest[at + 3].startswith("    Fix: ")
    assert rest[at + 2].startswith("    dbo.orders: another one sends \\x1b[2J (since ")
    assert [line.split() for line in rest if line.startswith("dbo.orders ")] == [
        ["dbo.orders", "stopped", "2", "min", "3", "0", "0"]
    ]
    state = status_of_mirror(made)
    first_table = state.tables[0]
    long = replace(first_table, state=first_table.state._replace(source="dbo." + "a_rather_long_name" * 12))
    state = replace(state, tables=(long, *state.tables[1:]))
    table = status_text(state).partition("\n\n")[2].partition("\n\n")[0]
    assert max(map(len, table.splitlines())) <= 100 and "…" in table


def test_colours_are_for_terminals_only(made: HandMadeMirror, monkeypatch: pytest.MonkeyPatch) -> None:
    made.stop("dbo.orders", "SENDER_OTHER")
    plain, painted = (status_text(status_of_mirror(made), coloured=on) for on in (False, True))
    assert "\x1b" not in plain and re.sub(r"\x1b\[[0-9;]*m", "", painted) == plain and painted != plain
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not colours_wanted()


def test_a_command_is_run_again_and_again(
    made: HandMadeMirror, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error ends no watch: the next round tries again."""
    slept = list[float]()

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        made.file.write_text("mirror: [" if len(slept) == 1 else MIRROR_FILE, encoding="utf-8")
        if len(slept) == 3:
            raise KeyboardInterrupt

    # Only the command's own clock: other threads of the session sleep, too, and what they wait for ends no watch.
    monkeypatch.setattr(command_line, "time", SimpleNamespace(sleep=sleep, monotonic=time.monotonic))
    ran = Ran(capsys, "status", made.file, "--watch", "2m")
    assert ran.code == 130 and len(slept) == 3 and all(100 < length <= 120 for length in slept)
    assert ran.out.count("shop: 2 of 2 tables mirrored") == 2 and "CONFIG_INVALID" in ran.err
    for wrong in ("0", "5x", "-1"):
        assert Ran(capsys, "tick", made.file, f"--every={wrong}").code == Exit.USAGE


def test_a_misspelled_command_and_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = Ran(capsys, "statsu", "x.yaml")
    assert wrong.code == Exit.USAGE and "invalid choice: 'statsu'" in wrong.err and "'status'" in wrong.err
    version = Ran(capsys, "--version")
    assert version.code == 0 and re.fullmatch(r"open-mirroring \d+\.\d+\.\d+\n", version.out)


def test_status_looks_and_records_no_verdict(made: HandMadeMirror, capsys: pytest.CaptureFixture[str]) -> None:
    assert Ran(capsys, "status", made.file).code == Exit.DONE
    with made.ledger.connect() as db:
        assert VERDICTS.of_each(db, made.ids.values()) == {}


def test_status_of_a_file_that_no_longer_fits_the_ledger_shows_what_the_ledger_knows(
    made: HandMadeMirror, capsys: pytest.CaptureFixture[str]
) -> None:
    made.file.write_text(MIRROR_FILE.replace("key: [order_id]", "key: [other]"), encoding="utf-8")
    made.stop("dbo.customers", "FILE_MISSING", "number 3 is missing")
    made.set_table("dbo.orders", established=True)
    ran = Ran(capsys, "status", made.file)
    assert ran.code == Exit.TABLES_STOPPED
    assert "TABLE_REDECLARED" in ran.out and "number 3 is missing" in ran.out


@pytest.mark.parametrize("words", [["status"], ["resume", "--table", "dbo.orders", "--why", "x", "--request", "1"]])
def test_looking_and_deciding_load_no_spark(made: HandMadeMirror, words: list[str]) -> None:
    if words[0] == "resume":
        made.stop("dbo.orders", "PARTIAL_ROWS")
    program = (
        "import sys; from spark_jobs.cli.command_line import main\n"
        f"code = main([{words[0]!r}, {str(made.file)!r}, *{words[1:]!r}])\n"
        "sys.exit(code or any(name.split('.')[0] == 'pyspark' for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")


# --- decisions --------------------------------------------------------------------------------------------------


def test_resume_clears_the_stop_says_what_is_next_and_records_the_operator(
    made: HandMadeMirror, capsys: pytest.CaptureFixture[str]
) -> None:
    made.stop("dbo.orders", "PARTIAL_ROWS", "2 of 3 columns")
    ran = Ran(capsys, "resume", made.file, "--table", "dbo.orders", "--why", "all columns are sent now")
    assert ran.code == Exit.DONE
    assert ran.out.splitlines() == [
        "Cleared: PARTIAL_ROWS: 2 of 3 columns",
        "Now: PASS OK: no rows yet: the target gets the table with its first row.",
    ]
    [(_, event, detail)] = made.audit()
    user = pwd.getpwuid(os.getuid()).pw_name
    assert (event, detail["who"], detail["why"]) == ("RESUMED", user, "all columns are sent now")


def test_the_operators_name_is_not_taken_from_the_environment(
    made: HandMadeMirror, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("USER", "LOGNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")
    made.set_mirror(stop_code="LOG_CONFLICT", stop_what="other files")
    assert Ran(capsys, "resume-extraction", made.file, "--why", "the right log is back").code == Exit.DONE
    assert made.audit()[0][2]["who"] != "somebody-else"
    assert made.reader.mirror().stop_code is None


def test_resume_says_when_the_cause_is_still_there(made: HandMadeMirror, capsys: pytest.CaptureFixture[str]) -> None:
    """I23: a foreign item keeps the table stopped, whatever the ledger's stop was."""
    folder = made.file.parents[1] / "zone" / "dbo.schema" / "orders"
    folder.mkdir(parents=True)
    (folder / "copy of 1.parquet").write_bytes(b"x")
    made.stop("dbo.orders", "PARTIAL_ROWS")
    ran = Ran(capsys, "resume", made.file, "--table", "dbo.orders", "--why", "x")
    assert ran.code == Exit.TABLES_STOPPED
    assert "Now: STOP FOREIGN_ITEM" in ran.out and "Next step:" in ran.out


def test_accept_reload_of_a_table_that_no_run_knows_is_refused(
    made: HandMadeMirror, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table that was added to the mirror file is unknown to the ledger until the next run."""
    source = "source: {format: qlik-message, transport: files, path: source}"
    added = "  - {source: dbo.items, target: dbo/items, key: [item_id]}\n"
    made.file.write_text(re.sub(r"source: \{.*", source, MIRROR_FILE, count=1) + added, encoding="utf-8")
    ran = Ran(capsys, "accept-reload", made.file, "--table", "dbo.items", "--why", "it was loaded")
    assert ran.code == Exit.TERMINAL and "ARGUMENT_INVALID" in ran.err


@pytest.mark.parametrize("why", [[], ["--why", " "]])
def test_a_decision_without_a_reason_is_refused(
    made: HandMadeMirror, capsys: pytest.CaptureFixture[str], why: list[str]
) -> None:
    made.stop("dbo.orders", "PARTIAL_ROWS")
    assert Ran(capsys, "resume", made.file, "--table", "dbo.orders", *why).code == Exit.USAGE
    assert made.table("dbo.orders").stop_code == "PARTIAL_ROWS"


# --- dead letters -----------------------------------------------------------------------------------------------

SECRET = b'{"card": "4111-1111"} \xff'


def commit_log(made: HandMadeMirror, batch: int, rows: list[LogRow]) -> None:
    root = made.mirror.resolve(made.mirror.change_log)
    writer = LogWriter(root, batch, f"{batch:032x}", 0)
    writer.add(rows)
    rejected = sum(row.kind == REJECTED for row in rows)
    manifest = Manifest(files=writer.finish().files, counts={"rejected": rejected})
    log = ChangeLog(root, "shop")
    log.open(batch, manifest, manifest.to_json())
    log.commit(batch, manifest)
    made.commit(batch, {})
    with made.ledger.begin() as db:
        db.execute(t.log_batch.update().where(t.log_batch.c.number == batch).values(manifest=manifest.to_json()))


@pytest.fixture
def with_letters(made: HandMadeMirror) -> HandMadeMirror:
    unreadable = LogRow(REJECTED, "a.jsonl", 7, code="JSON_INVALID", reason="no JSON", raw=SECRET)
    untyped = {"epoch": GUID, "pos": LOW, "op": "U", "key": "[1]", "cols": "[]", "row": '{"n":"4111-1111"}'}
    commit_log(made, 1, [unreadable, LogRow(CHANGE, "a.jsonl", 8, tbl="dbo.orders", bucket=1, **untyped)])
    commit_log(made, 2, [unreadable._replace(origin="b.jsonl", place=1, tbl="dbo.orders", epoch=GUID, pos=LOW)])
    made.insert(
        t.rejected_change,
        table_id=made.ids["dbo.orders"],
        **{"epoch": GUID, "pos": LOW, "key": "[1]", "key_digest": "d", "batch": 1},
        **{"code": "VALUE_INVALID", "reason": "column 'n' (int): no number", "origin": "a.jsonl", "place": 8},
    )
    return made


def test_dead_letters_of_both_kinds_are_listed_newest_first_without_their_contents(
    with_letters: HandMadeMirror, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = Ran(capsys, "dead-letters", with_letters.file, "--json")
    assert ran.code == Exit.DONE
    found = [(one["batch"], one["kind"], one["origin"], one["place"], one["code"]) for one in ran.json["dead_letters"]]
    assert found == [
        (2, "unreadable", "b.jsonl", 1, "JSON_INVALID"),
        (1, "unreadable", "a.jsonl", 7, "JSON_INVALID"),
        (1, "untyped", "a.jsonl", 8, "VALUE_INVALID"),
    ]
    assert ran.json["dead_letters"][0]["position"] == f"{GUID} {LOW}"
    text = Ran(capsys, "dead-letters", with_letters.file)
    assert "a.jsonl:8" in text.out and "column 'n' (int): no number" in text.out
    assert "\nVALUE_INVALID\n" in text.out and "\n  Fix: compare the value" in text.out
    assert "4111" not in ran.out + text.out


def test_the_limit_keeps_the_newest_and_says_that_there_are_more(
    with_letters: HandMadeMirror, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = Ran(capsys, "dead-letters", with_letters.file, "--limit", 1)
    assert "b.jsonl:1" in ran.out and "a.jsonl" not in ran.out
    assert "There are more" in ran.out
    assert "There are more" not in Ran(capsys, "dead-letters", with_letters.file, "--limit", 3).out
    assert Ran(capsys, "dead-letters", with_letters.file, "--limit", 0).code == Exit.USAGE


def test_raw_contents_go_into_a_new_file_of_the_operator_alone(
    with_letters: HandMadeMirror, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "letters.jsonl"
    ran = Ran(capsys, "dead-letters", with_letters.file, "--raw", file)
    assert ran.code == Exit.DONE and "4111" not in ran.out + ran.err
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    by_place = {(line["origin"], line["place"]): line for line in lines}
    assert base64.b64decode(by_place["a.jsonl", 7]["raw"]) == SECRET
    assert base64.b64decode(by_place["b.jsonl", 1]["raw"]) == SECRET
    assert by_place["a.jsonl", 8]["row"] == '{"n":"4111-1111"}'
    assert len(lines) == 3
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = Ran(capsys, "dead-letters", with_letters.file, "--raw", file)
    assert again.code == Exit.TERMINAL and "ARGUMENT_INVALID" in again.err


def test_a_mirror_without_dead_letters_says_so(made: HandMadeMirror, capsys: pytest.CaptureFixture[str]) -> None:
    assert Ran(capsys, "dead-letters", made.file).out == "no dead letters\n"


# --- documents --------------------------------------------------------------------------------------------------


def test_schema_prints_the_published_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert Ran(capsys, "schema").out == (ROOT / "docs" / "mirror.schema.json").read_text(encoding="utf-8")


# --- errors and exit codes --------------------------------------------------------------------------------------


def not_a_database() -> sqlite3.Error:
    error = sqlite3.DatabaseError("secret")
    error.sqlite_errorname = "SQLITE_NOTADB"
    return error


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (TerminalError("BAD", "it is bad", next_step="mend it"), Exit.TERMINAL, "BAD: it is bad. Next step: mend it"),
        (TransientError("LATER", "not now"), Exit.TRANSIENT, "LATER: not now"),
        (OperationalError("SELECT secret", {}, Exception("gone")), Exit.TRANSIENT, "UNREACHABLE"),
        (DatabaseError("SELECT secret", {}, not_a_database()), Exit.TERMINAL, "LEDGER_DAMAGED"),
        (KeyboardInterrupt(), 130, "interrupted; the next run goes on from here"),
    ],
)
def test_an_error_is_one_text_and_its_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, text: str
) -> None:
    def fail(_: object) -> Exit:
        raise error

    monkeypatch.setattr(looking, "schema", fail)
    ran = Ran(capsys, "schema")
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith(f"open-mirroring: {text}") and "Traceback" not in ran.err and "secret" not in ran.err
    if not isinstance(error, KeyboardInterrupt):
        with pytest.raises(type(error)):
            main(["schema", "--debug"])


def test_a_command_without_spark_shows_its_errors_where_none_is_installed() -> None:
    """Without the extra [spark] there is neither pyspark nor py4j."""
    program = """
import sys
sys.modules["pyspark"] = sys.modules["py4j"] = None
from sqlalchemy.exc import OperationalError
from spark_jobs.cli import looking
from spark_jobs.cli.command_line import main
def gone(_):
    raise OperationalError("SELECT secret", {}, Exception("gone"))
looking.schema = gone
sys.exit(main(["schema"]))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == Exit.TRANSIENT and done.stderr.startswith("open-mirroring: UNREACHABLE"), done


def test_unknown_tables_are_a_usage_error_before_anything_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mirrors" / "shop.yaml"
    file.parent.mkdir()
    file.write_text(MIRROR_FILE, encoding="utf-8")
    ran = Ran(capsys, "tick", file, "--tables", "dbo.orders,dbo.nothing")
    assert ran.code == Exit.USAGE
    assert "'dbo.nothing'" in ran.err and "dbo.customers" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["mirrors"]


NOTHING = Ticked(Extracted(None, {}, ()), {}, {}, {}, ())
READ = NOTHING._replace(read=Extracted(1, {}, ()))
FILE = Path("mirrors/shop.yaml")
HELD = {"dbo.a": "BACKLOG: behind"}


@pytest.mark.parametrize(
    ("ticked", "code"),
    [
        (NOTHING, Exit.DONE),
        (READ._replace(files={"dbo.a": [1]}), Exit.DONE),
        (READ._replace(awaited=["half a line"]), Exit.DONE),
        (NOTHING._replace(awaited=["half a line"]), Exit.ON_HOLD),
        (READ._replace(awaited=["a piece"], lacking=True), Exit.ON_HOLD),
        (NOTHING._replace(stopped={"dbo.a": "FILE_MISSING: x"}, files={"dbo.b": [1]}), Exit.TABLES_STOPPED),
        (NOTHING._replace(held=HELD, waiting=["dbo.a"]), Exit.ON_HOLD),
        (NOTHING._replace(held=HELD, waiting=[]), Exit.DONE),
        (NOTHING._replace(held=HELD, waiting=["dbo.a", "dbo.b"]), Exit.ON_HOLD),
        (NOTHING._replace(held=HELD, waiting=["dbo.b"]), Exit.DONE),
        (NOTHING._replace(held=HELD, waiting=["dbo.a"], files={"dbo.b": [1]}), Exit.ON_HOLD),
        (NOTHING._replace(held={"dbo.a": "LOAD_PENDING: x"}, waiting=["dbo.a"], files={"dbo.b": [1]}), Exit.ON_HOLD),
        (NOTHING._replace(reloading=["dbo.a"], files={"dbo.b": [1]}), Exit.ON_HOLD),
        (NOTHING._replace(held=HELD, waiting=["dbo.a"], stopped={"dbo.b": "FILE_MISSING: x"}), Exit.TABLES_STOPPED),
        (NOTHING._replace(failed=TerminalError("X", "x"), files={"dbo.b": [1]}), Exit.TERMINAL),
        (NOTHING._replace(failed=TransientError("X", "x"), stopped={"dbo.b": "FILE_MISSING: x"}), Exit.TRANSIENT),
    ],
)
def test_a_ticks_exit_code_says_the_worst_of_it(ticked: Ticked, code: Exit) -> None:
    """G-139: a table that is not there, or not all of it, holds whatever else was done."""
    assert ticked.exit is code
    assert ticked.document()["exit"] == code


def test_what_was_read_before_is_published_although_reading_fails(
    made: HandMadeMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise TransientError("UNREACHABLE", "not now")

    monkeypatch.setattr(tick, "extract", fail)
    monkeypatch.setattr(tick, "publish_and_follow", lambda *_: (Published({"dbo.orders": [1]}, {}, {}), {}))
    ticked = tick.tick(made.mirror, made.ledger, cast("SparkSession", None))
    assert (ticked.files, ticked.exit) == ({"dbo.orders": [1]}, Exit.TRANSIENT)


def test_a_tick_asks_once_at_its_end_what_tables_lack(made: HandMadeMirror, monkeypatch: pytest.MonkeyPatch) -> None:
    made.letter(1, "dbo.orders")
    asked: list[Mirror] = []
    monkeypatch.setattr(tick, "extract", lambda *_: Extracted(None, {}, ()))
    monkeypatch.setattr(tick, "publish_and_follow", lambda *_: (Published({}, {}, {}), {}))
    monkeypatch.setattr(
        tick, "look", lambda mirror, ledger, **more: asked.append(mirror) or look(mirror, ledger, **more)
    )
    monkeypatch.setattr(inspection, "look", lambda *_: pytest.fail("the inspection asked again"))
    ticked = tick.tick(made.mirror, made.ledger, cast("SparkSession", None))
    assert (list(ticked.losses), ticked.document()["dead_letters"]["open"], len(asked)) == (["dbo.orders"], 1, 1)


def test_a_mirror_whose_reading_is_stopped_publishes_nothing(
    made: HandMadeMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LOG_CONFLICT: ledger and log do not belong together, so what the log has is not to be trusted."""
    made.set_mirror(stop_code="LOG_CONFLICT", stop_what="other files")
    monkeypatch.setattr(tick, "publish_and_follow", lambda *_: pytest.fail("it published"))
    with pytest.raises(TerminalError) as caught:
        tick.tick(made.mirror, made.ledger, cast("SparkSession", None))
    assert caught.value.code == "LOG_CONFLICT"


def test_what_a_later_run_says_of_a_table_takes_the_place_of_what_an_earlier_one_said() -> None:
    first = Published(
        {"dbo.a": [1], "dbo.b": [4]}, {"dbo.a": "RESET_OPEN", "dbo.c": "BACKLOG"}, {"dbo.a": "FILE_MISSING: x"}
    )
    both = first.followed_by(Published({"dbo.a": [2]}, {}, {}), ["dbo.a"])
    assert both == Published({"dbo.a": [1, 2], "dbo.b": [4]}, {"dbo.c": "BACKLOG"}, {})


def test_a_tick_that_did_nothing_says_so() -> None:
    assert "Nothing to do" in tick_text(NOTHING, FILE)
    assert "Nothing to do" not in tick_text(NOTHING._replace(held=HELD, waiting=["dbo.a"]), FILE)
    assert "On hold: dbo.a: BACKLOG: behind" in tick_text(NOTHING._replace(held=HELD, waiting=["dbo.a"]), FILE)
    failed = NOTHING._replace(failed=TerminalError("SOURCE_GONE", "it is gone"))
    assert "Read: FAILED, SOURCE_GONE: it is gone" in tick_text(failed, FILE)
    assert "1 source file not ready yet" in tick_text(NOTHING._replace(read=Extracted(None, {}, ["a"])), FILE)


def test_what_a_tick_published_is_shown_by_table() -> None:
    text = tick_text(
        NOTHING._replace(read=Extracted(4, {"messages": 3, "changes": 3}, ()), files={"dbo.a": [4, 5, 6]}), FILE
    )
    assert "Read: batch 4 of the change log, 3 messages (3 changes)." in text
    assert "  dbo.a: numbers 4 to 6" in text


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("stat", {"status"}),
        ("accept-", {f"accept-{what}" for what in ("dead-letters", "epoch", "reload", "schema", "table")}),
    ],
)
def test_a_shell_completes_commands(line: str, wanted: set[str], tmp_path: Path) -> None:
    """As bash asks, after `register-python-argcomplete open-mirroring`."""
    typed, answer = f"open-mirroring {line}", tmp_path / "answer"
    asked = {"_ARGCOMPLETE": "1", "COMP_LINE": typed, "COMP_POINT": str(len(typed)), "_ARGCOMPLETE_IFS": "\n"}
    environment = {**os.environ, **asked, "_ARGCOMPLETE_STDOUT_FILENAME": str(answer)}
    command = [sys.executable, "-m", "spark_jobs.cli.command_line"]
    subprocess.run(command, env=environment, timeout=300, check=False, capture_output=True)
    assert {word.strip() for word in answer.read_text().split("\n")} == wanted


def test_a_terminal_wraps_the_keys_of_a_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    key = {"kind": "different", "key": "[1]", "columns": [f"a_long_column_{number}" for number in range(20)]}
    counts = dict.fromkeys(("rows_source", "equal", "missing", "extra", "different", "doubled", "unproven"), 1)
    one = {**counts, "verdict": "DIFFERENT", "published_batch": 1, "part": "all rows", "reasons": [], "verified": None}
    tables = {"dbo.a": {**one, "columns": {}, "keys": [key]}}
    assert len(proved_text(tables).splitlines()[-1]) > WIDTH, "a pipe keeps it one line"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert max(map(len, proved_text(tables).splitlines())) <= WIDTH
