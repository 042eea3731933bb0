"""The JSON Schema of mirror files, for editors and reviewers; ``open-mirroring schema`` prints it."""

from __future__ import annotations

import json
from typing import Any

from open_mirroring.config.models import Mirror


def json_schema() -> dict[str, Any]:
    """The schema (draft 2020-12) of a mirror file; what only the loader can judge is in the descriptions."""
    schema = Mirror.model_json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "open_mirroring mirror file"}


def document() -> str:
    """The schema as the text of ``docs/mirror.schema.json``."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
