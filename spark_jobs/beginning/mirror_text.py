"""Writes a new mirror file, or adds tables to an existing mirror file without changing its other lines."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from open_mirroring.config import ConfigError
from open_mirroring.config.loading import parse_mirror
from open_mirroring.config.models import BegunMirror, Mirror
from open_mirroring.errors import TerminalError

_HEAD = """\
# A mirror, begun by `open-mirroring init`. Every setting is described in docs/mirror.schema.json, and shown in
# mirrors/shop.yaml; `open-mirroring check` reports every mistake. Relative paths start at OPEN_MIRRORING_HOME, or at
# the folder above this file's. Never write a secret here: name a connection, and set it as AIRFLOW_CONN_<NAME>.
# For each table you may choose rows (`where: "country = 'DE'"`), keep deleted ones (`on_delete: keep`), or promise that
# it is only appended to (`append_only: true`, with `key: []`). Each change may be kept in a second table
# (`history: {target: dbo/orders_history}`), or each version of a row (with `form: scd2`).

"""

_EMPTY_LIST = re.compile(r"^(tables:)[ \t]*\[[ \t]*\]", re.MULTILINE)


_ON_NEW_DATA = """# Start a run in Airflow when new data arrives, and at least every hour (docs/how-to/new-data.md):
# schedule: {on: new_data, at_most_every: 1m, at_least_every: 1h}
"""
_OPTIONS = """\
# In Airflow, jobs run on this machine unless a connection names another Spark, as Fabric's (docs/deploy/fabric.md):
# spark: {connection: fabric_spark}
# Compare every row with the source once a week, a part of it each night (docs/how-to/prove.md):
# prove: {schedule: '0 4 * * *', cover_in_days: 7, alert_after_days: 10}
"""


def begun_text(name: str, source: Mapping[str, Any]) -> str:
    """The content of a new mirror file for a source, without tables."""
    body = yaml.safe_dump(
        {"mirror": name, "source": dict(source)}, sort_keys=False, allow_unicode=True, default_flow_style=False
    )
    places = f"landing_zone: {{store: local, path: build/{name}/landing_zone}}\n"
    places += f"ledger: sqlite:///build/{name}/ledger.db\nchange_log: build/{name}/change_log\n"
    # New rows of change tables in a database start no run.
    settings = _OPTIONS if source.get("transport") == "jdbc" else f"{_ON_NEW_DATA}{_OPTIONS}"
    return f"{_HEAD}{body.replace('source:', chr(10) + 'source:', 1)}\n{places}{settings}"


def indent_of(text: str) -> str:
    """The spaces before the dash of each table in the mirror file *text*."""
    tables = _tables_node(_EMPTY_LIST.sub(r"\1", text, count=1))
    return "  " if tables is None or not tables.value else " " * tables.start_mark.column


def with_tables(text: str, lines: Sequence[str], file: Path) -> str:
    """Add lines below ``tables:``; raises ``ARGUMENT_INVALID`` if they would change the meaning of another setting."""
    end = "\r\n" if "\r\n" in text else "\n"
    text = _EMPTY_LIST.sub(r"\1", text, count=1)
    node = _tables_node(text)
    existing = text.splitlines(keepends=True)
    if node is None:
        at, added = len(existing), ["", "tables:", *lines]
    else:
        at, added = _end_of(node, existing), list(lines)
    before, behind = "".join(existing[:at]), "".join(existing[at:])
    joint = end if before and not before.endswith("\n") else ""
    new = before + joint + "".join(f"{line}{end}" for line in added) + behind
    old = parse_mirror(text, file, BegunMirror)
    try:
        mirror = parse_mirror(new, file, Mirror)
    except ConfigError as error:
        raise _unknown_shape(file, "its lines would be read otherwise") from error
    kept = {name: value for name, value in mirror.model_dump().items() if name != "entries"}
    if mirror.entries[: len(old.entries)] != old.entries or kept != old.model_dump(exclude={"entries"}):
        raise _unknown_shape(file, "what is behind its tables would mean something else")
    return new


def write_file(file: Path, text: str, before: str | None) -> None:
    """Replace a file's content *before* (None: no file) by *text* in one step.

    Raises ``ARGUMENT_INVALID`` if the content is no longer *before*: another program changed the file.
    """
    place = Path(os.path.realpath(file))
    place.parent.mkdir(parents=True, exist_ok=True)
    handle, staged = tempfile.mkstemp(dir=place.parent, prefix=".init-", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as new:
            new.write(text.encode())
        os.chmod(staged, place.stat().st_mode & 0o7777 if before is not None else 0o644)
        if (place.read_bytes().decode("utf-8") if place.exists() else None) != before:
            raise TerminalError(
                "ARGUMENT_INVALID",
                "it was written to meanwhile",
                where=str(file),
                next_step="run `init` again",
            )
        os.replace(staged, place)
    finally:
        Path(staged).unlink(missing_ok=True)


def _tables_node(text: str) -> yaml.SequenceNode | None:
    """The YAML node of the list of tables; None if there is no ``tables:`` yet."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    for key, value in root.value if isinstance(root, yaml.MappingNode) else ():
        if key.value == "tables":
            is_list = isinstance(value, yaml.SequenceNode)
            return value if is_list else yaml.SequenceNode(value.tag, [], key.start_mark, key.end_mark)
    return None


def _end_of(node: yaml.SequenceNode, lines: Sequence[str]) -> int:
    at = _last_line(node) + 1
    for number, line in enumerate(lines[at:], at + 1):
        bare, indent = line.strip(), len(line) - len(line.lstrip())
        if bare and not (bare.startswith("#") and indent > node.start_mark.column):
            break
        at = number if bare else at
    return at


def _last_line(node: yaml.Node) -> int:
    """The line on which the content of a node ends; PyYAML's end of a block also counts comments and blank lines."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style:
        parts = [part for one in node.value for part in (one if isinstance(one, tuple) else (one,))]
        # An alias stands for a node that may lie anywhere; its key is on the line all the same.
        return max([node.start_mark.line, *map(_last_line, parts)])
    mark = node.end_mark
    is_block_text = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
    return int(mark.line - 1 if is_block_text and mark.column == 0 else mark.line)


def _unknown_shape(file: Path, what: str) -> TerminalError:
    return TerminalError(
        "ARGUMENT_INVALID",
        f"no table can be added to the mirror file without touching what is there: {what}",
        where=str(file),
        next_step="write the tables one below the other, each behind a dash; or take them from `init --print`",
    )
