"""What column lists say of a table's structure, against a table whose structure changes for real (G-60).

The reference knows the columns at every moment. What is read of it are lists with their lowest and highest places, as
batches leave them in the ledger, whatever came first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from open_mirroring.changes.column_history import (
    Column,
    ColumnHistory,
    FormerColumn,
    Gone,
    ListOfColumns,
    Word,
    column_history,
    gone_again,
    lists_as_now,
    names_before_return,
    other_columns,
    renamed_columns,
)
from open_mirroring.changes.places_seen import PlacesSeen


def listed(seen: PlacesSeen, **types: str) -> ListOfColumns:
    return ListOfColumns({name: Column("", kind) for name, kind in types.items()}, seen)


def lists_between(*lives: tuple[str, int, int], whole: bool = True) -> list[ListOfColumns]:
    """The lists of columns that were there between two places."""
    ends = [(names, place(first), place(last)) for names, first, last in lives]
    return [
        listed(PlacesSeen(*seen, *(seen if whole else ())), **dict.fromkeys(names, "INT32")) for names, *seen in ends
    ]


def test_a_name_that_was_renamed_was_another_columns_before_its_gap_g66() -> None:
    """Of a column that was dropped, came back and was renamed then, only the second one has the new name."""
    lists, said = lists_between(("ab", 1, 3), ("b", 4, 5), ("ab", 6, 7), ("bc", 8, 9)), Word("a", place(9), "c")
    renamed = FormerColumn("a", place(9), "c")
    history = column_history(lists, [said])
    assert renamed_columns(lists, history, [said]) == [FormerColumn("a", place(5), None), renamed]
    assert renamed_columns(lists[2:], column_history(lists[2:]), [said]) == [renamed]
    as_now = lists_as_now(lists, [FormerColumn("a", place(5), None), renamed])
    assert [sorted(one.columns) for one in as_now] == [["b"], ["b"], ["b", "c"], ["b", "c"]]


def test_a_column_that_is_gone_for_the_second_time_was_another_one_before_g66() -> None:
    """Its earlier values may be of another type, and its earlier name may be another column's since: that is asked."""
    lists = lists_between(("ab", 1, 3), ("bc", 4, 5), ("abc", 6, 7), ("bc", 8, 9))
    history = column_history([*lists[:1], lists[2], joined(lists[1], lists[3])])
    assert history.gone["a"].after == place(7) and not history.gone["a"].renamed_to
    back = history.back["a"]
    assert (back.gone_at, back.since) == (place(4), place(6)), "the proofs behind it are known by their ends alone"
    assert other_columns(history) == [FormerColumn("a", place(4), None)]
    assert names_before_return("a", back, lists, renames=True) == {"c": place(4)}


def test_a_gap_behind_the_known_one_is_seen_g66() -> None:
    """A late row shows that a column was gone for longer than was noted when its earlier values were left out."""
    before, without, behind = lists_between(("ab", 1, 3), ("b", 4, 6), ("ab", 7, 9))
    lists = [joined(before, behind), without]
    assert gone_again(FormerColumn("a", place(4), None), lists) == place(6)
    assert gone_again(FormerColumn("a", place(6), None), lists) == ""


def joined(one: ListOfColumns, other: ListOfColumns) -> ListOfColumns:
    """Two times of the same columns, as the ledger has them."""
    ends = [*one.seen, *other.seen]
    return ListOfColumns(one.columns, PlacesSeen(min(ends), max(ends), min(ends), max(ends)))


def test_a_statement_shows_of_a_gap_that_no_row_shows_t88() -> None:
    """A name that rows before and behind have was another column's: renamed, or dropped."""
    lists = lists_between(("a", 1, 3), ("ba", 6, 9), whole=False)
    assert not column_history(lists).back
    renamed = Word("a", place(5), "b")
    history = column_history(lists, [renamed])
    assert history.back["a"] == (place(5), place(6)) and not history.gone
    former = renamed_columns(lists, history, [renamed])
    dropped = FormerColumn("a", place(2), None)
    assert renamed_columns(lists, history, [renamed, Word("a", place(2))]) == [dropped, *former]
    assert former == [FormerColumn("a", place(5), "b")]
    assert not column_history(lists_as_now(lists, former), [renamed]).back, "it is another column from its first row on"


NAMES = "abcd"
TYPES = {"a": "INT32", "b": "INT32", "c": "STRING", "d": "STRING"}


class Row(NamedTuple):
    at: str
    columns: frozenset[str]
    whole: bool


def place(number: int) -> str:
    return f"000000:{number:04d}:1"


@st.composite
def stories(draw: st.DrawFn) -> list[Row]:
    """Rows of a table with a key that stays and columns that come and go between any two of them."""
    there: set[str] = set(draw(st.sets(st.sampled_from(NAMES))))
    rows = []
    for number in range(draw(st.integers(1, 12))):
        there ^= draw(st.sets(st.sampled_from(NAMES), max_size=2))
        whole = draw(st.booleans())
        carried = there if whole else draw(st.sets(st.sampled_from(sorted(there)))) if there else set()
        rows.append(Row(place(number), frozenset({"id", *carried}), whole))
    return rows


def lists_of(rows: Sequence[Row]) -> list[ListOfColumns]:
    found: dict[frozenset[str], list[Row]] = {}
    for row in rows:
        found.setdefault(row.columns, []).append(row)
    lists = []
    for columns, some in found.items():
        whole = [row.at for row in some if row.whole]
        places = [row.at for row in some]
        seen = PlacesSeen(min(places), max(places), min(whole, default=""), max(whole, default=""))
        lists.append(listed(seen, **{name: TYPES.get(name, "INT32") for name in columns}))
    return lists


@given(stories(), st.booleans())
def test_gone_is_what_the_newest_proof_says_and_back_what_came_behind_one(rows: list[Row], renames: bool) -> None:
    """G-60: soundness and completeness, as far as rows prove anything."""
    found = column_history(lists_of(rows), renames=renames)
    for name in {name for row in rows for name in row.columns}:
        carrying = [row.at for row in rows if name in row.columns]
        proofs = [row.at for row in rows if row.whole and name not in row.columns]
        behind = [at for at in proofs if at > max(carrying)]
        between = [at for at in proofs if min(carrying) < at < max(carrying)]
        assert (name in found.gone) == bool(behind)
        assert behind or (name in found.back) == bool(between), "of one that is gone again, ends may hide it"
        if behind:
            gone = found.gone[name]
            assert gone.after == max(carrying)
            assert min(behind) <= gone.since <= max(behind), "a proof, and not later than the last one"
        if back := found.back.get(name):
            assert back.gone_at in between and (behind or back.gone_at == max(between))
            assert back.gone_at < back.since <= max(carrying)


@given(stories())
def test_a_rename_is_asked_for_wherever_it_may_have_been_one(rows: list[Row]) -> None:
    """F-88: in one step a column went and one of its type came; nothing proves that there were two steps."""
    for name, gone in column_history(lists_of(rows), renames=True).gone.items():
        for other in {name for row in rows for name in row.columns} - {name}:
            places = [row.at for row in rows if other in row.columns]
            came = min(places) > gone.after and TYPES.get(other, "INT32") == TYPES.get(name, "INT32")
            both = any({name, other} <= row.columns for row in rows)
            neither = [row.at for row in rows if row.whole and not {name, other} & row.columns]
            in_two_steps = both or any(gone.after < at < min(places) for at in neither)
            if came and not in_two_steps:
                assert other in gone.renamed_to
            if not came or both:
                assert other not in gone.renamed_to


@given(stories())
def test_a_source_that_cannot_rename_is_not_asked_c74(rows: list[Row]) -> None:
    assert not any(gone.renamed_to for gone in column_history(lists_of(rows), renames=False).gone.values())


@given(stories(), st.randoms())
def test_the_order_of_lists_says_nothing(rows: list[Row], random: object) -> None:
    """G-09: late files, rows that are read again and replays are judged by their places."""
    lists = lists_of(rows)
    shuffled = [*lists]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert column_history(shuffled, renames=True) == column_history(lists, renames=True)


OLD = listed(PlacesSeen(place(1), place(5), place(1), place(5)), id="INT32", a="INT32")
NEW = listed(PlacesSeen(place(6), place(9), place(7), place(9)), id="INT32", b="INT32")


def gone_of(*lists: ListOfColumns, said: Mapping[str, str] | None = None, renames: bool = True) -> ColumnHistory:
    decided = [Word(column, at) for column, at in (said or {}).items()]
    return column_history(lists, decided, renames=renames)


def test_an_operators_word_settles_the_question_until_the_column_comes_back() -> None:
    """G-60."""
    assert gone_of(OLD, NEW).gone == {"a": Gone(place(5), place(7), ("b",))}
    assert gone_of(OLD, NEW, said={"a": place(9)}).gone == {"a": Gone(place(5), place(7))}
    again = listed(PlacesSeen(place(10), place(12)), id="INT32", a="INT32")
    newest = listed(PlacesSeen(place(13), place(14), place(13), place(14)), id="INT32", b="INT32", c="INT32")
    assert gone_of(OLD, NEW, again, newest, said={"a": place(9)}).gone["a"].renamed_to == ("c",)


def test_an_operators_word_is_a_proof_where_rows_prove_nothing() -> None:
    """C-44: an update that changed all it carries may be a part of its row."""
    partial = listed(PlacesSeen(place(6), place(9)), id="INT32")
    assert gone_of(OLD, partial).gone == {}
    assert gone_of(OLD, partial, said={"a": place(9)}).gone == {"a": Gone(place(5), place(9))}


def test_between_two_streams_any_source_may_have_renamed() -> None:
    """C-74 holds while a table is streamed."""
    anew = listed(PlacesSeen("000001:0001:1", "000001:0002:1", "000001:0001:1", "000001:0002:1"), id="INT32", b="INT32")
    assert gone_of(OLD, anew, renames=False).gone["a"].renamed_to == ("b",)
    assert gone_of(OLD, NEW, renames=False).gone["a"].renamed_to == ()


def test_a_column_of_the_load_is_gone_by_word_only() -> None:
    """C-77: a type that is not streamed looks alike; one that is streamed is gone, or was renamed meanwhile."""
    loaded = [ListOfColumns({"id": Column("", "INT32", 0), "doc": Column("", "string", 1)}, PlacesSeen("", ""))]
    dropped = {"doc": Gone("", place(7))}
    assert column_history([NEW], loaded=loaded).gone == {}
    assert column_history([NEW], [Word("doc", place(9))], loaded=loaded).gone == dropped
    assert column_history([NEW], loaded=loaded, carried=["doc"]).gone == dropped
    for at, names in ((1, ("text",)), (2, ("text",)), (0, ())):
        text, id_ = Column("varchar(9)", "string", at), Column("int", "INT32", 1 - min(at, 1))
        first = ListOfColumns({"id": id_, "text": text}, NEW.seen)
        found = column_history([first], loaded=loaded, carried=["doc"])
        assert found.gone["doc"].renamed_to == names, "a rename keeps the place among the others"
        assert not column_history([first], loaded=loaded, carried=["doc"], renames=False).gone["doc"].renamed_to
