"""Runs that new data at the source starts: what is watched, when an event is sent, and what Airflow makes of it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import sqlalchemy as sa
from airflow.api_fastapi.app import create_app, get_auth_manager, purge_cached_app
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.dag_processing.bundles.manager import DagBundlesManager
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.jobs.job import Job
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models.asset import AssetDagRunQueue, AssetModel, AssetWatcherModel
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.models.trigger import Trigger
from airflow.triggers.base import TriggerEvent
from airflow.utils.session import create_session
from airflow.utils.sqlalchemy import prohibit_commit
from airflow.utils.state import DagRunState
from fastapi.testclient import TestClient

from open_mirroring_airflow.watching import FolderTrigger, SourceTrigger, TopicTrigger
from tests.dags.conftest import ROOT
from tests.dags.test_dags_run import Shop, shop
from tests.kafka_broker import KafkaBroker
from tests.object_storage import KINDS, StorageServers

__all__ = ["shop"]
pytestmark = pytest.mark.airflow

ON_DATA = {"on": "new_data", "at_most_every": "45s", "at_least_every": "24h"}
IN_TOPICS = """
mirror: {name}
source: {{format: qlik-message, transport: kafka, connection: broker, topics: {topics}}}
landing_zone: {{store: local, path: {name}/zone}}
ledger: sqlite:///{name}/ledger.db
change_log: {name}/log
schedule: {{on: new_data}}
tables: [{{source: dbo.orders, target: dbo/orders, key: [id]}}]
"""


@dataclass
class Pauses:
    """The pauses of a trigger, which take no time here; before each one the next of *steps* is done."""

    steps: list[Callable[[], object]] = field(default_factory=list)
    taken: list[float] = field(default_factory=list)

    async def pause(self, seconds: float) -> None:
        self.taken.append(seconds)
        if self.steps:
            self.steps.pop(0)()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Pauses:
    made = Pauses()
    monkeypatch.setattr("open_mirroring_airflow.watching.asyncio.sleep", made.pause)
    return made


def fired(trigger: SourceTrigger, count: int) -> list[Any]:
    """What the first *count* events of a trigger contain."""

    async def collect() -> list[Any]:
        found: list[Any] = []
        events = trigger.run()
        async for event in events:
            found.append(event.payload)
            if len(found) == count:
                break
        await events.aclose()  # type: ignore[attr-defined]
        return found

    return asyncio.run(asyncio.wait_for(collect(), 60))


def parse(*, unpaused: bool = True) -> None:
    """Parse the DAG files into Airflow's database, as its DAG processor does; watchers are those of unpaused DAGs."""
    DagBundlesManager().sync_bundles_to_db()
    for _ in range(2):
        sync_bag_to_db(DagBag(dag_folder=ROOT / "dags"), "dags-folder", None)
        with create_session() as session:
            session.execute(sa.update(DagModel).values(is_paused=not unpaused))


def triggers() -> Mapping[int, tuple[dict[str, Any], list[str]]]:
    """The arguments of each watching trigger in Airflow's database, and the assets it is for, by its id."""
    with create_session() as session:
        rows = session.execute(
            sa.select(Trigger, AssetModel.uri)
            .join(AssetWatcherModel, AssetWatcherModel.trigger_id == Trigger.id)
            .join(AssetModel, AssetModel.id == AssetWatcherModel.asset_id)
        ).all()
        found: dict[int, tuple[dict[str, Any], list[str]]] = {}
        for trigger, uri in rows:
            found.setdefault(trigger.id, (trigger.kwargs, []))[1].append(uri)
        return found


@pytest.fixture
def emptied(metadata_database: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without watchers and DAGs of other tests, and leaving none."""
    # Airflow would keep the DAG of the same name that another test parsed in the last 30 s.
    monkeypatch.setenv("AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL", "0")

    def empty() -> None:
        with create_session() as session:
            session.execute(sa.delete(AssetWatcherModel))
            session.execute(sa.delete(AssetDagRunQueue))
            session.execute(sa.delete(Trigger))
            session.execute(sa.update(DagModel).values(is_stale=True, is_paused=True))

    empty()
    yield
    empty()


def test_a_folder_fires_at_its_start_and_for_each_change_of_names_sizes_and_times(
    tmp_path: Path, pauses: Pauses
) -> None:
    new, hidden = tmp_path / "below" / "new.avro", tmp_path / "_being_written.avro"
    new.parent.mkdir()
    trigger = FolderTrigger(path=str(tmp_path), connection="", at_most_every=45)
    pauses.steps = [
        lambda: None,
        lambda: hidden.write_text("x"),
        lambda: new.write_text("a"),
        lambda: new.write_text("ab"),
        lambda: new.rename(new.with_name("renamed.avro")),
    ]
    events = fired(trigger, 4)
    assert [event["found"]["files"] for event in events] == [0, 1, 1, 1]
    assert len({event["found"]["digest"] for event in events}) == 4 and {event["path"] for event in events} == {
        str(tmp_path)
    }
    # 45 s after each event, so that what comes meanwhile is one event; else about once a second.
    assert [pause for pause in pauses.taken if pause == 45] == [45, 45, 45]
    assert len(pauses.taken) == 5 and min(pauses.taken) >= 1


def test_one_file_is_watched_and_a_folder_that_is_not_mounted_is_looked_for_again(
    tmp_path: Path, pauses: Pauses
) -> None:
    file = tmp_path / "events" / "all.jsonl"
    trigger = FolderTrigger(path=str(file), connection="", at_most_every=1)
    pauses.steps = [file.parent.mkdir, lambda: file.write_text("a"), lambda: file.write_text("ab")]
    assert [event["found"]["files"] for event in fired(trigger, 2)] == [1, 1]
    assert pauses.taken[:2] == [30, 30]


@pytest.mark.parametrize("kind", KINDS)
def test_objects_are_watched_by_a_login_that_is_looked_up_in_airflow(
    storage_servers: StorageServers, kind: str, pauses: Pauses, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = storage_servers.new(kind)
    monkeypatch.setenv("AIRFLOW_CONN_STORE", storage.connection)
    trigger = FolderTrigger(path=storage.address, connection="store", at_most_every=1)
    pauses.steps = [lambda: None, lambda: storage.deliver("a/new.avro", b"x"), lambda: storage.deliver("a/2", b"x")]
    assert [event["found"]["files"] for event in fired(trigger, 3)] == [0, 1, 2]
    assert pauses.taken[1] >= 10, "each look costs a request"


def test_topics_are_watched_by_their_end_offsets_without_a_consumer(
    kafka: KafkaBroker, pauses: Pauses, monkeypatch: pytest.MonkeyPatch
) -> None:
    kafka.create_topic("watched", 2)
    # On a busy machine, too, the first look gets its answer.
    monkeypatch.setattr("open_mirroring_airflow.watching._ANSWER_SECONDS", 300.0)
    monkeypatch.setenv("AIRFLOW_CONN_BROKER", kafka.connection())
    trigger = TopicTrigger(topics=["watched"], connection="broker", at_most_every=1)
    pauses.steps = [lambda: None, lambda: kafka.publish("watched", [(1, b"k", b"v"), (1, b"k", b"w")])]
    first, second = fired(trigger, 2)
    assert first == {"topics": ["watched"], "found": {"watched/0": 0, "watched/1": 0}}
    assert second["found"] == {"watched/0": 0, "watched/1": 2}
    assert kafka.admin().list_consumer_groups().result().valid == []


def test_a_connection_that_is_missing_wrong_or_unreachable_is_looked_up_again_and_shows_no_secret(
    kafka: KafkaBroker, pauses: Pauses, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka.create_topic("later")
    monkeypatch.setattr("open_mirroring_airflow.watching._ANSWER_SECONDS", 1.0)
    unreachable = json.dumps({"conn_type": "kafka", "host": "127.0.0.1", "port": 1})
    wrong = kafka.event_hubs_connection(
        password="Endpoint=sb://localhost/;SharedAccessKeyName=a;SharedAccessKey=c2VjcmV0"
    )
    pauses.steps = [
        lambda value=value: monkeypatch.setenv("AIRFLOW_CONN_BROKER", value)
        for value in ("{}", unreachable, wrong, kafka.connection())
    ]
    [event] = fired(TopicTrigger(topics=["later"], connection="broker", at_most_every=1), 1)
    assert event["found"] == {"later/0": 0} and pauses.taken == [30] * 4
    story = [line for line in capsys.readouterr().out.splitlines() if "Looking again" in line]
    codes = ("CONNECTION_INVALID", "CONNECTION_INVALID", "UNREACHABLE", "ACCESS_DENIED")
    assert all(code in line for code, line in zip(codes, story, strict=True))
    assert "c2VjcmV0" not in str(story)


def test_the_pages_schedule_is_one_and_names_the_asset(mirrors: Path, emptied: None) -> None:
    page = (ROOT / "docs" / "how-to" / "new-data.md").read_text(encoding="utf-8")
    [schedule] = re.findall(r"^    (schedule: .*)$", page, re.MULTILINE)
    text = IN_TOPICS.format(name="shop", topics="[a]")
    (mirrors / "shop.yaml").write_text(text.replace("schedule: {on: new_data}", schedule))
    parse()
    [(kwargs, [asset])] = triggers().values()
    assert kwargs["at_most_every"] == 60 and asset.replace("shop", "<mirror>") in page


def test_runs_by_time_and_backfills_stay_as_they_are(mirrors: Path, emptied: None) -> None:
    (mirrors / "shop.yaml").write_text(IN_TOPICS.format(name="shop", topics="[a]"))
    parse()
    with create_session() as session:
        model = session.get_one(DagModel, "shop__replicate")
        assert model.timetable_periodic and "Asset or 0 * * * *" in model.timetable_summary
        assert model.next_dagrun_data_interval_end - model.next_dagrun_data_interval_start == timedelta(hours=1)


def test_mirrors_of_the_same_topics_share_one_trigger_that_every_parse_keeps(
    mirrors: Path, emptied: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, topics in (("first", "[b, a]"), ("second", "[a, b]"), ("other", "[a]")):
        (mirrors / f"{name}.yaml").write_text(IN_TOPICS.format(name=name, topics=topics))
    parse()
    found = triggers()
    assert {tuple(kwargs["topics"]): sorted(uris) for kwargs, uris in found.values()} == {
        ("a", "b"): ["open-mirroring-source://first/", "open-mirroring-source://second/"],
        ("a",): ["open-mirroring-source://other/"],
    }
    # No login: Airflow's database stores them.
    assert {frozenset(kwargs) for kwargs, _ in found.values()} == {frozenset({"topics", "connection", "at_most_every"})}
    parse()
    assert triggers().keys() == found.keys(), "a trigger made again fires again"
    parse(unpaused=False)
    parse(unpaused=False)
    assert triggers() == {}


def test_a_program_may_send_the_event_by_airflows_api(mirrors: Path, emptied: None) -> None:
    (mirrors / "shop.yaml").write_text(IN_TOPICS.format(name="shop", topics="[a]"))
    parse()
    purge_cached_app()
    app = create_app(apps="core")
    token = get_auth_manager().generate_jwt(SimpleAuthManagerUser(username="a program", role="op"))
    api = TestClient(app, base_url="http://testserver", headers={"Authorization": f"Bearer {token}"})
    uri = "open-mirroring-source://shop/"
    [asset] = api.get("/api/v2/assets", params={"uri_pattern": uri}).json()["assets"]
    sent = api.post("/api/v2/assets/events", json={"asset_id": asset["id"]})
    assert sent.status_code == 200, sent.text
    with create_session() as session:
        assert session.scalars(sa.select(AssetDagRunQueue.target_dag_id)).all() == ["shop__replicate"]


def create_runs() -> None:
    """As the scheduler does in each of its rounds."""
    runner = SchedulerJobRunner(Job())
    with create_session() as session, prohibit_commit(session) as guard:
        runner._create_dagruns_for_dags(guard, session)


def run_queued() -> str | None:
    """Lets the first queued run of the mirror run to its good end; returns what started it, None if none is queued."""
    with create_session() as session:
        queued = sa.select(DagRun).where(DagRun.dag_id == "shop__replicate", DagRun.state == DagRunState.QUEUED)
        found = session.scalars(queued.order_by(DagRun.id)).first()
    if found is None:
        return None

    def existing(*, dag: Any, session: Any, **_: Any) -> DagRun:
        run: DagRun = session.get_one(DagRun, found.id)
        run.state = DagRunState.RUNNING
        session.commit()
        run.dag = dag
        return run

    dag = DagBag(dag_folder=ROOT / "dags").dags["shop__replicate"]
    with patch("airflow.models.dagrun.get_or_create_dagrun", existing):
        run = dag.test(logical_date=found.logical_date)
    assert run.state == "success"
    # Parsing counts the active runs, as the scheduler does at the end of each.
    parse()
    return str(found.run_type)


def test_events_start_one_run_after_the_other_next_to_those_by_time(
    shop: Callable[..., Shop], emptied: None, pauses: Pauses
) -> None:
    made = shop(rows=20, load=False, schedule=ON_DATA)
    parse()
    [(trigger_id, (kwargs, _))] = triggers().items()
    pauses.steps = [made.goes_on]
    for payload in fired(FolderTrigger(**kwargs), 2):
        Trigger.submit_event(trigger_id, TriggerEvent(payload))
        create_runs()
    started = []
    while (run := run_queued()) is not None:
        started.append(run)
        create_runs()
    # The second event came while the run of the first was queued: it starts one more.
    assert sorted(started) == ["asset_triggered", "asset_triggered", "scheduled"]
    assert min(made.numbers().values()) > 0
