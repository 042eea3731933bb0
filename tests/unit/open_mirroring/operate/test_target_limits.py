"""`open-mirroring check` warns of a mirror that comes near what the target takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main


def warned(folder: Path, tables: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> list[str]:
    (folder / "source").mkdir(exist_ok=True)
    file = folder / "mirrors" / "shop.yaml"
    file.parent.mkdir(exist_ok=True)
    document = {
        "mirror": "shop",
        "source": {"format": "sqlserver-ces", "transport": "files", "path": "source"},
        "landing_zone": {"store": "local", "path": "zone"},
        "ledger": "sqlite:///ledger.db",
        "change_log": "log",
        "tables": tables,
    }
    file.write_text(yaml.dump(document, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper)))
    assert main(["check", str(file)]) == Exit.DONE, "a warning stops nothing"
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: ")]


def table(name: str, **more: Any) -> dict[str, Any]:
    return {"source": f"dbo.{name}", "target": f"dbo/{name}", "key": ["c0"], **more}


def test_a_mirror_near_the_number_of_tables_is_warned_of_f_91(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = [table(f"t{number}") for number in range(901)]
    assert warned(tmp_path, tables[:900], capsys) == []
    (line,) = warned(tmp_path, tables, capsys)
    assert "TARGET_LIMIT: tables:" in line and "901" in line and "1,000" in line and "F-91" not in line


def test_more_columns_than_the_sql_endpoint_takes_are_warned_of_f_91(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wherever the mirror file names them; a pattern names none."""
    names = [f"c{number}" for number in range(1_025)]
    text = {"columns": dict.fromkeys(names, "string")}
    wide = [
        table("listed", columns=names),
        table("chosen", columns={"include": names}),
        table("text", delimited_text=text),
        table("fits", columns=names[:-1]),
        table("by_pattern", columns={"include": [*names[:-1], "more_*"]}),
    ]
    found = warned(tmp_path, wide, capsys)
    assert [line.split("TARGET_LIMIT: ")[1].split(":")[0] for line in found] == ["tables[0]", "tables[1]", "tables[2]"]
    assert all("1,025" in line for line in found)
