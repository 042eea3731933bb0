"""Tables whose structure changes for a year, in three formats: each ends equal, or asks what only a person knows.

Nothing but the command line is used, as somebody would who looks at `tick`'s report and answers its questions; the
emulator is the target. No hand is laid on the mirror file.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, ClassVar
from uuid import uuid4

import pytest

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.ces_messages import event
from tests.drift_stories import KINDS, Change, Story, landed
from tests.e2e.test_bad_input_qlik_change_tables import HEADERS, dfm
from tests.e2e.test_hashed_columns import hashed, salted
from tests.pipeline import Pipeline
from tests.qlik_change_rows import mask, sequence
from tests.qlik_messages import dt, md

OTHER_GUID = "11111111-2222-3333-4444-555555555555"
PATIENCE = 12
"""Ticks after which a mirror is settled: a reload takes four."""


DRAWN: Sequence[Mapping[str, Any]] = (
    {},
    {"hash": ["name"]},
    {"columns": {"rename": {"amount": "total"}}},
    {"on_schema_change": "reload"},
    {"extra_columns": {"operation": "_operation", "log_position": "_position"}},
    {"columns": {"exclude": ["amount"]}},
)
"""What the mirror file may say of a table. What is excluded must not get another name, which is not excluded."""


class Teller(ABC):
    """Tells stories in one format to a mirror that names their tables."""

    settings: ClassVar[Mapping[str, Any]]
    schema = "dbo"
    renames = True

    def __init__(
        self,
        folder: Path,
        spark: Any,
        stories: Sequence[Story],
        said: Sequence[Mapping[str, Any]] = (),
        **publish: Any,
    ) -> None:
        self.stories = stories
        self.said = dict(zip((one.name for one in stories), said or [{}] * len(stories), strict=True))
        described = [
            {"source": f"{self.schema}.{one.name}", "target": f"{self.schema}/{one.name}", "key": ["id"]}
            | self.said[one.name]
            for one in stories
        ]
        zone = {"store": "local", "path": "zone", "tables": "tables"}
        settings: dict[str, Any] = {"publish": publish} if publish else {}
        if any("hash" in one for one in said):
            settings["hash"] = {"salt": "shop_salt"}
        self.pipeline = Pipeline(folder, spark, described, source=self.settings, landing_zone=zone, **settings)
        self.files = 0
        self.asked: list[str] = []

    @abstractmethod
    def send(self, scene: Mapping[str, Sequence[Change]]) -> None:
        """Let the source tell changes of some tables."""

    def tick(self) -> int:
        code = main(["tick", str(self.pipeline.file)])
        self.pipeline.service.poll()
        return code

    def settle(self) -> None:
        """Run until nothing waits, answering every question."""
        for _ in range(PATIENCE):
            code = self.tick()
            if code == Exit.DONE:
                return
            for story in self.stories:
                state = self.pipeline.reader.tables()[f"{self.schema}.{story.name}"]
                if state.stop_code is not None:
                    self._answer(story, state.stop_code, state.stop_what or "")
        stops = {s: (t.stop_code, t.stop_what) for s, t in self.pipeline.reader.tables().items() if t.stop_code}
        raise AssertionError(f"not settled: {stops or code}; {[one.done for one in self.stories]}")

    def _answer(self, story: Story, code: str, what: str) -> None:
        self.asked.append(code)
        if code == "COLUMN_RENAMED":
            return  # it is built anew by itself
        assert code == "RENAME_POSSIBLE", f"{story.name} asks what nobody can answer: {code} {what}; {story.done}"
        column, *names = what.split("'")[1::2]
        renamed = {old.casefold(): name.casefold() for old, name in story.renamed.items()}
        new = next((name for name in names if name.casefold() == renamed.get(column.casefold())), None)
        word = ["--dropped", column] if new is None else ["--renamed", f"{column}={new}"]
        named = ["--table", f"{self.schema}.{story.name}", "--why", "looked at the source"]
        assert main(["accept-schema", str(self.pipeline.file), *named, *word]) in (Exit.DONE, Exit.TABLES_STOPPED)

    def compare(self) -> None:
        for story in self.stories:
            there = self.pipeline.mirrored(self.schema, story.name) if story.version or story.rows else []
            spelled = {name.casefold(): name for row in there[:1] for name in row}
            chosen = self.said[story.name].get("columns", {})
            names = {name: chosen.get("rename", {}).get(name.casefold(), name).casefold() for name in story.columns}
            names = {name: at for name, at in names.items() if name.casefold() not in chosen.get("exclude", ())}
            found = {row["id"]: {name: landed(row[spelled[at]]) for name, at in names.items()} for row in there}
            truth = {id_: {name: row[name] for name in names} for id_, row in story.truth().items()}
            for name in (name for name in names if name.casefold() in self.said[story.name].get("hash", ())):
                for id_, row in truth.items():
                    row[name] = hashed(story.rows[id_][name])
                    if not story.columns[name].startswith(("varchar", "int", "smallint", "bigint")):  # texts of others
                        row[name] = row[name] and found.get(id_, {}).get(name)
            assert found == truth, (story.name, self.said[story.name], story.done)


SQL = {"varchar": "nvarchar"}


class ChangeEvents(Teller):
    settings: ClassVar = {"layout": "bare"}
    renames = False

    def send(self, scene: Mapping[str, Sequence[Change]]) -> None:
        lines = []
        for name, changes in scene.items():
            for one in changes:
                cols = [(column, kind.replace("varchar", "nvarchar")) for column, kind in one.columns.items()]
                row = None if one.operation == "DEL" else one.row
                lines.append(event(one.operation, row, one.old, cols=cols, commit=one.at, tbl=name))
        self.files += 1
        self.pipeline.deliver(f"{self.files:04d}.jsonl", b"".join(line + b"\n" for line in lines))


CT = {"smallint": ("INT2", 5), "int": ("INT4", 10), "bigint": ("INT8", 19), "real": ("REAL4", 0), "float": ("REAL8", 0)}


def _qlik(kind: str) -> tuple[str, int, int, int]:
    """Type, length, precision and scale as Qlik names them."""
    name, _, numbers = kind.rstrip(")").partition("(")
    if name == "decimal":
        precision, scale = map(int, numbers.split(","))
        return "NUMERIC", 0, precision, scale
    if name == "varchar":
        return "STRING", int(numbers), 0, 0
    if name == "datetime2":
        return "DATETIME", 0, 0, int(numbers)
    return (*CT[kind], 0, 0)


class ChangeTables(Teller):
    settings: ClassVar = {
        "format": "qlik-change-table",
        "transport": "files",
        "layout": None,
    }
    schema = "shop"

    def send(self, scene: Mapping[str, Sequence[Change]]) -> None:
        for name, changes in scene.items():
            for columns, some in _runs(changes):
                self.files += 1
                rows = [list(self._cells(one, columns)) for one in some]
                header = [*(n for n, *_ in HEADERS), *columns]
                text = "".join(
                    ",".join("" if cell is None else f'"{cell}"' for cell in line) + "\n" for line in [header, *rows]
                )
                self.pipeline.deliver(f"shop.{name}__ct/{self.files:04d}.csv", text.encode())
                described = [*HEADERS, *((column, *_qlik(kind)[:2]) for column, kind in columns.items())]
                document = json.loads(dfm(name, f"{self.files:04d}.csv", len(rows), columns=described))
                for entry in document["dataInfo"]["columns"]:
                    entry["primaryKeyPos"] = int(entry["name"] == "id")
                for entry, kind in zip(document["dataInfo"]["columns"][len(HEADERS) :], columns.values(), strict=True):
                    entry["precision"], entry["scale"] = _qlik(kind)[2:]
                self.pipeline.deliver(f"shop.{name}__ct/{self.files:04d}.dfm", json.dumps(document).encode())

    def _cells(self, one: Change, columns: Mapping[str, str]) -> Iterator[str | None]:
        oper = {"INS": "I", "UPD": "U", "DEL": "D"}[one.operation]
        yield sequence(100 * one.at)
        yield oper
        places = [len(HEADERS) + at for at, name in enumerate(columns) if name != "id"]
        yield mask(*places) if oper == "U" else None
        yield {"I": "INSERT", "U": "UPDATE", "D": "DELETE"}[oper]
        scene = one.row or one.old or {}
        yield from (scene[name] for name in columns)


class Messages(Teller):
    settings: ClassVar = {"format": "qlik-message"}

    def __init__(self, *arguments: Any, **publish: Any) -> None:
        super().__init__(*arguments, **publish)
        self.ids: dict[tuple[str, int], str] = {}
        self.offset = 0

    def send(self, scene: Mapping[str, Sequence[Change]]) -> None:
        lines = []
        for table, changes in scene.items():
            for one in changes:
                known = self.ids.get((table, one.version))
                named = self.ids.setdefault((table, one.version), uuid4().hex.upper())
                if known is None:
                    columns = [(name, *_qlik(kind), int(name == "id")) for name, kind in one.columns.items()]
                    lineage = {"server": "Q", "task": "t", "schema": self.schema, "table": table, "timestamp": ""}
                    lineage["tableVersion"] = one.version
                    lines.append(md(columns, schema_id=named, lineage=lineage))
                operation = {"INS": "INSERT", "UPD": "UPDATE", "DEL": "DELETE"}[one.operation]
                data, before = (_typed(one.row), _typed(one.old)) if one.row else (_typed(one.old), None)
                lines.append(dt(operation, data, before, schema_id=named, number=one.at, transactionEventCounter=1))
        told_lines = []
        for body in lines:
            line = {"topic": "t", "partition": 0, "offset": self.offset, "encoding": "utf8", "value": body.decode()}
            told_lines.append(json.dumps(line))
            self.offset += 1
        self.files += 1
        self.pipeline.deliver(f"{self.files:04d}.jsonl", ("\n".join(told_lines) + "\n").encode())


def _typed(row: Mapping[str, str | None] | None) -> dict[str, Any] | None:
    return None if row is None else {name: int(v) if name == "id" and v else v for name, v in row.items()}


def _runs(changes: Sequence[Change]) -> Iterator[tuple[Mapping[str, str], list[Change]]]:
    """The changes by runs of one structure."""
    run: list[Change] = []
    for one in changes:
        if run and list(run[0].columns.items()) != list(one.columns.items()):
            yield run[0].columns, run
            run = []
        run.append(one)
    if run:
        yield run[0].columns, run


FORMATS = [ChangeEvents, ChangeTables, Messages]


def tell(kind: type[Teller], folder: Path, spark: Any, seed: int, tables: int, rounds: int, steps: int) -> Teller:
    """Let tables live and compare them with their mirror after every round.

    What the mirror file says of them is drawn, too.
    """
    stories = [Story(f"t{number:03d}", Random(f"{seed}/{number}"), kind.renames) for number in range(tables)]
    drawn = DRAWN[:-1] if kind.renames else DRAWN
    said = [drawn[(number + seed) % len(drawn)] for number in range(tables)]
    # Nothing is to be left to a person who would only say yes once more.
    teller = kind(folder, spark, stories, said, schema_reloads_per_day=1000)
    for number in range(rounds):
        scene: dict[str, list[Change]] = {}
        for story in stories:
            changes = scene.setdefault(story.name, story.changes(3))
            for _ in range(steps):
                if number or story.random.random() < 0.5:  # some tables change before anything of them is published
                    changes += story.alter(story.random.choice(KINDS))
                changes += story.changes(story.random.randint(1, 3))
            changes += story.changes(1)  # which shows the newest structure
        teller.send(scene)
        teller.settle()
        teller.compare()
    return teller


@pytest.mark.parametrize("kind", FORMATS)
def test_tables_that_drift_end_equal(
    kind: type[Teller], tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-60, G-65, G-66, G-67, G-68, G-118, G-120, G-121: the short form of the year."""
    salted(monkeypatch)
    teller = tell(kind, tmp_path, spark, seed=7, tables=6, rounds=3, steps=2)
    assert teller.pipeline.reader.tables()


def test_tables_that_drift_out_of_order_end_equal_g09(tmp_path: Path, spark: Any) -> None:
    """Changes come in any order, twice, or a run late. What stops for it meanwhile goes on by itself."""
    random = Random(5)
    stories = [Story(f"t{number:03d}", Random(f"5/{number}"), False) for number in range(6)]
    teller = ChangeEvents(tmp_path, spark, stories, schema_reloads_per_day=1000)
    late: dict[str, list[Change]] = {}
    for number in range(4):
        scene: dict[str, list[Change]] = {}
        for story in stories:
            changes = [*late.pop(story.name, ()), *story.changes(3)]
            changes += [*story.alter(random.choice(KINDS)), *story.changes(2)]
            random.shuffle(changes)
            at = len(changes) // 4 if number < 3 else 0
            late[story.name], scene[story.name] = changes[:at], [*changes[at:], *changes[at : at + 2]]
        teller.send(scene)
        teller.tick()
    teller.settle()
    teller.compare()
    assert teller.asked == []


def drifted(name: str, *kinds: str) -> tuple[Story, list[Change]]:
    """A story of one change of structure after the other, and what is reported of it before the last one."""
    story = Story(name, Random(name), True, columns={"id": "int", "amount": "int"})
    scene = story.changes(4)
    for kind in kinds[:-1]:
        story.alter(kind)
        scene += story.changes(2)
    return story, scene


def test_the_next_steps_of_the_messages_are_those_that_work(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-65, G-66: SCHEMA_CHANGED and COLUMN_RENAMED, mended by hand from the log, with no load."""
    ways = {"wide": ("widen",), "back": ("add", "drop", "back"), "named": ("rename",)}
    stories, first = zip(*(drifted(name, *kinds) for name, kinds in ways.items()), strict=True)
    teller = ChangeTables(tmp_path, spark, stories, on_schema_change="stop")
    teller.send({one.name: scene for one, scene in zip(stories, first, strict=True)})
    assert teller.tick() == Exit.DONE
    for story, kinds in zip(stories, ways.values(), strict=True):
        story.alter(kinds[-1])
    stories[1].columns["c1"] = first[1][4].columns["c1"]
    teller.send({one.name: one.changes(3) for one in stories})
    assert teller.tick() == Exit.TABLES_STOPPED
    states = teller.pipeline.reader.tables()
    stops = {name: states[f"shop.{name}"].stop_code for name in ways}
    assert stops == {"wide": "SCHEMA_CHANGED", "back": "SCHEMA_CHANGED", "named": "RENAME_POSSIBLE"}
    teller._answer(stories[2], "RENAME_POSSIBLE", states["shop.named"].stop_what or "")
    assert teller.tick() == Exit.TABLES_STOPPED, "nothing is built anew against the word of the mirror file"
    for name in ways:
        asked = ["reload-table", str(teller.pipeline.file), "--table", f"shop.{name}", "--reason", "x"]
        for _ in range(6):
            code = main([*asked, "--approved-by", "Ada", "--wait", "0", "--request", name])
            teller.pipeline.service.poll()
            if code == Exit.DONE:
                break
        assert code == Exit.DONE, capsys.readouterr().out
    teller.compare()
    teller.send({one.name: one.changes(2) for one in stories})
    assert teller.tick() == Exit.DONE
    teller.compare()


def test_a_late_row_has_nothing_of_a_column_that_came_back_and_was_renamed_g66(tmp_path: Path, spark: Any) -> None:
    """`name` is dropped, another `name` comes and is renamed: both are noted of one name, and read in this order."""
    story = Story("t", Random(1), True, columns={"id": "int", "amount": "int", "name": "varchar(20)"})
    teller = ChangeTables(tmp_path, spark, [story])
    first = [story._change("INS") for _ in range(3)]
    story._drop("name")
    gone = [story._change("INS")]
    story._add("name", "varchar(20)")
    back = [story._change("INS")]
    story._rename("name", "title")
    story.renamed["name"] = "title"
    missing = {int(one.row["id"] or 0): story.rows.pop(int(one.row["id"] or 0)) for one in first[1:]}
    teller.send({"t": [first[0], *gone, *back, story._change("INS")]})
    teller.settle()
    teller.compare()
    built = teller.pipeline.reader.tables()["shop.t"].row.generation
    story.rows |= missing
    teller.send({"t": first[1:]})
    assert teller.tick() == Exit.DONE
    teller.compare()
    assert (teller.asked, teller.pipeline.reader.tables()["shop.t"].row.generation) == (["RENAME_POSSIBLE"], built)


@pytest.mark.long
@pytest.mark.parametrize("kind", FORMATS)
def test_a_year_of_drift_ends_equal(
    kind: type[Teller], tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 tables and 1,000 changes of structure in three formats, counted by those that changed something."""
    salted(monkeypatch)
    teller = tell(kind, tmp_path, spark, seed=2026, tables=67, rounds=5, steps=2)
    assert sum(len(story.done) for story in teller.stories) >= 334
