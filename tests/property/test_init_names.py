"""Whatever tables, columns and keys a source announces, the mirror file that is begun can be read, and says that."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from open_mirroring.config.loading import parse_mirror
from open_mirroring.config.models import BegunMirror, Mirror
from spark_jobs.beginning.announcements import AnnouncedTable
from spark_jobs.beginning.entries import FirstRows, entries
from spark_jobs.beginning.mirror_text import begun_text, indent_of, with_tables

FILE = Path("mirrors/test.yaml")
SOURCE = {"format": "sqlserver-ces", "transport": "files", "path": "source"}
# Whatever a database allows in a name, and what YAML, a comment or a secret's form could make of it.
AWKWARD = st.sampled_from(["#", ": ", "- ", "'", '"', "]", "[", "{", "}", ",", "&", "*", "!", "|", ">", "%", "@", "`",
                           "\n", "\r\n", "\t", "\x85", "\u2028", "\ufeff", "\x00", "\u202e", "null", "~", "password=",
                           "AccountKey=", "a.b", ".", " ", "_", "é", "e\u0301", "😀", "\\", "/"])  # fmt: skip
NAMES = st.lists(st.one_of(AWKWARD, st.sampled_from("abcXYZ019"), st.characters(codec="utf-8")), min_size=1, max_size=6)
NAME = NAMES.map("".join)
TYPES = st.sampled_from(["int", "nvarchar(50)", "decimal(18,4)", "geography", "NUMERIC(0,0)", ""])


@st.composite
def story(draw: st.DrawFn) -> AnnouncedTable:
    columns = draw(st.dictionaries(NAME, TYPES, max_size=4))
    key = draw(st.one_of(st.none(), st.lists(st.sampled_from(sorted(columns)), unique=True) if columns else st.none()))
    schema, table, senders = draw(NAME), draw(NAME), draw(st.sets(NAME, max_size=2))
    return AnnouncedTable(schema, table, columns, None if key is None else tuple(key), senders=senders)


@given(st.lists(story(), max_size=5, unique_by=lambda one: (one.schema, one.table)), st.sampled_from(["\n", "\r\n"]))
def test_what_is_written_is_read_back_whatever_the_names(tables: list[AnnouncedTable], ending: str) -> None:
    """G-50: each mirrored table has the announced name, key and a subset of the columns; the others are comments."""
    text = begun_text("test", SOURCE).replace("\n", ending)
    mirror = parse_mirror(text, FILE, BegunMirror)
    found = [one for one in entries(mirror, tables, FirstRows()) if not one.looks_secret]
    active = [one for one in found if not one.waits]
    lines = [line for one in found for line in one.lines(indent_of(text))]
    if not active:
        return
    written = with_tables(text, lines, FILE)
    by_name = {(one.schema, one.table): one for one in tables}
    mirrored = parse_mirror(written, FILE, Mirror).tables
    assert len(mirrored) == len(active)
    for table in mirrored:
        one = by_name[table.source_name]
        assert table.key == one.key and set(table.columns or ()) <= one.columns.keys()
    # A second run adds below, and leaves what is there.
    more = AnnouncedTable("later", "table", {"id": "int"}, ("id",))
    added = [
        line for one in entries(parse_mirror(written, FILE, Mirror), [more], FirstRows()) for line in one.lines("  ")
    ]
    again = parse_mirror(with_tables(written, added, FILE), FILE, Mirror).tables
    assert again[:-1] == mirrored and again[-1].source == "later.table"
