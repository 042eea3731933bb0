"""Publishes to the landing zone: workers plan changes and stage files; then each file is renamed to its number."""
