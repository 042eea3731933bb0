"""Finds mirrored tables that are missing at the source, for the command ``open-mirroring check``; starts no JVM."""

from __future__ import annotations

from collections.abc import Mapping

from open_mirroring.config import Mirror
from open_mirroring.config.problems import Problem
from open_mirroring.config.source import AnySource, ChangeTables, InTopics
from open_mirroring.errors import MirroringError, TerminalError
from open_mirroring.protocols.table_losses import CONTROL_TABLE_UNREAD, NOT_SEEN, SETUP_INCOMPLETE
from spark_jobs.sources.contract.source import Survey
from spark_jobs.sources.qlik.message.given_structures import given_structures
from spark_jobs.sources.registry import transport_of


def unread_topics(source: AnySource, named: Mapping[str, str]) -> dict[str, str]:
    """A message for each table whose own topic is not under ``source.topics`` in the mirror file.

    *named* maps tables to their topics.
    """
    topics = source.topics if isinstance(source, InTopics) else named.values()
    missing = {table: topic for table, topic in named.items() if topic not in topics}
    return {table: f"its topic {topic!r} is none of `source.topics`" for table, topic in missing.items()}


def warnings(mirror: Mirror) -> list[Problem]:
    """The warnings about a mirror's source before the first run.

    They are ``NOT_SEEN``, ``SETUP_INCOMPLETE`` and ``CONTROL_TABLE_UNREAD``. A database that only Spark can read, or
    that does not answer, is not checked.
    """
    try:
        survey = transport_of(mirror).survey()
    except MirroringError:
        survey = Survey()  # what is wrong with the source itself is said by others
    named = {".".join(table.source_name): table.topic for table in mirror.tables if table.topic is not None}
    unseen = {**survey.unseen, **unread_topics(mirror.source, named)}
    found: list[Problem] = []
    paired = isinstance(mirror.source, ChangeTables) and mirror.source.before_images
    for place, table in mirror.placed_tables:
        name = ".".join(table.source_name)
        if name in unseen:
            next_step = "fix `source` or `change_table` if the source spells them otherwise; if not, wait for a change"
            found.append(mirror.problem((*place, "source"), NOT_SEEN, unseen[name], next_step))
        if name in survey.without_mask and table.key and not (table.keys_never_change or paired):
            what = "its change table has no change mask: an update without before image stops it"
            next_step = "have the task store before images and set `before_images: true`, or select change_mask; or "
            next_step += "set `keys_never_change: true`"
            found.append(mirror.problem((*place, "key"), SETUP_INCOMPLETE, what, next_step))
    for setting, what in survey.settings.items():
        next_step = "correct it, or grant the login SELECT on the tables: otherwise suspended tables are not reported"
        found.append(mirror.problem(("source", setting), CONTROL_TABLE_UNREAD, what, next_step))
    return found


def check_structures(mirror: Mirror) -> list[Problem]:
    """Mistakes in the table structures under `structures` in a mirror file."""
    try:
        given_structures(mirror)
    except TerminalError as error:
        return [mirror.problem_of(("structures",), error)]
    return []
