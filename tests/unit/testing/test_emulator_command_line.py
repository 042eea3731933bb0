"""``fabric-emulator`` on the command line."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fabric_emulator.command_line import main
from tests.unit.testing.emulator_zone import Zone, items, put


@pytest.fixture
def zone(tmp_path: Path) -> Zone:
    return Zone(tmp_path)


def _arguments(zone: Zone, *more: str) -> list[str]:
    return [more[0], "--landing-zone", str(zone.zone), "--tables", str(zone.tables), *more[1:]]


def test_apply_prints_a_line_per_file_and_per_failed_table(zone: Zone, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit codes: 0 done, 1 a table is failed."""
    put(zone.folder(), 1, items([(4, 1, "x")]))
    assert main(_arguments(zone, "apply")) == 0
    assert capsys.readouterr().out == "applied dbo/items 1 rows=1 version=0\n"
    put(zone.folder("bad"), 1, b"")
    assert main(_arguments(zone, "apply")) == 1
    assert capsys.readouterr().out.startswith("failed dbo/bad InvalidParquetFile: 00000000000000000001.parquet has ")


def test_pause_stop_and_start_are_commands(zone: Zone, capsys: pytest.CaptureFixture[str]) -> None:
    put(zone.folder(), 1, items([(4, 1, "x")]))
    seen = []
    for command in ("pause", "apply", "resume", "apply", "stop", "start", "status"):
        assert main(_arguments(zone, command)) == 0
        printed = capsys.readouterr().out
        seen.append(printed if command == "apply" else json.loads(printed)["status"])
    assert seen == ["Paused", "", "Running", "applied dbo/items 1 rows=1 version=0\n", "Stopped", "Running", "Running"]


def test_a_wrong_setting_is_an_error_and_not_a_traceback(zone: Zone, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(_arguments(zone, "apply", "--purge-after-days", "-1")) == 2
    assert capsys.readouterr().err.startswith("SETTING_INVALID: ")


ASKING = """
import time
from fabric_emulator.command_line import Termination

termination = Termination()
print("ready", flush=True)
end = time.monotonic() + 2
while time.monotonic() < end:
    termination.wait(0)
print(termination.wait(), flush=True)
"""


def test_a_signal_at_any_moment_of_asking_is_reported() -> None:
    """With `threading.Event` this hangs: its handler waits for a lock that the thread it interrupted holds."""
    pauses = Random(1)
    command = [sys.executable, "-c", ASKING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            give_up = time.monotonic() + 300
            while process.poll() is None:
                assert time.monotonic() < give_up
                process.send_signal(signal.SIGTERM)
                time.sleep(pauses.random() * 0.0003)
        finally:
            process.kill()
        assert process.stdout.read() == "True\n"


def test_serve_answers_and_polls_until_it_is_reported_to_end(zone: Zone) -> None:
    put(zone.folder(), 1, items([(4, 1, "x")]))
    command = [
        sys.executable,
        "-m",
        "fabric_emulator.command_line",
        *_arguments(zone, "serve", "--watch", "--port", "0"),
    ]
    with subprocess.Popen(
        [*command, "--interval", "0.05", "--database", "shop"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    ) as process:
        assert process.stdout is not None
        try:
            _, url, workspace = process.stdout.readline().split()
            assert re.fullmatch("workspace=[0-9a-f-]{36}", workspace)
            deadline = time.monotonic() + 300
            while not (found := _get(f"{url}/_emulator/status")["shop"])["tables"]:
                assert time.monotonic() < deadline, found
                time.sleep(0.02)
            process.send_signal(signal.SIGTERM)
            rest, errors = process.communicate(timeout=300)
        finally:
            process.kill()
    assert (process.returncode, rest, errors) == (0, "", "")
    assert zone.rows() == [(1, "x")]


def test_an_address_in_use_is_an_error_and_not_a_traceback(zone: Zone, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(_arguments(zone, "serve", "--port", port)) == 2
    assert capsys.readouterr().err.startswith("ADDRESS_UNUSABLE: ")


def _get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=300) as answer:
        return json.load(answer)
