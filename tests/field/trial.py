"""A folder of inputs with its mirror file, driven through the command line as its user would."""

from __future__ import annotations

import io
import os
import shutil
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from deltalake import DeltaTable

from fabric_emulator.service import MirroringService


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


class Trial:
    """One mirror in a folder: ``mirror.yaml``, whose relative paths start there, ``zone`` and ``tables``."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "mirror.yaml"
        self.zone, self.tables = folder / "zone", folder / "tables"

    @classmethod
    def of(cls, name: str, shared_data: Path, folder: Path) -> Trial:
        """A copy of a folder of the field's inputs."""
        shutil.copytree(shared_data / "field" / name, folder / name, symlinks=True)
        return cls(folder / name)

    def run(self, command: str, *arguments: str, file: Path | None = None) -> Ended:
        """``open-mirroring COMMAND mirror.yaml ARGUMENTS``, in this process."""
        from spark_jobs.cli.command_line import main

        out, err = io.StringIO(), io.StringIO()
        before = os.environ.get("OPEN_MIRRORING_HOME")
        os.environ["OPEN_MIRRORING_HOME"] = str(self.folder)
        try:
            with redirect_stdout(out), redirect_stderr(err):
                code = int(main([command, str(file or self.file), *arguments]))
        finally:
            if before is None:
                del os.environ["OPEN_MIRRORING_HOME"]
            else:
                os.environ["OPEN_MIRRORING_HOME"] = before
        return Ended(code, out.getvalue(), err.getvalue())

    def apply(self) -> None:
        """Let the mirroring service apply what was published."""
        MirroringService(self.zone, self.tables).poll()

    def rows(self, target: str) -> list[dict[str, Any]]:
        """The mirrored rows of ``schema/table``, in the order of their first column."""
        rows = pa.table(DeltaTable(str(self.tables / target)).scan()).to_pylist()
        return sorted(rows, key=lambda row: str(next(iter(row.values()))))
