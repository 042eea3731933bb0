"""Debezium change events: the worked example of docs/how-to/add-a-source.md, not a promised source."""
