"""Hostile names of tables and columns, and secrets: refused or harmless, and never shown (F-02, F-50, I30)."""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.config import ConfigError, Mirror, load_mirror
from open_mirroring.config.names import split_source_name
from open_mirroring.config.yaml_tree import key_smells, text_smells

CANARY = "hunter2canary"


def _file(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "shop.yaml"
    file.write_text(text, "utf-8")
    return file


def _mirror(**table: Any) -> dict[str, Any]:
    return {
        "mirror": "shop",
        "source": {"format": "sqlserver-ces", "transport": "files", "layout": "bare", "path": "in"},
        "landing_zone": {"store": "local", "path": "zone"},
        "ledger": "sqlite:///ledger.db",
        "change_log": "log",
        "tables": [{"source": "dbo.a", "target": "dbo/a", "key": ["id"]} | table],
        "schedule": "0 * * * *",
        "gate": {"max_files": 1},
        "spark": {"connection": "spark", "memory": "1g"},
    }


def _codes(tmp_path: Path, content: dict[str, Any]) -> list[tuple[str, str]]:
    with pytest.raises(ConfigError) as caught:
        load_mirror(_file(tmp_path, yaml.safe_dump(content)))
    assert str(caught.value).replace("\n", "").isprintable(), "a hostile name must not forge log lines"
    return [(p.code, p.path) for p in caught.value.problems]


@pytest.mark.parametrize(
    "target",
    ["..", "../a", "a/..", "a/b/c", "/a", "a/", "", "a\\b", "a'b", 'a"b', "a\u202eb", "a\nb", "a\x85b", "_a", "a.",
     " a", "con", "nul.x", "a.schema", "a.SCHEMA/b", "A\u030a", "x" * 129, "a*b", "a%2fb", "a:b"],
)  # fmt: skip
def test_a_target_that_is_no_safe_folder(tmp_path: Path, target: str) -> None:
    """F-02, F-05: nothing leaves its folder, hides, or collides."""
    assert _codes(tmp_path, _mirror(target=target)) == [("CONFIG_INVALID", "tables[0].target")]


@pytest.mark.parametrize(
    ("one", "two"), [("dbo/a", "DBO/A"), ("Straße", "strasse"), ("a", "\uff41"), ("x", "x"), ("x", "dbo/X")]
)
def test_targets_that_a_store_cannot_show_apart(tmp_path: Path, one: str, two: str) -> None:
    """F-02, F-03: a target without schema lies in the default one."""
    content = _mirror(target=one)
    content["tables"].append(content["tables"][0] | {"source": "dbo.b", "target": two})
    assert _codes(tmp_path, content) == [("CONFIG_INVALID", "tables[1].target")]


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        (["__rowMarker__"], "COLUMN_NAME_INVALID"), (["__ROWMARKER__"], "COLUMN_NAME_INVALID"),
        (["a\u202eb"], "CONFIG_INVALID"), (["a\nb"], "CONFIG_INVALID"), ([""], "CONFIG_INVALID"),
        (["x" * 129], "CONFIG_INVALID"), (["a\u2028b"], "CONFIG_INVALID"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("setting", ["key", "columns", "types", "split_column"])
def test_columns_that_no_table_of_the_target_can_have(
    tmp_path: Path, setting: str, columns: list[str], code: str
) -> None:
    """F-50: the marker's name is reserved in any case; control and direction characters are refused."""
    export = {"format": "parquet", "path": "x", "stream_from": "beginning", "types": {"id": "int", columns[0]: "int"}}
    tables: dict[str, dict[str, Any]] = {
        "key": {"key": columns},
        "columns": {"columns": ["id", *columns]},
        "types": {"initial_load": export},
        "split_column": {"initial_load": {"format": "jdbc", "connection": "c", "split_column": columns[0]}},
    }
    assert code in [found for found, _ in _codes(tmp_path, _mirror(**tables[setting]))]


@pytest.mark.parametrize("columns", [(["id", "a", "A"]), (["id", "a", "a"]), (["id", "ID"])])
def test_columns_listed_twice(tmp_path: Path, columns: list[str]) -> None:
    """F-88: in any case of letters."""
    assert _codes(tmp_path, _mirror(columns=columns)) == [("COLUMN_NAME_INVALID", "tables[0].columns")]


def test_names_that_are_only_ugly_are_taken(tmp_path: Path) -> None:
    """Source and column names are the source's business: quotes, slashes and dots in them are data."""
    columns = ["id", "..", "a/b", "o'clock", 'say "hi"', "a;drop table x--", "password", "naïve ÄÖ", "]"]
    content = _mirror(columns=columns, source="dbo'; drop table x--.[o/../rders\u202e]")
    mirror = load_mirror(_file(tmp_path, yaml.safe_dump(content, allow_unicode=True)))
    assert mirror.tables[0].columns == tuple(columns)
    assert mirror.tables[0].source_name == ("dbo'; drop table x--", "o/../rders\u202e")


@pytest.mark.parametrize(
    "source", ["dbo", "", ".", "dbo.", ".a", "a.b.c", "[a.b]", "[a].[b]x", "[].a.b", "dbo. orders", "[a.b", 'dbo."x']
)
def test_a_source_that_names_no_single_table(tmp_path: Path, source: str) -> None:
    assert _codes(tmp_path, _mirror(source=source)) == [("CONFIG_INVALID", "tables[0].source")]


def test_one_source_table_in_two_spellings_is_one(tmp_path: Path) -> None:
    content = _mirror()
    content["tables"].append({"source": "[dbo].[a]", "target": "other", "key": ["id"]})
    assert _codes(tmp_path, content) == [("CONFIG_INVALID", "tables[1].source")]


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.text(min_size=1), st.text(min_size=1))
def test_any_two_names_can_be_written_in_brackets(schema: str, table: str) -> None:
    """Whatever the source calls its tables can be said in a mirror file."""
    quoted = f"[{schema.replace(']', ']]')}].[{table.replace(']', ']]')}]"
    assert split_source_name(quoted) == (schema, table)


def _leaves(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(node, dict | list):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _leaves(value, (*path, key))
    else:
        yield path


_FULL = _mirror(
    columns=["id", "b"],
    full_rows=True,
    initial_load={"format": "csv", "path": "x", "stream_from": {"file": "f"}, "types": {"id": "int", "b": "int"}},
)
_FULL["tables"].append(
    {
        "source": "d.b",
        "target": "b",
        "key": ["id"],
        "initial_load": {"format": "jdbc", "connection": "c", "table": "a.b"},
    }
)
_FULL["ledger"] = {"connection": "ledger"}
_PATHS = [*_leaves(_FULL), ("ledger",), ("source",), ("tables",), ("tables", 0), ("tables", 0, "initial_load")]


@pytest.mark.parametrize(
    "secret",
    [
        f"postgresql://user:{CANARY}@host/db",
        f"postgresql://user:p@{CANARY}/x@host/db",
        f"postgresql://:{CANARY}@host/db",
        f"Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey={CANARY}",
        f"DefaultEndpointsProtocol=https;AccountKey={CANARY}==",
        f"https://x.blob.core.windows.net/c?sv=1&sig={CANARY}",
        f"jdbc:sqlserver://h;user=u;password={CANARY}",
        f"postgresql://h/d?password={CANARY}",
    ],
)
def test_a_secret_in_any_field_is_refused_and_never_shown(tmp_path: Path, secret: str) -> None:
    """I30: a canary in every field in turn; neither the error, nor its parts, nor a traceback repeats it."""
    for path in _PATHS:
        content = json.loads(json.dumps(_FULL))
        node = content
        for part in path[:-1]:
            node = node[part]
        node[path[-1]] = secret
        text = yaml.safe_dump(content, width=10_000, sort_keys=False)
        _assert_refused_silently(_file(tmp_path, text), f"{path}")


@pytest.mark.parametrize(
    "addition",
    [
        f"password: {CANARY}",
        f"gate: {{sas_token: {CANARY}}}",
        f"source_secret: {{a: {{b: [{CANARY}]}}}}",
        f"Account-Key: |\n  {CANARY}",
        f"connection_string: {CANARY}",
        f"? password={CANARY}\n: 1",
        f"# password={CANARY}",
        f"x: [1, 2  # postgresql://u:{CANARY}@h/d",
    ],
)
def test_a_setting_or_comment_that_smells_of_a_secret(tmp_path: Path, addition: str) -> None:
    text = yaml.safe_dump({k: v for k, v in _FULL.items() if k != "gate"}, sort_keys=False) + addition + "\n"
    _assert_refused_silently(_file(tmp_path, text), addition)


@pytest.mark.parametrize(
    "value", [f"*{CANARY}", f"!{CANARY} x", f"!{CANARY}!a x", f"&{CANARY} &{CANARY} x", f"@{CANARY}"]
)
def test_a_syntax_error_does_not_repeat_the_text(tmp_path: Path, value: str) -> None:
    """An unquoted password with a YAML sign in front is a syntax error: its message must not hold it."""
    with pytest.raises(ConfigError) as caught:
        load_mirror(_file(tmp_path, f"mirror: shop\nschedule: {value}\n"))
    assert "CONFIG_INVALID" in {p.code for p in caught.value.problems}
    assert CANARY not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "path",
    [
        p
        for p in _PATHS
        if p[-1] not in ("target", "source") and "key" not in p and "columns" not in p and p[-1] != "table"
    ],
)
def test_a_bare_secret_in_a_field_that_is_no_name_is_not_shown(tmp_path: Path, path: tuple[Any, ...]) -> None:
    """A password pasted into the wrong field looks like nothing in particular: values other than names stay unsaid."""
    content = json.loads(json.dumps(_FULL))
    node = content
    for part in path[:-1]:
        node = node[part]
    node[path[-1]] = f"{CANARY} %\u00a7!"
    try:
        load_mirror(_file(tmp_path, yaml.safe_dump(content)))
    except ConfigError as error:
        assert CANARY not in "".join(traceback.format_exception(error))


def _assert_refused_silently(file: Path, case: str) -> None:
    try:
        loaded: Mirror | None = load_mirror(file)
    except ConfigError as error:
        loaded = None
        found = {problem.code for problem in error.problems}
        shown = "".join(traceback.format_exception(error)) + repr(error) + repr(error.problems)
        assert "SECRET_IN_FILE" in found, case
        assert CANARY not in shown, case
        assert error.__context__ is None and error.__cause__ is None, case
    assert loaded is None, case


def test_what_smells_and_what_does_not() -> None:
    for key in ("password", "PassWord", "db_passwd", "client_secret", "sas", "sas_token", "AccountKey", "api-key"):
        assert key_smells(key), key
    for key in ("key", "keys", "path", "connection", "columns", "passage", "max_bytes"):
        assert not key_smells(key), key
    for text in (
        "sqlite:///a/b.db",
        "postgresql+psycopg2://me@host:5432/db",
        "0000002C:00000730:0011",
        "user@host:/path",
    ):
        assert not text_smells(text), text
