"""The page of settings, ``docs/reference/settings.md``, from the schema of mirror files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from open_mirroring.config import json_schema

_HEAD = """\
# Settings

Written by `make commands` from the code. These are all settings of a mirror file. `open-mirroring check` reports every
mistake in one.
"""


def settings_book() -> str:
    """The page as Markdown: a section for the file, and one for each kind of object in it."""
    schema = _named_by_title(json_schema())
    sections = [_section("The mirror file", schema)]
    objects = [one for one in schema["$defs"].values() if "properties" in one]
    sections += [_section(one["title"], one) for one in sorted(objects, key=lambda one: str(one["title"]))]
    return "\n".join([_HEAD, *sections])


def _named_by_title(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema with the title of an object wherever one refers to it."""
    text = json.dumps(schema)
    for name, one in schema["$defs"].items():
        text = text.replace(f'"#/$defs/{name}"', json.dumps(one.get("title", name)))
    named: dict[str, Any] = json.loads(text)
    return named


def _section(name: str, schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    settings = sorted(schema["properties"].items(), key=lambda setting: setting[0] not in required)
    rows = [_row(key, one, key in required) for key, one in settings]
    lines = [f"## {name}", "", "| Setting | Value | Default | Says |", "|---|---|---|---|", *rows, ""]
    return "\n".join(lines)


def _row(name: str, schema: Mapping[str, Any], required: bool) -> str:
    default = "required" if required else f"`{json.dumps(schema['default'])}`" if "default" in schema else "none"
    says = " ".join(str(schema.get("description", "")).split())
    value = " or ".join(dict.fromkeys(_values(schema)))
    return f"| `{name}` | {_cell(value)} | {_cell(default)} | {_cell(says)} |"


def _values(schema: Mapping[str, Any]) -> Iterator[str]:
    for several in ("anyOf", "oneOf", "allOf"):
        for one in schema.get(several, ()):
            yield from _values(one)
    if "$ref" in schema:
        title = str(schema["$ref"])
        yield f"[{title}](#{title.lower().replace(' ', '-')})"
    elif "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        # Separators and the empty text are seen in quotes only.
        yield ", ".join(f"`{one if re.fullmatch(r'[ -~]+', str(one)) else json.dumps(one)}`" for one in values)
    elif schema.get("type") == "array":
        yield "list of " + " or ".join(_values(schema.get("items", {})))
    elif "type" in schema:
        yield str(schema["type"])


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    print(settings_book(), end="")
