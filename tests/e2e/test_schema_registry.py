"""Avro messages that carry only the number of their schema: the registry is asked, and its answers are kept.

The registry is a stand-in for the one request that is made, ``GET /schemas/ids/{id}`` of Confluent's Schema Registry.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from open_mirroring.config.connections import resolve
from open_mirroring.errors import TerminalError, TransientError
from spark_jobs.sources.qlik.message.format import QlikMessageFormat
from spark_jobs.sources.qlik.message.schema_registry import SchemaRegistry
from spark_jobs.sources.transports.message_files import LineFiles
from tests.e2e.test_bad_input import wrapped
from tests.e2e.test_histories import TABLES, assert_mirrored, history, slices
from tests.pipeline import Pipeline
from tests.qlik_messages import ROW, avro_schema, change, datum
from workload_generator.delivery import Delivery
from workload_generator.qlik_messages import QlikMessageOptions, registered, render
from workload_generator.transports import json_lines

LOGIN = "Basic " + base64.b64encode(b"reader:secret").decode()


class Registry(BaseHTTPRequestHandler):
    """Knows schemas by number, for whoever logs in."""

    schemas: ClassVar[dict[int, str]] = {}
    asked: ClassVar[list[str]] = []
    odd: ClassVar[dict[str, object]] = {}

    def do_GET(self) -> None:
        number = self.path.partition("?")[0].removeprefix("/schemas/ids/")
        self.asked.append(number)
        if self.headers.get("Authorization") != LOGIN:
            self._answer(401, {"error_code": 401, "message": "Unauthorized"})
        elif number in self.odd:
            self._answer(200, self.odd[number])
        elif number.isdigit() and int(number) in self.schemas:
            self._answer(200, {"schema": self.schemas[int(number)]})
        else:
            self._answer(404, {"error_code": 40403, "message": "Schema not found"})

    def _answer(self, status: int, content: object) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def registry() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def connection(server: ThreadingHTTPServer | None, password: str = "secret") -> str:
    port = server.server_address[1] if server else 9
    return json.dumps(
        {"conn_type": "http", "host": f"http://127.0.0.1:{port}", "login": "reader", "password": password}
    )


def test_schemas_are_asked_for_once_and_messages_wait_for_unknown_ones(
    tmp_path: Path, spark, registry: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K-04, K-06, K-10: nothing is lost while the registry is away, refuses us, or does not know a schema yet."""
    made = history(seed=61)
    options = QlikMessageOptions(encoding="avro", framing="registry")
    messages = render(made, options, Delivery(partitions=3, scheme="key", seed=61))
    known = registered(made, options)
    source = {"format": "qlik-message", "schema_registry": "registry"}
    pipeline = Pipeline(tmp_path, spark, TABLES, source=source)
    first, second, third = slices(messages, 3)

    pipeline.deliver("1.jsonl", json_lines(first, layout="wrapped"))
    monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", connection(None))
    with pytest.raises(TransientError, match="UNREACHABLE"):
        pipeline.extract()
    monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", connection(registry, "wrong"))
    with pytest.raises(TerminalError, match="ACCESS_DENIED") as refused:
        pipeline.extract()
    assert "wrong" not in str(refused.value)

    monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", connection(registry))
    Registry.schemas = {known[0].number: known[0].schema}
    pipeline.tick()
    assert pipeline.open_fragments > 0
    Registry.schemas = {one.number: one.schema for one in known}
    for name, part in (("2", second), ("3", third)):
        pipeline.deliver(f"{name}.jsonl", json_lines(part, layout="wrapped"))
        pipeline.tick()
    assert_mirrored(pipeline, made)
    Registry.asked.clear()
    pipeline.deliver("again.jsonl", json_lines(first, layout="wrapped"))
    pipeline.tick()
    assert Registry.asked == [], "what the registry told is kept"


def test_an_answer_that_is_no_schema_is_worth_another_try_and_is_not_kept_k62(
    registry: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off, empty, or of a proxy between: kept as a schema, it would make dead letters of all that comes."""
    answers = [b'{"schema": "{\\"type', b"<html>", b"", b"[]", {}, {"schema": None}, {"schema": 5}]
    monkeypatch.setattr(Registry, "odd", {str(at): one for at, one in enumerate(answers)})
    monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", connection(registry))
    for at in range(len(answers)):
        with pytest.raises(TransientError, match=r"UNREACHABLE.*answer"):
            SchemaRegistry(resolve("registry")).schemas([f"cdc:schema:registry:{at}"])


def test_schemas_of_others_are_dead_letters_of_their_messages_alone_k62(
    tmp_path: Path, spark, registry: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    schemas = [avro_schema(table="a"), {"type": "record", "name": "acme.Customer", "fields": []}]
    monkeypatch.setattr(Registry, "schemas", {number: json.dumps(one) for number, one in enumerate(schemas, 1)})
    monkeypatch.setattr(Registry, "odd", {"3": {"schemaType": "JSON", "schema": '{"type": "object"}'}})
    monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", connection(registry))
    tables = [{"source": "dbo.a", "target": "dbo/a", "key": ["id"]}]
    pipeline = Pipeline(tmp_path, spark, tables, source={"format": "qlik-message", "schema_registry": "registry"})
    row = b"\x00\x00\x00\x00\x01" + datum(avro_schema(table="a"), change("INSERT", ROW))
    pipeline.deliver("1.jsonl", wrapped([b"\x00\x00\x00\x00\x03{}", b"\x00\x00\x00\x00\x02\x02", row]))
    pipeline.tick()
    letters = [(x["code"], x["place"], x["tbl"]) for x in pipeline.letters()]
    assert letters == [("METADATA_MISSING", 0, None), ("METADATA_MISSING", 1, None)]
    assert [found["id"] for found in pipeline.mirrored("dbo", "a")] == [7]


def test_a_mirror_file_is_begun_by_what_the_registry_shows(
    tmp_path: Path, registry: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-50, K-04, K-14: tables and columns by the schemas' numbers; a schema tells no key, so the tables wait."""
    made = history(seed=61)
    options = QlikMessageOptions(encoding="avro", framing="registry")
    Registry.schemas = {one.number: one.schema for one in registered(made, options)}
    monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", connection(registry))
    monkeypatch.delenv("OPEN_MIRRORING_HOME", raising=False)
    (tmp_path / "source").mkdir()
    messages = render(made, options, Delivery(partitions=3, scheme="key", seed=61))
    (tmp_path / "source" / "1.jsonl").write_bytes(json_lines(messages, layout="wrapped"))
    form = QlikMessageFormat(registry="registry")
    story = list(form.announced(LineFiles(tmp_path / "source", "wrapped").sample(1000)))
    assert {f"{one.schema}.{one.table}" for one in story} == {table["source"] for table in TABLES}
    assert all(one.columns and one.key is None for one in story if one.columns)
