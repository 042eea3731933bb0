"""Writes the mirror files of benchmarks. All their paths are relative, so that a folder may be copied as it is."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.generate import Layout, key_of, table_names

_OTHERS = Path(__file__).resolve().parents[1] / "build" / "others-environment" / "bin" / "python"


def write_mirror(
    work: Path, source: Mapping[str, Any], tables: Sequence[Mapping[str, Any]], **settings: Mapping[str, Any]
) -> Path:
    """Write the file of a mirror in a folder of its own; *settings* are further members."""
    document = {
        "mirror": "bench",
        "source": source,
        "landing_zone": {"store": "local", "path": "zone", "tables": "tables"},
        "ledger": "sqlite:///ledger.db",
        "change_log": "log",
        "tables": tables,
        **settings,
    }
    path = work / "mirrors" / "bench.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def shop_tables(tables: int = 5) -> list[dict[str, Any]]:
    """The tables of generated changes."""
    return [{"source": f"dbo.{name}", "target": f"dbo/{name}", "key": [key_of(name)]} for name in table_names(tables)]


def mirror_file(work: Path, source: Path, layout: Layout, tables: int, **settings: Mapping[str, Any]) -> Path:
    """Write the file of a mirror of generated change events."""
    transport = {"transport": "capture"} if layout == "capture" else {"transport": "files", "layout": layout}
    described = {"format": "sqlserver-ces", "path": str(source), **transport}
    return write_mirror(work, described, shop_tables(tables), **settings)


def connect(name: str, server: Any) -> str:
    """Let a connection name a PostgreSQL server; return what libpq reads."""
    content = {"conn_type": "postgres", "host": "127.0.0.1", "port": server.port, "login": server.user}
    content |= {"password": server.password, "schema": server.database}
    os.environ[f"AIRFLOW_CONN_{name.upper()}"] = json.dumps(content)
    given = {"host": "127.0.0.1", "port": server.port, "user": server.user}
    given |= {"password": server.password, "dbname": server.database}
    return " ".join(f"{name}={value}" for name, value in given.items())


def other_tool(name: str, place: str, folder: Path) -> list[str]:
    """Return the command of a tool of :mod:`benchmarks.other_tools`; *place*: an address or a folder."""
    return [str(_OTHERS), str(Path(__file__).with_name("other_tools.py")), name, place, str(folder)]


def address_of(server: Any) -> str:
    """Return the address of a PostgreSQL server."""
    return f"postgresql://{server.user}:{server.password}@127.0.0.1:{server.port}/{server.database}"
