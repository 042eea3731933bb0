"""The mirror files that are there to be copied: each is right, all ways are shown, and none of them is live."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml

from open_mirroring.config import json_schema, load_mirror, load_mirrors, mirror_files
from open_mirroring.config.connections import Connection, resolve, variable
from open_mirroring.config.source import SOURCES, RegisteredMessages
from open_mirroring.source_places.kafka_client import place_of
from open_mirroring_airflow.mirror_folder import read_mirror_folder
from spark_jobs.sources.jdbc.dialects import dialect_of

ROOT = Path(__file__).resolve().parents[3]
MIRRORS = ROOT / "mirrors"
EXAMPLES = sorted((MIRRORS / "examples").iterdir())
FILES = [*mirror_files(MIRRORS), *EXAMPLES, *sorted((ROOT / "demo" / "mirrors").iterdir())]
CONNECTION = re.compile(r"(AIRFLOW_CONN_[A-Z_]+)='([^']+)'")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_every_mirror_file_is_valid_by_loader_and_by_schema(file: Path) -> None:
    load_mirror(file)
    jsonschema.validate(yaml.safe_load(file.read_text("utf-8")), json_schema())


def test_every_format_is_shown_over_every_transport_once() -> None:
    shown = [(mirror.source.format, mirror.source.transport) for mirror in map(load_mirror, EXAMPLES)]
    assert sorted(shown) == sorted(way for way, kind in SOURCES.items() if not issubclass(kind, RegisteredMessages))


def test_the_examples_can_live_beside_each_other() -> None:
    assert len(load_mirrors(MIRRORS / "examples")) == len(EXAMPLES)


def test_no_example_is_a_dag_of_a_deployment() -> None:
    assert mirror_files(MIRRORS) == [MIRRORS / "shop.yaml"]
    mirrors, error = read_mirror_folder(MIRRORS)
    assert ([mirror.name for mirror in mirrors], error) == (["shop"], None)


@pytest.mark.parametrize("file", [one for one in EXAMPLES if "connection:" in one.read_text("utf-8")], ids=str)
def test_every_connection_that_an_example_names_is_shown_as_it_must_be_set(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C-91 and Airflow's JSON form: what a reader fills in is taken by the jobs."""
    mirror = load_mirror(file)
    named = {mirror.source.connection, *(getattr(table.initial_load, "connection", None) for table in mirror.tables)}
    text = re.sub(r"\n# *", " ", file.read_text("utf-8"))
    shown = CONNECTION.findall(text)
    assert {name for name, _ in shown} == {variable(name) for name in named if name is not None}
    for name, content in shown:
        assert json.loads(content)["password"].startswith("<"), "a placeholder, never a secret"
        string = "Endpoint=sb://n.servicebus.windows.net/;SharedAccessKeyName=p;SharedAccessKey=k"
        filled = content.replace("<connection string, as the portal shows it>", string)
        monkeypatch.setenv(name, re.sub(r"<[a-z ]+>", "filled", filled))
        assert_usable(resolve(name.removeprefix("AIRFLOW_CONN_").lower()))


def assert_usable(connection: Connection) -> None:
    if connection.conn_type in ("mssql", "postgres"):
        assert dialect_of(connection)
    else:
        assert place_of(connection, ("shop",)).settings.options["security.protocol"] == "SASL_SSL"
