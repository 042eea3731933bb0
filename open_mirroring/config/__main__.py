"""Prints the JSON Schema of mirror files: ``python -m open_mirroring.config > docs/mirror.schema.json``."""

from open_mirroring.config.published_schema import document

print(document(), end="")
